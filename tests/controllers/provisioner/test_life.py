"""From the first key to the last: what a provisioner is made of, and what is left of it."""

from tests.support import eventually
from tests.support.provisioners import Yard


async def test_create(place: Yard) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.told("ProvisionerKeyReady", "KeyReady", "True")
        found = await place.ready(operator)
    assert found.metadata.finalizers == ["coder.com/provisioner-key-cleanup"]
    assert await place.stored() == place.keys["build"].secret
