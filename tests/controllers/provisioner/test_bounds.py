"""Repeated work slows down, and work that cannot be done ends with an event."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import pytest
from aiohttp import web

from coder_k8s.api import PROVISIONER, CoderProvisioner
from coder_k8s.controllers.provisioner import records
from coder_k8s.dev.coderd_server import User
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.support.operators import Operator
from tests.support.provisioners import ProvisionerNamespace

SECRET_NAME = "build-provisioner-key"


async def empty(place: ProvisionerNamespace, operator: Operator) -> None:
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"data": {"key": ""}})
    await operator.reconcile(place.key)


async def test_secret_that_is_emptied_repeatedly(place: ProvisionerNamespace) -> None:
    """No rollout completes, so no key is deleted."""
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "KeyReady")
        for _ in range(3):
            await empty(place, operator)
            assert await place.stored()
        for made, delay in enumerate([2, 4, 8], start=4):
            await empty(place, operator)
            condition = await place.condition("ProvisionerKeyReady", "Rotating", "False")
            assert SECRET_NAME in condition.message
            again = operator.requeue_after()
            assert again is not None
            assert again <= delay
            last = (await place.get()).status.retiring_keys[-1].since
            assert last is not None
            await at(place, operator, last + timedelta(seconds=delay - 1))
            assert (len(place.keys), await place.stored()) == (made, "")
            await at(place, operator, last + timedelta(seconds=delay))
            assert len(place.keys) == made + 1
            assert await place.stored()


async def at(place: ProvisionerNamespace, operator: Operator, time: datetime) -> None:
    """Reconcile at that time."""
    place.clock.time = time
    await place.set_plane_status("demo", **place.fresh("entitled"))
    await operator.reconcile(place.key)


@pytest.mark.parametrize(("retiring", "delay"), [(3, 2), (4, 4), (8, 64), (9, 120), (500, 120)])
def test_the_delay_grows(retiring: int, delay: int) -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    keys = [{"name": "build", "since": since.isoformat()} for _ in range(retiring)]
    content = {
        "metadata": {"name": "build", "namespace": "coder"},
        "spec": {"controlPlaneRef": {"name": "demo"}},
        "status": {"retiringKeys": keys},
    }
    backoff_until = records.backoff_until(msgspec.convert(content, CoderProvisioner))
    assert backoff_until == since + timedelta(seconds=delay)


async def test_organizations_that_change_repeatedly(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "KeyReady")
        for turn in range(8):
            await place.change(organizationName="default" if turn % 2 else "acme")
            await place.condition("ProvisionerKeyReady", "Rotating" if turn % 2 and turn > 2 else "KeyReady")
            await operator.wait_idle()
        assert len((await place.get()).status.retiring_keys) == 3
        assert len(place.keys) + len(place.plane.acme.state.keys) == 4


async def replace_database(place: ProvisionerNamespace) -> None:
    """Replace coderd by one that has neither the organization nor any earlier key."""
    state = place.plane.coderd.state
    state.keys.clear()
    state.daemons.clear()
    state.organization_id = str(uuid4())
    state.organizations = {"coder": state.organization_id}
    place.clock.advance(minutes=3)
    await place.set_plane_status("demo", **place.fresh("entitled"))


async def test_deleted_organization(place: ProvisionerNamespace) -> None:
    """An Owner can see all organizations."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await replace_database(place)
        await operator.reconcile(place.key)
        await place.ready(operator)
        assert not (await place.get()).status.retiring_keys
        [event] = await place.events("ProvisionerKeyLeaked")
        assert "Coder has no such organization" in event["note"]


