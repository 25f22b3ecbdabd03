"""Steps that need no coderd do not wait for it: pods follow the spec, and deleted children are created again."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.coderd_server import User
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.provisioners import ProvisionerNamespace

SECRET_NAME = "build-provisioner-key"
Away = Callable[[ProvisionerNamespace], Awaitable[None]]


async def fail(place: ProvisionerNamespace) -> None:
    place.plane.coderd.state.set(failing=True)


async def cut_connections(place: ProvisionerNamespace) -> None:
    place.plane.coderd.state.set(cut=True)


async def limit_rate(place: ProvisionerNamespace) -> None:
    place.plane.coderd.state.set(rate_limited=True)


async def lose_credentials(place: ProvisionerNamespace) -> None:
    await place.set_plane_status("demo", operatorAccessReady=False)


async def lose_url(place: ProvisionerNamespace) -> None:
    await place.set_plane_status("demo", url="")


AWAY: dict[str, Away] = {
    "coderd fails": fail,
    "coderd does not answer": cut_connections,
    "coderd limits the rate": limit_rate,
    "no credentials": lose_credentials,
    "no URL": lose_url,
}


async def replicas(place: ProvisionerNamespace) -> int:
    number: int = (await place.deployment()).manifest["spec"]["replicas"]
    return number


@pytest.mark.parametrize("why", AWAY)
async def test_pods_follow_the_spec(place: ProvisionerNamespace, why: str) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        keys, secret = dict(place.keys), await place.stored()
        place.clock.advance(minutes=3)
        await AWAY[why](place)
        await operator.reconcile(place.key)
        await place.change(replicas=4)
        await eventually(lambda: scaled(place, 4))
        before = (await place.deployment()).manifest["spec"]["template"]
        for kind, name in (
            (DEPLOYMENT, "provisioner-build"),
            (SERVICE_ACCOUNT, "build-provisioner"),
            (ROLE, "provisioner-build"),
        ):
            await place.delete(kind, name)
            await eventually(lambda: place.find(kind, name))  # noqa: B023 - awaited at once
        assert (await place.deployment()).manifest["spec"]["template"] == before
        await place.change(replicas=0, key={"secretName": "elsewhere"})
        await eventually(lambda: scaled(place, 0))
        assert await place.stored("elsewhere", "key") == secret
        assert (await place.conditions())["Ready"][0] != "True"
        await operator.wait_idle()
        writes = operator.write_requests()
        await operator.reconcile(place.key)
        assert operator.write_requests() == writes
    assert place.keys == keys


async def scaled(place: ProvisionerNamespace, number: int) -> bool:
    return await replicas(place) == number


async def start_rotation(place: ProvisionerNamespace) -> None:
    """Record a key with other tags that cannot be created."""

    def refuse(request: web.Request) -> None:
        if request.method == "POST" and request.path.endswith("/provisionerkeys"):
            raise web.HTTPBadGateway(text="<html>bad gateway</html>", content_type="text/html")

    place.plane.before = refuse
    await place.set_plane_status("demo", **place.fresh("entitled"))
    await place.change(tags={"env": "gpu"})

    async def begun() -> bool:
        return not (await place.get()).status.provisioner_key_id

    await eventually(begun)


@pytest.mark.parametrize("deleted", [False, True])
async def test_pods_follow_the_spec_while_a_rotation_fails(place: ProvisionerNamespace, deleted: bool) -> None:
    """Pods use the previous key, which retires only when the new one exists."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        keys, before = dict(place.keys), await place.deployment()
        await start_rotation(place)
        if deleted:
            await operator.wait_idle()
            await place.delete(DEPLOYMENT, "provisioner-build")
            await eventually(lambda: place.find(DEPLOYMENT, "provisioner-build"))
        await place.change(replicas=4)
        await eventually(lambda: scaled(place, 4))
        after = await place.deployment()
        assert after.manifest["spec"]["template"] == before.manifest["spec"]["template"]
        await place.roll_out_daemons(ready=0)
        place.clock.advance(hours=1)
        await operator.reconcile(place.key)
        assert place.keys == keys
        place.plane.before = lambda request: None
        await operator.reconcile(place.key)
        await place.condition("ProvisionerKeyReady", "KeyReady")


