"""Who may pass: a control plane that is there, credentials for it, and a license that covers provisioners."""

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.coderd_server import User
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.api import Api, say
from tests.support.provisioners import Yard

ENTITLED = "ExternalProvisionersEntitled"
ENTITLEMENTS = "/api/v2/entitlements"


async def untouched(place: Yard) -> bool:
    """Nothing was made, and nothing needs a finalizer."""
    found = await place.get()
    assert not place.keys
    assert not found.metadata.finalizers
    assert await place.find(DEPLOYMENT, "provisioner-build") is None
    assert found.status.phase == "Pending"
    return True


async def test_control_plane_missing(place: Yard) -> None:
    async with place.operator():
        await place.make(controlPlaneRef={"name": "later"})
        told = await place.told("ControlPlaneReady", "ControlPlaneMissing", "False")
        assert "later" in told.message
        await place.told("Stalled", "ControlPlaneMissing", "True")
        assert await untouched(place)
        place.planes["later"] = place.plane
        await place.make_plane("later", url="")
        await place.told("ControlPlaneReady", "ControlPlaneNotReady", "False")
        await place.told("Stalled", "Progressing", "False")
        assert await untouched(place)


async def test_control_plane_not_ready(place: Yard) -> None:
    """Its change is noticed at once."""
    await place.say("demo", url="")
    async with place.operator():
        await place.make()
        await place.told("ControlPlaneReady", "ControlPlaneNotReady", "False")
        assert await untouched(place)
        await place.say("demo", url=f"http://demo.{place.namespace}.svc.cluster.local:80")
        await place.told("ProvisionerKeyReady", "KeyReady", "True")


async def test_operator_access_not_ready(place: Yard) -> None:
    await place.say("demo", operatorAccessReady=False)
    async with place.operator():
        await place.make()
        await place.told("OperatorAccessReady", "OperatorAccessNotReady", "False")
        assert await untouched(place)
        await place.say("demo", operatorAccessReady=True)
        await place.told("ProvisionerKeyReady", "KeyReady", "True")
        await place.told("OperatorAccessReady", "OperatorAccessReady", "True")


async def test_bootstrap(place: Yard) -> None:
    """Credentials of one's own need no operator access; a Secret that comes later is noticed."""
    await place.say("demo", operatorAccessReady=False, operatorTokenSecretRef=None)
    await place.client.merge(
        CONTROL_PLANE, Key(place.namespace, "demo"), {"spec": {"operatorAccess": {"disabled": True}}}
    )
    async with place.operator() as operator:
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        told = await place.told("BootstrapSecretReady", "SecretMissing", "False")
        assert "mine" in told.message
        await place.told("Stalled", "SecretMissing", "True")
        assert await untouched(place)
        await place.put_secret("mine", token=place.plane.token)
        await place.told("ProvisionerKeyReady", "KeyReady", "True")
        await place.ready(operator)
        assert (await place.conditions())["BootstrapSecretReady"] == ("True", "SecretReady")
        assert "OperatorAccessReady" not in await place.conditions()


async def test_rejected_token(place: Yard) -> None:
    async with place.operator() as operator:
        await place.put_secret("mine", token="aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb")
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        await place.told("BootstrapSecretReady", "TokenRejected", "False")
        await place.told("Stalled", "TokenRejected", "True")
        await place.put_secret("mine", token=place.plane.token)
        await place.told("ProvisionerKeyReady", "KeyReady", "True")
        await operator.settle()
        place.plane.coderd.state.revoke_token(place.plane.token)
        await place.change(bootstrap=None)
        place.clock.advance(minutes=3)
        await operator.look(place.key())
        await place.told("OperatorAccessReady", "TokenRejected", "False")
        await place.told("Stalled", "Progressing", "False")


async def test_token_without_rights(place: Yard) -> None:
    """coderd hides the keys from those who may not manage them."""
    member = place.plane.coderd.state.add_token(User("member"))
    await place.put_secret("mine", token=member)
    async with place.operator():
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        told = await place.told("ProvisionerKeyReady", "Forbidden", "False")
        assert "Organization Admin" in told.message
        await place.told("Stalled", "Forbidden", "True")


async def test_token_that_may_read_keys_and_not_make_them(place: Yard) -> None:
    """coderd answers as if it had an error of its own."""
    await place.put_secret("mine", token=place.plane.coderd.state.add_token(User("reader", ("auditor",))))
    async with place.operator() as operator:
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        told = await place.told("ProvisionerKeyReady", "Forbidden", "False")
        assert "organization default" in told.message
        assert "Organization Admin" in told.message
        await place.told("Stalled", "Forbidden", "True")
        await operator.settle()
        assert 20 < (operator.look_again(place.key()) or 0) <= 30
        assert not place.keys


@pytest.mark.parametrize("known", ["entitled", "grace_period"])
async def test_fast_path(place: Yard, known: str) -> None:
    """What the control plane has just found out is not asked again."""
    await place.say("demo", **place.fresh(known))
    async with place.operator():
        await place.make()
        await place.told(ENTITLED, "Entitled", "True")
        await place.told("ProvisionerKeyReady", "KeyReady")
    assert place.plane.asked("GET", ENTITLEMENTS) == 0


