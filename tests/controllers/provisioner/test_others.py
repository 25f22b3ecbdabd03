"""Keys of other objects and users are never deleted; keys of this object always are."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from aiohttp import web

from coder_k8s.api import PROVISIONER
from coder_k8s.controllers.cleanup import PROVISIONER_FINALIZER
from coder_k8s.controllers.provisioner.keys import tags_hash
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.provisioners import ProvisionerNamespace


def bad_gateway() -> web.HTTPException:
    return web.HTTPBadGateway(text="<html>bad gateway</html>", content_type="text/html")


def no_permission() -> web.HTTPException:
    problem = {"message": "Internal error.", "detail": "unauthorized: rbac: forbidden"}
    return web.HTTPInternalServerError(text=json.dumps(problem), content_type="application/json")


def no_route() -> web.HTTPException:
    return web.HTTPNotFound(text=json.dumps({"message": "Route not found."}), content_type="application/json")


def refuse(place: ProvisionerNamespace, answer: Callable[[], web.HTTPException], method: str = "POST") -> None:
    """Respond to requests for keys instead of coderd."""

    def before(request: web.Request) -> None:
        if request.method == method and request.path.endswith("/provisionerkeys"):
            raise answer()

    place.plane.before = before


def forward(place: ProvisionerNamespace) -> None:
    place.plane.before = lambda request: None


def ids(place: ProvisionerNamespace) -> set[str]:
    return {key.id for key in place.keys.values()}


async def gone(place: ProvisionerNamespace, operator: Operator, name: str = "build") -> None:
    await place.delete(PROVISIONER, name)

    async def check() -> bool:
        return await place.find(PROVISIONER, name) is None

    await eventually(check)
    await operator.wait_idle()


async def created_by(place: ProvisionerNamespace, operator: Operator, name: str) -> str:
    """The ID of the key `shared` of an object whose pods do not run yet."""
    place.clock.advance(seconds=5)
    await place.make(name, key={"name": "shared"})
    await place.condition("ProvisionerKeyReady", "KeyReady", name=name)
    await operator.wait_idle()
    return (await place.get(name)).status.provisioner_key_id


@pytest.mark.parametrize("answer", [bad_gateway, no_permission])
async def test_key_of_another_object(place: ProvisionerNamespace, answer: Callable[[], web.HTTPException]) -> None:
    """It has the name that this object requested before, with the same tags, and no daemon uses it yet."""
    refuse(place, answer)
    async with place.operator() as operator:
        await place.make("one", key={"name": "shared"})
        await eventually(lambda: place.plane.request_count("GET", "provisionerkeys"))
        await operator.wait_idle()
        assert (await place.get("one")).status.provisioner_key_name == "shared"
        forward(place)
        theirs = await created_by(place, operator, "two")
    async with place.operator() as operator:
        await place.condition("ProvisionerKeyReady", "KeyReady", name="one")
        await operator.wait_idle()
        own = await place.get("one")
        assert own.status.provisioner_key_name != "shared"
        assert ids(place) == {theirs, own.status.provisioner_key_id}
        await gone(place, operator, "one")
        assert ids(place) == {theirs}


async def test_deletion_while_another_object_has_the_name(place: ProvisionerNamespace) -> None:
    refuse(place, bad_gateway)
    async with place.operator() as operator:
        await place.make("one", key={"name": "shared"})
        await place.condition("ProvisionerKeyReady", "Failed", name="one")
        await operator.wait_idle()
        forward(place)
        theirs = await created_by(place, operator, "two")
        await gone(place, operator, "one")
        assert ids(place) == {theirs}
        assert not await place.events("ProvisionerKeyLeaked", name="one")


@pytest.mark.parametrize("deleted", [False, True])
async def test_key_that_a_user_creates_after_a_rejection(place: ProvisionerNamespace, deleted: bool) -> None:
    """A rejected request created no key, also after a restart."""
    refuse(place, no_permission)
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "Forbidden")
        await operator.wait_idle()
        assert (await place.get()).status.key_refused
    forward(place)
    place.clock.advance(minutes=1)
    place.plane.coderd.state.add_key("build")
    theirs = ids(place)
    if deleted:
        await place.delete(PROVISIONER, "build")
    async with place.operator() as operator:
        if deleted:

            async def check() -> bool:
                return await place.find(PROVISIONER, "build") is None

            await eventually(check)
            assert ids(place) == theirs
        else:
            await place.condition("ProvisionerKeyReady", "KeyReady")
            assert theirs < ids(place)
        await operator.wait_idle()


async def test_status_of_an_earlier_version(place: ProvisionerNamespace) -> None:
    """It has the name of a key without ID and time; the key of that name is in use and has other tags."""
    async with place.operator() as operator:
        await place.make("two", key={"name": "shared"}, tags={"x": "y"})
        await place.condition("ProvisionerKeyReady", "KeyReady", name="two")
        await operator.wait_idle()
        place.plane.coderd.state.connect_daemon("two-0", "shared")
    theirs = ids(place)
    await requested_earlier(place, "one", "shared")
    await place.delete(PROVISIONER, "one")
    async with place.operator() as operator:

        async def check() -> bool:
            return await place.find(PROVISIONER, "one") is None

        await eventually(check)
        await operator.wait_idle()
    assert ids(place) == theirs


@pytest.mark.parametrize(("tags", "left"), [({}, False), ({"x": "y"}, True)])
async def test_name_without_other_records(place: ProvisionerNamespace, tags: dict[str, str], left: bool) -> None:
    """A key that an earlier version requested is deleted if it has the tags; otherwise an event names it."""
    place.plane.coderd.state.add_key("shared", tags)
    await requested_earlier(place, "one", "shared")
    async with place.operator() as operator:
        await gone(place, operator, "one")
        assert bool(place.keys) is left
        assert bool(await place.events("ProvisionerKeyLeaked", name="one")) is left


async def requested_earlier(place: ProvisionerNamespace, name: str, key: str) -> None:
    """An object for which an earlier version requested a key; it is paused."""
    metadata = {"namespace": place.namespace, "name": name, "finalizers": [PROVISIONER_FINALIZER]}
    spec = {"controlPlaneRef": {"name": "demo"}, "key": {"name": key}}
    await place.client.create(PROVISIONER, {"metadata": metadata, "spec": spec})
    status = {
        "provisionerKeyName": key,
        "tagsHash": tags_hash({}),
        "controlPlaneRefName": "demo",
        "organizationName": "default",
        "controlPlaneURL": f"http://demo.{place.namespace}.svc.cluster.local:80",
    }
    await place.client.merge(PROVISIONER, place.key_of(name), {"status": status}, "status")


SKEWS = [timedelta(seconds=seconds) for seconds in (-300, -0.5, 0.5, 300)]


@pytest.mark.parametrize("skew", SKEWS, ids=str)
async def test_another_clock(place: ProvisionerNamespace, skew: timedelta) -> None:
    """A response is lost; coderd's clock differs from that of the operator."""
    state = place.plane.coderd.state
    state.now = lambda: place.clock() + skew
    state.remove_licenses()
    state.install_license()
    state.set(unanswered="POST")
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "Failed")
        await operator.wait_idle()
        state.set(unanswered="")
        place.clock.advance(seconds=30)
        await operator.reconcile(place.key)
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
        assert list(place.keys) == ["build"]
        assert not await place.events("ProvisionerKeyNameTaken")
        await gone(place, operator)
        assert not place.keys