async def test_unconfirmed_key_does_not_replace_a_working_key(place: ProvisionerNamespace) -> None:
    """The content of the Secret is not trusted."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.set(failing=True)
        place.clock.advance(minutes=3)
        before = await place.deployment()
        await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"data": {"key": "Z2FyYmFnZQ=="}})
        await place.change(replicas=4)
        await place.condition("ExternalProvisionersEntitled", "EntitlementsQueryFailed")
        await operator.reconcile(place.key)
        assert await place.deployment() == before


async def test_nothing_is_created_without_a_key(place: ProvisionerNamespace) -> None:
    place.plane.coderd.state.set(failing=True)
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "Failed", "Unknown")
        await operator.reconcile(place.key)
        assert await place.find(DEPLOYMENT, "provisioner-build") is None
        assert await place.find(SECRET, SECRET_NAME) is None


async def image(place: ProvisionerNamespace) -> Any:
    return (await place.deployment()).manifest["spec"]["template"]["spec"]["containers"][0]["image"]


async def runs(place: ProvisionerNamespace, wanted: str) -> bool:
    return bool(await image(place) == wanted)


async def test_image_follows_the_rollout_of_the_control_plane(place: ProvisionerNamespace) -> None:
    """coderd rejects a daemon that is newer than itself."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        assert await image(place) == "coder:v2.36.1"
        await place.client.merge(CONTROL_PLANE, Key(place.namespace, "demo"), {"spec": {"image": "coder:v2.37.0"}})
        await operator.reconcile(place.key)
        assert await image(place) == "coder:v2.36.1"
        await place.set_plane_status("demo", image=None)
        await operator.reconcile(place.key)
        assert await image(place) == "coder:v2.36.1"
        await place.set_plane_status("demo", image="coder:v2.37.0")
        await eventually(lambda: runs(place, "coder:v2.37.0"))
        await place.change(image="coder:mine")
        await eventually(lambda: runs(place, "coder:mine"))


async def test_unknown_image(place: ProvisionerNamespace) -> None:
    await place.set_plane_status("demo", image=None)
    async with place.operator() as operator:
        await place.make()
        condition = await place.condition("ControlPlaneReady", "ControlPlaneNotReady", "False")
        assert "CoderControlPlane demo to report status.image" in condition.message
        await operator.wait_idle()
        assert await place.find(DEPLOYMENT, "provisioner-build") is None
        await place.set_plane_status("demo", image="coder:v2.36.1")
        await place.ready(operator)


async def test_key_that_cannot_be_deleted(place: ProvisionerNamespace) -> None:
    """coderd hides the organization from a user who lost a role; it does not count as deleted."""
    state = place.plane.coderd.state
    user = User("builder", ("owner",))
    token = state.add_token(user)
    await place.put_secret("mine", token=token)
    async with place.operator() as operator:
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        await place.ready(operator)
        await place.annotate(rotate_key="now")
        await eventually(lambda: len(place.keys) == 2)
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
        state.add_token(replace(user, roles=("auditor",)), token)
        await place.roll_out_daemons()
        place.clock.advance(seconds=11)
        await operator.reconcile(place.key)
        [event] = await eventually(lambda: place.events("ProvisionerKeyNotDeleted"))
        assert "Cannot delete provisioner key build in organization default of CoderControlPlane demo" in event["note"]
        assert [key.name for key in (await place.get()).status.retiring_keys] == ["build"]
        assert len(place.keys) == 2
        state.add_token(user, token)
        await operator.reconcile(place.key)
        await eventually(lambda: "build" not in place.keys)


async def test_messages_of_true_conditions(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make(tags={"env": "gpu", "arch": "arm", "dropped": ""}, replicas=2)
        found = await place.ready(operator, ready=2)
    messages = {each.type: each.message for each in found.status.conditions if each.status == "True"}
    assert messages["ProvisionerKeyReady"] == "Key build of organization default has the tags arch=arm, env=gpu"
    assert messages["ProvisionerKeySecretReady"] == "Secret build-provisioner-key has the provisioner key under key key"
    assert messages["DaemonsConnected"] == "2 of 2 daemons are connected (v2.36.1)"
    assert messages["ExternalProvisionersEntitled"] == "The license covers external provisioners"
    assert messages["OperatorAccessReady"] == "The operator has a token for CoderControlPlane demo"
    assert messages["ControlPlaneReady"] == "CoderControlPlane demo has a URL and an image"
