"""A provisioner needs a control plane, credentials for it, and a license that covers provisioners."""

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.coderd_server import User
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from tests.support import eventually
from tests.support.api import Api, reply
from tests.support.provisioners import ProvisionerNamespace

ENTITLED = "ExternalProvisionersEntitled"
ENTITLEMENTS = "/api/v2/entitlements"


async def untouched(place: ProvisionerNamespace) -> bool:
    """Nothing was created, and there is no finalizer."""
    found = await place.get()
    assert not place.keys
    assert not found.metadata.finalizers
    assert await place.find(DEPLOYMENT, "provisioner-build") is None
    assert found.status.phase == "Pending"
    return True


async def test_control_plane_missing(place: ProvisionerNamespace) -> None:
    async with place.operator():
        await place.make(controlPlaneRef={"name": "later"})
        missing = "CoderControlPlane later does not exist; create it or correct controlPlaneRef.name"
        await place.message("ControlPlaneReady", "ControlPlaneMissing", missing)
        await place.condition("Stalled", "ControlPlaneMissing", "True")
        assert await untouched(place)
        place.planes["later"] = place.plane
        await place.make_plane("later", url="")
        await place.condition("ControlPlaneReady", "ControlPlaneNotReady", "False")
        await place.condition("Stalled", "Progressing", "False")
        assert await untouched(place)


async def test_control_plane_not_ready(place: ProvisionerNamespace) -> None:
    """The watch triggers a reconcile when it changes."""
    await place.set_plane_status("demo", url="")
    async with place.operator():
        await place.make()
        await place.condition("ControlPlaneReady", "ControlPlaneNotReady", "False")
        assert await untouched(place)
        await place.set_plane_status("demo", url=f"http://demo.{place.namespace}.svc.cluster.local:80")
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")


async def disable_access(place: ProvisionerNamespace, disabled: bool) -> None:
    await place.client.merge(CONTROL_PLANE, place.key_of("demo"), {"spec": {"operatorAccess": {"disabled": disabled}}})


async def test_operator_access_not_ready(place: ProvisionerNamespace) -> None:
    await place.set_plane_status("demo", operatorAccessReady=False)
    async with place.operator():
        await place.make()
        waiting = "Waiting for operator access of CoderControlPlane demo; see its condition OperatorAccessReady"
        await place.message("OperatorAccessReady", "OperatorAccessNotReady", waiting)
        await place.condition("Stalled", "Progressing", "False")
        assert await untouched(place)
        await disable_access(place, True)
        disabled = "Operator access of CoderControlPlane demo is disabled; enable it or set bootstrap"
        await place.message("OperatorAccessReady", "OperatorAccessNotReady", disabled)
        await place.condition("Stalled", "OperatorAccessNotReady", "True")
        await disable_access(place, False)
        await place.set_plane_status("demo", operatorAccessReady=True)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
        await place.condition("OperatorAccessReady", "OperatorAccessReady", "True")


async def test_bootstrap(place: ProvisionerNamespace) -> None:
    """Given credentials need no operator access; a Secret that is created later triggers a reconcile."""
    await place.set_plane_status("demo", operatorAccessReady=False, operatorTokenSecretRef=None)
    await disable_access(place, True)
    async with place.operator() as operator:
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        missing = "Secret mine does not exist; create it with key token"
        await place.message("BootstrapSecretReady", "SecretMissing", missing)
        await place.condition("Stalled", "SecretMissing", "True")
        assert await untouched(place)
        await place.put_secret("mine", password=place.plane.token)
        await place.message("BootstrapSecretReady", "SecretMissing", "Secret mine has no value for key token; set it")
        assert await untouched(place)
        await place.put_secret("mine", token=place.plane.token)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
        await place.ready(operator)
        assert (await place.conditions())["BootstrapSecretReady"] == ("True", "SecretReady")
        assert "OperatorAccessReady" not in await place.conditions()