async def test_key_that_only_the_secret_identifies(place: ProvisionerNamespace) -> None:
    """Its ID is not recorded, and it is older than the request."""
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
    later = (place.clock() + timedelta(hours=1)).isoformat()
    status = {"provisionerKeyID": None, "keyRequested": later}
    await place.delete(PROVISIONER, "build")
    await place.client.merge(PROVISIONER, place.key, {"status": status}, "status")
    async with place.operator() as operator:

        async def check() -> bool:
            return await place.find(PROVISIONER, "build") is None

        await eventually(check)
        await operator.wait_idle()
        assert not place.keys
        assert not await place.events("ProvisionerKeyLeaked")


async def test_build_without_keys(place: ProvisionerNamespace) -> None:
    """The key is left in coderd, and an event names it: another build may have it again."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        refuse(place, no_route, "GET")
        await gone(place, operator)
        assert set(place.keys) == {"build"}
        [event] = await place.events("ProvisionerKeyLeaked")
        assert "key build in organization default of CoderControlPlane demo" in event["note"]


async def test_list_that_omits_the_key(place: ProvisionerNamespace) -> None:
    """coderd has the key by its secret: it is kept, and deleted with the object."""
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        omitted = 0

        def omit(request: web.Request) -> None:
            nonlocal omitted
            if request.method == "GET" and request.path.endswith("/provisionerkeys"):
                omitted += 1
                raise web.HTTPOk(text="[]", content_type="application/json")

        place.plane.before = omit
        place.clock.advance(minutes=3)
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await operator.reconcile(place.key)
        assert omitted
        found = await place.get()
        assert found.status.provisioner_key_id == before.status.provisioner_key_id
        assert not found.status.retiring_keys
        forward(place)
        await gone(place, operator)
        assert not place.keys