async def test_fast_path_says_no(place: Yard) -> None:
    await place.say("demo", **place.fresh("not_entitled"))
    async with place.operator() as operator:
        await place.make()
        await place.told(ENTITLED, "NotEntitled", "False")
        await place.told("Stalled", "NotEntitled", "True")
        await operator.settle()
        assert await untouched(place)
        assert 60 < (operator.look_again(place.key()) or 0) <= 120
        assert place.plane.asked() == 0
        [event] = await eventually(lambda: place.events("NotEntitled"))
        assert event["type"] == "Warning"
        writes = operator.writes()
        await operator.look(place.key())
        assert operator.writes() == writes
        await place.say("demo", **place.fresh("entitled"))
        await place.told("ProvisionerKeyReady", "KeyReady", "True")


@pytest.mark.parametrize("entitled", [True, False])
async def test_stale_fast_path(place: Yard, entitled: bool) -> None:
    """What the control plane said two minutes ago counts for nothing, either way."""
    await place.say("demo", **place.fresh("not_entitled" if entitled else "entitled"))
    if not entitled:
        place.plane.coderd.state.remove_licenses()
    place.clock.advance(minutes=2)
    async with place.operator():
        await place.make()
        await place.told(ENTITLED, "Entitled" if entitled else "NotEntitled")
    assert place.plane.asked("GET", ENTITLEMENTS) >= 1


@pytest.mark.parametrize("known", ["", "unknown"])
async def test_fallback(place: Yard, known: str) -> None:
    """Where the control plane does not know, coderd does."""
    await place.say("demo", **place.fresh(known or "unknown"))
    if not known:
        await place.say("demo", externalProvisionerDaemonsEntitlement=None, entitlementsLastChecked=None)
    place.plane.coderd.state.remove_licenses()
    async with place.operator() as operator:
        await place.make()
        await place.told(ENTITLED, "NotEntitled", "False")
        assert await untouched(place)
        place.plane.coderd.state.install_license()
        await operator.look(place.key())
        await place.told("ProvisionerKeyReady", "KeyReady", "True")


@pytest.mark.parametrize("switch", ["failing", "cut", "sign_in_page"])
async def test_question_fails(place: Yard, switch: str) -> None:
    await place.say("demo", **place.fresh("unknown"))
    place.plane.coderd.state.set(**{switch: True})
    async with place.operator() as operator:
        await place.make()
        await place.told(ENTITLED, "EntitlementsQueryFailed", "False")
        await place.told("Stalled", "Progressing", "False")
        await operator.settle()
        assert 0 < (operator.look_again(place.key()) or 0) <= 30
        assert await untouched(place)
        place.plane.coderd.state.set(**{switch: False})
        await operator.look(place.key())
        await place.told("ProvisionerKeyReady", "KeyReady", "True")


async def test_question_is_forbidden(place: Yard) -> None:
    """By something before coderd, which itself tells everybody."""
    await place.say("demo", **place.fresh("unknown"))
    host = Endpoint(f"demo.{place.namespace}.svc.cluster.local", 80)
    async with (
        Api(say({"message": "Forbidden."}, 403)) as api,
        place.operator(connect_to={host: Endpoint("127.0.0.1", api.port)}) as operator,
    ):
        await place.make()
        told = await place.told(ENTITLED, "Forbidden", "False")
        assert told.message == "Forbidden."
        await place.told("Ready", "Forbidden", "False")
        await place.told("Stalled", "Progressing", "False")
        await operator.settle()
        assert 0 < (operator.look_again(place.key()) or 0) <= 30
        assert [seen.path for seen in api.requests] == [ENTITLEMENTS]
        assert await untouched(place)
    async with place.operator():
        await place.told("ProvisionerKeyReady", "KeyReady", "True")


async def test_entitled_says_the_status_but_not_coderd(place: Yard) -> None:
    """The license ended since the control plane looked."""
    place.plane.coderd.state.remove_licenses()
    async with place.operator() as operator:
        await place.make()
        await place.told(ENTITLED, "NotEntitled", "False")
        await place.told("Stalled", "NotEntitled", "True")
        await operator.settle()
        assert 60 < (operator.look_again(place.key()) or 0) <= 120
        assert not place.keys


async def test_daemons_outlive_the_licence(place: Yard) -> None:
    """What runs is left alone: no key, no Deployment, no Secret is touched."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        before = await place.deployment(), await place.find(SECRET, "build-provisioner-key"), dict(place.keys)
        place.plane.coderd.state.remove_licenses()
        await place.say("demo", **place.fresh("not_entitled"))
        await place.told(ENTITLED, "NotEntitled", "False")
        await place.change(replicas=5, tags={"env": "gpu"})
        await place.told(ENTITLED, "NotEntitled", "False")
        await operator.look(place.key())
        after = await place.deployment(), await place.find(SECRET, "build-provisioner-key"), dict(place.keys)
        assert after == before
        assert (await place.get()).status.ready_replicas == 1
        place.plane.coderd.state.install_license()
        await place.say("demo", **place.fresh("entitled"))
        await eventually(lambda: place.keys.get("build-0002"))
