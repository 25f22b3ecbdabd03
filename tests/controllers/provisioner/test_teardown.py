"""Deletion of a provisioner with its namespace, in which nothing can be created."""

from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.provisioners import ProvisionerNamespace

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Unstructured, namespaced=False)
KEY_SECRET = "build-provisioner-key"


async def tear_down(place: ProvisionerNamespace) -> None:
    """Delete the namespace; the test acts as the namespace controller."""
    namespace = await place.client.get(NAMESPACE, Key("", place.namespace))
    await place.client.delete(NAMESPACE, namespace, unchanged=False)


async def remove(place: ProvisionerNamespace, operator: Operator, *kinds: Kind[Any]) -> None:
    """Delete all objects of these kinds, and wait until the operator has reconciled."""
    for kind in kinds:
        names = [
            Unstructured.decode(raw).metadata.name
            async for page in place.client.list(kind, place.namespace)
            for raw in page.items
        ]
        for name in names:
            await place.delete(kind, name)
    await operator.reconcile(place.key)


async def gone(place: ProvisionerNamespace) -> bool:
    return await place.find(PROVISIONER, "build") is None


@pytest.mark.parametrize("rotating", [False, True])
async def test_keys_are_deleted_while_the_control_plane_exists(place: ProvisionerNamespace, rotating: bool) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        if rotating:
            await place.annotate(rotate_key="now")
            await eventually(lambda: len(place.keys) == 2)
        await tear_down(place)
        await remove(place, operator, DEPLOYMENT, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)
        await place.condition("Stalled", "Forbidden", "True")
        await remove(place, operator, PROVISIONER)
        await eventually(lambda: gone(place))
    assert not place.keys


async def test_no_key_without_a_secret_is_left(place: ProvisionerNamespace) -> None:
    """Its Secret is deleted first: the key cannot be rotated, and no key is left."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await tear_down(place)
        await place.delete(SECRET, KEY_SECRET)
        refused = await place.condition("ProvisionerKeySecretReady", "Forbidden", "False")
        assert "being terminated" in refused.message
        await operator.wait_idle()
        assert set(place.keys) == {"build"}
        assert 30 < (operator.requeue_after() or 0) <= 60
        await remove(place, operator, PROVISIONER)
        await eventually(lambda: gone(place))
    assert not place.keys


@pytest.mark.parametrize(
    "order",
    [(CONTROL_PLANE, SECRET, PROVISIONER), (SECRET, CONTROL_PLANE, PROVISIONER), (SECRET, PROVISIONER, CONTROL_PLANE)],
    ids=lambda order: " ".join(kind.name for kind in order),
)
async def test_deletion_completes_without_access_to_coderd(
    place: ProvisionerNamespace, order: tuple[Kind[Any], ...]
) -> None:
    """The control plane is deleted with its coderd; its provisioners do not wait for it."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await tear_down(place)
        for kind in order:
            await remove(place, operator, kind)
        await eventually(lambda: gone(place))
        await operator.wait_idle()
        assert operator.requeue_after() is None