async def test_rejected_token(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.put_secret("mine", token="aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb")
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        rejected = await place.condition("BootstrapSecretReady", "TokenRejected", "False")
        advice = "CoderControlPlane demo rejects the token in Secret mine; put a valid token under key token: "
        assert rejected.message.startswith(advice)
        await place.condition("Stalled", "TokenRejected", "True")
        await place.put_secret("mine", token=place.plane.token)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
        await operator.wait_idle()
        place.plane.coderd.state.revoke_token(place.plane.token)
        await place.change(bootstrap=None)
        place.clock.advance(minutes=3)
        await operator.reconcile(place.key)
        await place.condition("OperatorAccessReady", "TokenRejected", "False")
        await place.condition("Stalled", "Progressing", "False")


async def test_token_without_permission(place: ProvisionerNamespace) -> None:
    """coderd returns 404 for keys to users who cannot manage them."""
    member = place.plane.coderd.state.add_token(User("member"))
    await place.put_secret("mine", token=member)
    async with place.operator():
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        condition = await place.condition("ProvisionerKeyReady", "Forbidden", "False")
        assert "Organization Admin" in condition.message
        await place.condition("Stalled", "Forbidden", "True")


async def test_token_that_can_read_but_not_create_keys(place: ProvisionerNamespace) -> None:
    """coderd returns an internal error."""
    await place.put_secret("mine", token=place.plane.coderd.state.add_token(User("reader", ("auditor",))))
    async with place.operator() as operator:
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        condition = await place.condition("ProvisionerKeyReady", "Forbidden", "False")
        user = "The user of the token in Secret mine"
        assert condition.message.startswith(f"{user} cannot manage provisioner keys of organization default; assign")
        assert "Organization Admin" in condition.message
        await place.condition("Stalled", "Forbidden", "True")
        await operator.wait_idle()
        assert 20 < (operator.requeue_after() or 0) <= 30
        assert not place.keys


@pytest.mark.parametrize("known", ["entitled", "grace_period"])
async def test_fast_path(place: ProvisionerNamespace, known: str) -> None:
    """A recent status of the control plane is used without a request."""
    await place.set_plane_status("demo", **place.fresh(known))
    async with place.operator():
        await place.make()
        await place.condition(ENTITLED, "Entitled", "True")
        await place.condition("ProvisionerKeyReady", "KeyReady")
    assert place.plane.request_count("GET", ENTITLEMENTS) == 0


async def test_fast_path_not_entitled(place: ProvisionerNamespace) -> None:
    await place.set_plane_status("demo", **place.fresh("not_entitled"))
    async with place.operator() as operator:
        await place.make()
        await place.condition(ENTITLED, "NotEntitled", "False")
        await place.condition("Stalled", "NotEntitled", "True")
        await operator.wait_idle()
        assert await untouched(place)
        assert 60 < (operator.requeue_after() or 0) <= 120
        assert place.plane.request_count() == 0
        [event] = await eventually(lambda: place.events("NotEntitled"))
        assert event["type"] == "Warning"
        writes = operator.write_requests()
        await operator.reconcile(place.key)
        assert operator.write_requests() == writes
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")


@pytest.mark.parametrize("entitled", [True, False])
async def test_stale_fast_path(place: ProvisionerNamespace, entitled: bool) -> None:
    """A status that is two minutes old is not used, whatever it says."""
    await place.set_plane_status("demo", **place.fresh("not_entitled" if entitled else "entitled"))
    if not entitled:
        place.plane.coderd.state.remove_licenses()
    place.clock.advance(minutes=2)
    async with place.operator():
        await place.make()
        await place.condition(ENTITLED, "Entitled" if entitled else "NotEntitled")
    assert place.plane.request_count("GET", ENTITLEMENTS) >= 1


@pytest.mark.parametrize("known", ["", "unknown"])
async def test_fallback(place: ProvisionerNamespace, known: str) -> None:
    """If the status does not have the entitlement, coderd is queried."""
    await place.set_plane_status("demo", **place.fresh(known or "unknown"))
    if not known:
        await place.set_plane_status("demo", externalProvisionerDaemonsEntitlement=None, entitlementsLastChecked=None)
    place.plane.coderd.state.remove_licenses()
    async with place.operator() as operator:
        await place.make()
        await place.condition(ENTITLED, "NotEntitled", "False")
        assert await untouched(place)
        place.plane.coderd.state.install_license()
        place.clock.advance(minutes=2)
        await operator.reconcile(place.key)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")


@pytest.mark.parametrize("switch", ["failing", "cut", "sign_in_page"])
async def test_query_fails(place: ProvisionerNamespace, switch: str) -> None:
    await place.set_plane_status("demo", **place.fresh("unknown"))
    place.plane.coderd.state.set(**{switch: True})
    async with place.operator() as operator:
        await place.make()
        await place.condition(ENTITLED, "EntitlementsQueryFailed", "False")
        await place.condition("Stalled", "Progressing", "False")
        await operator.wait_idle()
        assert 0 < (operator.requeue_after() or 0) <= 30
        assert await untouched(place)
        place.plane.coderd.state.set(**{switch: False})
        place.clock.advance(seconds=30)
        await operator.reconcile(place.key)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")


@pytest.mark.parametrize("switches", [{}, {"failing": True}, {"rate_limited": True}], ids=str)
async def test_coderd_is_not_queried_in_every_reconcile(place: ProvisionerNamespace, switches: dict[str, bool]) -> None:
    """The status of the control plane is too old; one query serves all its provisioners."""
    place.clock.advance(minutes=5)
    place.plane.coderd.state.set(**switches)
    names = [f"build-{number}" for number in range(5)]
    async with place.operator() as operator:
        for name in names:
            await place.make(name)
        await eventually(lambda: place.plane.request_count("GET", ENTITLEMENTS))
        for _ in range(5):
            await operator.reconcile(*map(place.key_of, names))
        assert place.plane.request_count("GET", ENTITLEMENTS) == 1
        place.clock.advance(minutes=2)
        await operator.reconcile(*map(place.key_of, names))
        assert place.plane.request_count("GET", ENTITLEMENTS) == 2


async def test_query_is_forbidden(place: ProvisionerNamespace) -> None:
    """By a proxy in front of coderd, which itself permits it to every user."""
    await place.set_plane_status("demo", **place.fresh("unknown"))
    host = Endpoint(f"demo.{place.namespace}.svc.cluster.local", 80)
    async with (
        Api(reply({"message": "Forbidden."}, 403)) as api,
        place.operator(connect_to={host: Endpoint("127.0.0.1", api.port)}) as operator,
    ):
        await place.make()
        condition = await place.condition(ENTITLED, "Forbidden", "False")
        assert condition.message == "The operator's user of CoderControlPlane demo cannot read entitlements: Forbidden"
        await place.condition("Ready", "Forbidden", "False")
        await place.condition("Stalled", "Progressing", "False")
        await operator.wait_idle()
        assert 0 < (operator.requeue_after() or 0) <= 30
        assert [seen.path for seen in api.requests] == [ENTITLEMENTS]
        assert await untouched(place)
    async with place.operator():
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")


async def test_status_is_entitled_and_coderd_is_not(place: ProvisionerNamespace) -> None:
    """The license expired after the last check of the control plane."""
    place.plane.coderd.state.remove_licenses()
    async with place.operator() as operator:
        await place.make()
        await place.condition(ENTITLED, "NotEntitled", "False")
        await place.condition("Stalled", "NotEntitled", "True")
        await operator.wait_idle()
        assert 60 < (operator.requeue_after() or 0) <= 120
        assert not place.keys


async def test_daemons_keep_running_without_a_license(place: ProvisionerNamespace) -> None:
    """No key, Deployment or Secret is changed."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        before = await place.deployment(), await place.find(SECRET, "build-provisioner-key"), dict(place.keys)
        place.plane.coderd.state.remove_licenses()
        await place.set_plane_status("demo", **place.fresh("not_entitled"))
        await place.condition(ENTITLED, "NotEntitled", "False")
        await place.change(replicas=5, tags={"env": "gpu"})
        await place.condition(ENTITLED, "NotEntitled", "False")
        await operator.reconcile(place.key)
        after = await place.deployment(), await place.find(SECRET, "build-provisioner-key"), dict(place.keys)
        assert after == before
        assert (await place.get()).status.ready_replicas == 1
        place.plane.coderd.state.install_license()
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await eventually(lambda: place.keys.get("build-0002"))