async def test_organization_that_may_be_hidden(place: ProvisionerNamespace) -> None:
    """The operator queries it slowly, and assumes after a day that it is deleted."""
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await replace_database(place)
        await operator.reconcile(place.key)
        await place.put_secret("demo-operator-token", token=state.add_token(User("reader", ("auditor",))))
        await operator.wait_idle()
        await place.roll_out_daemons()
        await operator.reconcile(place.key)
        assert len((await place.get()).status.retiring_keys) == 1
        [event] = await place.events("ProvisionerKeyNotDeleted")
        assert "Organization Admin" in event["note"]
        again = operator.requeue_after()
        assert again is not None
        assert again > 20
        place.clock.advance(hours=25)
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await operator.reconcile(place.key)
        assert not (await place.get()).status.retiring_keys
        assert await place.events("ProvisionerKeyLeaked")


async def test_leaked_key_is_reported_once(place: ProvisionerNamespace) -> None:
    """Also while the operator still waits for another key of the object."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
    lost = {"name": "old", "id": str(uuid4()), "organizationName": "default", "controlPlaneRefName": "gone"}
    await place.client.merge(PROVISIONER, place.key, {"status": {"retiringKeys": [lost]}}, "status")
    place.plane.coderd.state.set(failing=True)
    await place.delete(PROVISIONER, "build")
    async with place.operator() as operator:
        for _ in range(3):
            await operator.reconcile(place.key)
        assert not await place.events("ProvisionerKeyLeaked")
        place.plane.coderd.state.set(failing=False)
        await operator.reconcile(place.key)
        await operator.wait_idle()
        assert await place.find(PROVISIONER, "build") is None
        [event] = await place.events("ProvisionerKeyLeaked")
        assert "key old" in event["note"]
        assert not event.get("series")
        assert not place.keys


async def test_secret_that_another_owner_creates_first(place: ProvisionerNamespace) -> None:
    """The key that cannot be stored is deleted."""
    state = place.plane.coderd.state
    made: list[asyncio.Task[None]] = []

    def before(request: web.Request) -> None:
        if request.method == "POST" and not made:
            made.append(asyncio.get_running_loop().create_task(place.put_secret(SECRET_NAME, key="theirs")))

    async with place.operator() as operator:
        place.plane.before = before
        state.set(latency=0.5)
        await place.make()
        await place.condition("ProvisionerKeySecretReady", "NameTaken")
        await operator.wait_idle()
        assert made
        assert not place.keys
        assert await place.stored() == "theirs"


def responses(place: ProvisionerNamespace, method: str, path: str, answer: type[web.HTTPException], text: str) -> None:
    """Respond to some requests instead of coderd."""

    def before(request: web.Request) -> None:
        if request.method == method and request.path.endswith(path):
            raise answer(text=text, content_type="application/json")

    place.plane.before = before


async def test_error_when_daemons_are_listed(place: ProvisionerNamespace) -> None:
    """The key is ready anyway."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        responses(place, "GET", "/provisionerdaemons", web.HTTPBadGateway, "bad gateway")
        place.clock.advance(minutes=3)
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await operator.reconcile(place.key)
        await place.condition("DaemonsConnected", "DaemonsQueryFailed", "Unknown")
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
        place.plane.before = lambda request: None
        await operator.reconcile(place.key)
        await place.condition("DaemonsConnected", "DaemonsConnected", "True")


async def test_key_that_coderd_rejects_as_invalid(place: ProvisionerNamespace) -> None:
    """A retry does not help, so the interval is long."""
    responses(place, "POST", "/provisionerkeys", web.HTTPBadRequest, '{"message": "Name cannot be reserved name"}')
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "KeyRejected", "False")
        await operator.wait_idle()
        again = operator.requeue_after()
        assert again is not None
        assert again > 60


async def test_object_with_a_name_that_coder_reserves(place: ProvisionerNamespace) -> None:
    """Its key needs another name."""
    with pytest.raises(errors.Invalid, match=r"set spec\.key\.name"):
        await place.make("psk")
    await place.make("psk", key={"name": "other"})
    async with place.operator() as operator:
        await place.condition("ProvisionerKeyReady", "KeyReady", name="psk")
        await operator.wait_idle()
        assert set(place.keys) == {"other"}
