"""The license of a control plane: in coderd once, whatever happens on the way."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.coderd.connections import Limits
from coder_k8s.controllers.controlplane.license import read
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import User, make_license
from coder_k8s.kube.kinds import SECRET
from tests.support import eventually
from tests.support.controlplanes import LICENSES, PlaneNamespace, plane_namespace
from tests.support.operators import Operator


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    async with prepared(cluster, operator_kubeconfig, namespace) as place:
        yield place


@asynccontextmanager
async def prepared(
    cluster: ClusterAccess, operator_kubeconfig: Path, namespace: str, version: str = "2.36.1"
) -> AsyncIterator[PlaneNamespace]:
    """A control plane with a token that works and a reference to a license; its pods are not ready yet."""
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, version=version) as place:
        await place.put_secret("given", token=place.coderd.state.token)
        await place.make(operatorAccess={"tokenSecretRef": {"name": "given"}}, licenseSecretRef={"name": "license"})
        yield place


def license(demo: PlaneNamespace, **claims: Any) -> str:
    return make_license(demo.clock(), **claims)


def posts(demo: PlaneNamespace) -> int:
    return demo.coderd.state.count("POST", LICENSES)


def digest(jwt: str) -> str:
    return hashlib.sha256(jwt.encode()).hexdigest()


async def put(demo: PlaneNamespace, jwt: str) -> None:
    await demo.put_secret("license", license=jwt)


async def applied(demo: PlaneNamespace, jwt: str) -> None:
    """Wait until the status says that this very license is in coderd."""

    async def check() -> bool:
        await demo.condition("LicenseApplied", "Applied", "True")
        return (await demo.get()).status.license_last_applied_hash == digest(jwt)

    await eventually(check)


async def test_it_waits_for_a_pod_and_is_uploaded_once(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.condition("LicenseApplied", "Pending", "False")
        assert (await demo.conditions())["Ready"][0] != "True"
        await operator.wait_idle()
        assert sum(demo.coderd.state.requests.values()) == 0
        await demo.roll_out()
        await applied(demo, jwt)
        await demo.condition("Ready", "AllPartsReady", "True")
        await demo.event("LicenseApplied")
        assert (await demo.get()).status.license_last_applied == demo.clock()
        for _ in range(5):
            await operator.later(minutes=3)
    for _ in range(3):
        async with demo.operator() as operator:
            await operator.reconcile()
    assert posts(demo) == 1
    assert [each.jwt for each in demo.coderd.state.licenses] == [jwt]


async def test_a_pause_between_pods_uploads_nothing(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator():
        await demo.roll_out()
        await applied(demo, jwt)
        await demo.roll_out(0)
        await demo.condition("LicenseApplied", "Pending", "False")
        await demo.roll_out()
        await applied(demo, jwt)
    assert posts(demo) == 1


async def test_others_may_write_to_the_object_meanwhile(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    demo.coderd.state.set(latency=0.2)
    async with demo.operator() as operator:
        await demo.roll_out()
        await eventually(lambda: posts(demo))
        note = {"metadata": {"annotations": {"example.com/note": "while the license is on its way"}}}
        await demo.client.merge(CONTROL_PLANE, demo.key, note)
        await applied(demo, jwt)
        await operator.wait_idle()
    assert posts(demo) == 1


async def test_a_crash_after_the_upload_uploads_nothing_again(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await operator.wait_idle()
        demo.coderd.state.set(latency=0.2)
        await demo.roll_out()
        await eventually(lambda: demo.coderd.state.licenses)
        operator.cancel_workers()
    demo.coderd.state.set(latency=0)
    assert (await demo.get()).status.license_last_applied_hash == ""
    async with demo.operator():
        await applied(demo, jwt)
    assert posts(demo) == 1


async def test_a_status_that_was_lost_uploads_nothing_again(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        await operator.wait_idle()
        lost = {"status": {"licenseLastAppliedHash": None, "licenseLastApplied": None}}
        await demo.client.merge(CONTROL_PLANE, demo.key, lost, "status")
        await applied(demo, jwt)
    assert posts(demo) == 1


async def test_it_is_rotated_back_and_forth(demo: PlaneNamespace) -> None:
    first, second = license(demo), license(demo, feature_set="enterprise")
    await put(demo, first)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, first)
        await put(demo, second)
        await applied(demo, second)
        assert posts(demo) == 2
        await put(demo, first)
        await applied(demo, first)
        await operator.wait_idle()
    assert posts(demo) == 2
    assert {each.jwt for each in demo.coderd.state.licenses} == {first, second}


async def test_a_duplicate_counts_as_applied(demo: PlaneNamespace) -> None:
    """Somebody else uploads the same license between our look and our upload."""
    jwt = license(demo)
    await put(demo, jwt)
    demo.coderd.state.set(latency=0.2)
    async with demo.operator() as operator:
        await demo.roll_out()
        await eventually(lambda: posts(demo))
        demo.coderd.state.add_license(jwt)
        await applied(demo, jwt)
        await operator.wait_idle()
        assert await demo.events("LicenseApplied") == []
    assert posts(demo) == 1


async def test_coderd_that_lost_it_gets_it_again(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        demo.coderd.state.remove_licenses()
        await operator.later(seconds=119)
        assert posts(demo) == 1, "it is not asked at every look"
        await operator.later(seconds=2)
        assert posts(demo) == 2
        plane = await demo.get()
        assert plane.status.license_last_applied == demo.clock()
        assert plane.status.license_tier == "premium", "what it is worth is asked at once"


async def test_whitespace_around_it_does_not_count(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, f"\n  {jwt}\r\n")
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        await put(demo, jwt)
        await operator.reconcile()
        await applied(demo, jwt)
    assert posts(demo) == 1
    assert [each.jwt for each in demo.coderd.state.licenses] == [jwt]


@pytest.mark.parametrize("content", [None, {}, {"other": "x"}, {"license": ""}, {"license": " \n"}])
async def test_it_waits_for_its_secret(demo: PlaneNamespace, content: dict[str, str] | None) -> None:
    if content is not None:
        await demo.put_secret("license", **content)
    async with demo.operator():
        await demo.roll_out()
        condition = await demo.condition("LicenseApplied", "SecretMissing", "False")
        assert condition.message == "Secret license has no license under key license"
        await demo.condition("Stalled", "SecretMissing", "True")
        await demo.condition("EntitlementsKnown", "Checked", "True")
        assert posts(demo) == 0
        jwt = license(demo)
        await put(demo, jwt)
        await applied(demo, jwt)
        await demo.condition("Ready", "AllPartsReady", "True")


async def test_a_secret_that_goes_is_told(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator():
        await demo.roll_out()
        await applied(demo, jwt)
        await demo.delete(SECRET, "license")
        await demo.condition("LicenseApplied", "SecretMissing", "False")
        await put(demo, jwt)
        await applied(demo, jwt)
    assert posts(demo) == 1


@pytest.mark.parametrize("content", ["garbage", "a.b.c", "a.e30.c", "\x00", "é.é.é"])
async def test_what_coderd_refuses_is_tried_again_after_an_hour(demo: PlaneNamespace, content: str) -> None:
    await put(demo, content)
    async with demo.operator() as operator:
        await demo.roll_out()
        condition = await demo.condition("LicenseApplied", "LicenseInvalid", "False")
        for part in (
            "Invalid license: ",
            "Secret license",
            digest(content.strip())[:12],
            demo.coderd.state.deployment_id,
        ):
            assert part in condition.message
        await demo.condition("Stalled", "LicenseInvalid", "True")
        await demo.event("LicenseInvalid")
        for _ in range(11):
            await operator.later(minutes=5)
        assert (await demo.condition("LicenseApplied", "LicenseInvalid")) == condition
        assert posts(demo) == 1
        await operator.later(minutes=6)
        assert posts(demo) == 2
        for _ in range(11):
            await operator.later(minutes=5)
        assert posts(demo) == 2
        assert (await demo.condition("LicenseApplied", "LicenseInvalid")) == condition
        assert len(await demo.events("LicenseInvalid")) == 1, "nothing new happened"
    async with demo.operator() as operator:
        await operator.reconcile()
        assert posts(demo) == 2, "the status remembers it through a restart"
        jwt = license(demo)
        await put(demo, jwt)
        await applied(demo, jwt)
        await demo.condition("Ready", "AllPartsReady", "True")
        assert posts(demo) == 3


async def test_another_bad_one_is_tried(demo: PlaneNamespace) -> None:
    await put(demo, "garbage")
    async with demo.operator() as operator:
        await demo.roll_out()
        first = await demo.condition("LicenseApplied", "LicenseInvalid", "False")
        await put(demo, "rubbish")
        await eventually(lambda: posts(demo) == 2)
        await operator.wait_idle()
        assert (await demo.condition("LicenseApplied", "LicenseInvalid")).message != first.message


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("change", ["deployment", "version"])
async def test_another_coderd_is_offered_what_the_last_one_refused(
    demo: PlaneNamespace, change: str, restarted: bool
) -> None:
    """As when a database is restored, or coderd upgraded."""
    state = demo.coderd.state
    jwt = license(demo, deployment_ids=["restored"] if change == "deployment" else [])
    await put(demo, jwt if change == "deployment" else "garbage")
    async with demo.operator() as operator:
        await demo.roll_out()
        before = await demo.condition("LicenseApplied", "LicenseInvalid", "False")
        await operator.wait_idle()
        if not restarted:
            await another(demo, change)
            await operator.later(seconds=121)
            await offered(demo, change, before.message, jwt)
    if restarted:
        await another(demo, change)
        async with demo.operator():
            await offered(demo, change, before.message, jwt)
    assert posts(demo) == 2
    assert [each.jwt for each in state.licenses] == ([jwt] if change == "deployment" else [])


async def another(demo: PlaneNamespace, change: str) -> None:
    if change == "deployment":
        demo.coderd.state.deployment_id = "restored"
    else:
        demo.coderd.state.version = "2.30.0"


async def offered(demo: PlaneNamespace, change: str, before: str, jwt: str) -> None:
    if change == "deployment":
        await applied(demo, jwt)
        return

    async def told_again() -> bool:
        message = (await demo.condition("LicenseApplied", "LicenseInvalid")).message
        return message != before and "v2.30.0" in message

    await eventually(told_again)


async def test_what_holds_is_said(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        await operator.wait_idle()
        said = (await demo.condition("LicenseApplied", "Applied")).message
        assert said == "The license of Secret license is in Coder and expires on 2027-03-01"
        said = (await demo.condition("EntitlementsKnown", "Checked", "True")).message
        assert said == "License tier premium; external provisioners are entitled"
        said = (await demo.condition("OperatorAccessReady", "TokenReady", "True")).message
        assert said == f"Coder accepts the token in Secret given, of user {demo.coderd.state.owner.username}"
        writes = operator.write_requests()
        await operator.reconcile()
        assert operator.write_requests() == writes
    async with demo.operator() as operator:
        await operator.wait_idle()
        assert operator.writes() == 0


async def test_nothing_is_waited_for_without_pods(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        await demo.condition("Ready", "AllPartsReady", "True")
        await demo.change(replicas=0)
        await demo.condition("Available", "RolloutInProgress", "True")
        demo.coderd.state.set(rate_limited=True)  # as a pod that stops may refuse
        await operator.later(minutes=3)
        await demo.roll_out(0)
        await demo.condition("Ready", "ScaledToZero", "True")
        for condition in ("OperatorAccessReady", "LicenseApplied", "EntitlementsKnown"):
            await demo.condition(condition, "ScaledToZero", "True")
        status = (await demo.get()).status
        assert (status.license_tier, status.license_last_applied_hash) == ("premium", digest(jwt))
        asked = sum(demo.coderd.state.requests.values())
        await operator.later(minutes=61)
        assert sum(demo.coderd.state.requests.values()) == asked
        demo.coderd.state.set(rate_limited=False)
        await demo.change(replicas=1)
        await demo.condition("Available", "NoReplicasReady", "False")
        await demo.roll_out()
        await demo.condition("Ready", "AllPartsReady", "True")
    assert posts(demo) == 1


async def test_a_build_without_licences_is_not_asked_in_a_loop(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> None:
    async with prepared(cluster, operator_kubeconfig, namespace, version="agpl") as demo, demo.operator() as operator:
        await put(demo, license(demo))
        await demo.roll_out()
        await demo.condition("LicenseApplied", "NotSupported", "False")
        await demo.condition("Stalled", "NotSupported", "True")
        await demo.condition("EntitlementsKnown", "NotSupported", "False")
        status = (await demo.get()).status
        assert (status.version, status.license_tier) == ("v2.30.0", "none")
        assert status.external_provisioner_daemons_entitlement == "not_entitled"
        await operator.wait_idle()
        asked = sum(demo.coderd.state.requests.values())
        for _ in range(9):
            await operator.later(minutes=1)
        assert sum(demo.coderd.state.requests.values()) == asked
        assert await demo.condition("LicenseApplied", "NotSupported")
        assert await demo.condition("EntitlementsKnown", "NotSupported")
        await operator.later(minutes=2)
        assert sum(demo.coderd.state.requests.values()) > asked


@asynccontextmanager
async def in_trouble(demo: PlaneNamespace, **switches: Any) -> AsyncIterator[Operator]:
    """The token works, then something is wrong when the license is to be uploaded."""
    async with demo.operator(limits=Limits(total=0.5)) as operator:
        await demo.roll_out()
        await demo.condition("LicenseApplied", "SecretMissing")
        await operator.wait_idle()
        demo.coderd.state.set(**switches)
        yield operator


@pytest.mark.parametrize(
    ("switches", "said", "patience"),
    [
        ({"failing": True}, "HTTP 500", 30),
        ({"cut": True}, "", 30),
        ({"latency": 2}, "no response within", 30),
        ({"database_down": True}, "HTTP 500", 30),
        ({"rate_limited": True}, "rate limited", 60),
    ],
)
async def test_trouble_is_told_and_tried_again(
    demo: PlaneNamespace, switches: dict[str, Any], said: str, patience: float
) -> None:
    jwt = license(demo)
    async with in_trouble(demo, **switches) as operator:
        await put(demo, jwt)
        condition = await demo.condition("LicenseApplied", "Error", "False")
        assert said in condition.message
        assert (await demo.conditions())["Stalled"][0] == "False"
        await operator.wait_idle()
        asked = sum(demo.coderd.state.requests.values())
        await operator.later(seconds=patience - 1)
        assert sum(demo.coderd.state.requests.values()) == asked
        demo.coderd.state.set(failing=False, cut=False, latency=0, database_down=False, rate_limited=False)
        await operator.later(seconds=2)
        await applied(demo, jwt)
    assert posts(demo) == 1


async def test_a_dead_token_is_told(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    async with in_trouble(demo) as operator:
        demo.coderd.state.revoke_token(demo.coderd.state.token)
        asked = sum(demo.coderd.state.requests.values())
        await put(demo, jwt)
        await eventually(lambda: sum(demo.coderd.state.requests.values()) > asked)
        await operator.reconcile()
        await demo.condition("OperatorAccessReady", "TokenRejected", "False")
        await demo.put_secret("given", token=demo.coderd.state.add_token(demo.coderd.state.owner))
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await operator.later(seconds=31)
        await applied(demo, jwt)


async def test_a_user_without_the_right_is_told(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await demo.put_secret("given", token=demo.coderd.state.add_token(User("member")))
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("LicenseApplied", "Forbidden", "False")
        await operator.wait_idle()
        assert posts(demo) == 1
        await operator.later(seconds=29)
        assert posts(demo) == 1
        await operator.later(seconds=2)
        assert posts(demo) == 2
        await demo.put_secret("given", token=demo.coderd.state.token)
        await operator.later(seconds=31)
        await applied(demo, jwt)


def test_what_a_licence_says_of_itself() -> None:
    assert read("").claims == {}
    assert read("a.W10.c").claims == {}
    assert read("a.!!!.c").claims == {}
    assert read("a.eyJleHAiOjF9.c").claims == {"exp": 1}


async def test_a_refusal_is_remembered_while_coderd_is_away(demo: PlaneNamespace) -> None:
    await put(demo, "garbage")
    async with demo.operator() as operator:
        await demo.roll_out()
        before = await demo.condition("LicenseApplied", "LicenseInvalid", "False")
        await operator.wait_idle()
        for _ in range(3):
            demo.coderd.state.set(failing=True)
            await operator.later(seconds=121)
            assert await demo.condition("LicenseApplied", "LicenseInvalid", "False") == before
            assert 0 < (operator.requeue_after() or 0) <= 30
            demo.coderd.state.set(failing=False)
            await operator.later(seconds=31)
            assert await demo.condition("LicenseApplied", "LicenseInvalid", "False") == before
        assert posts(demo) == 1
        await operator.later(hours=1)
        assert posts(demo) == 2
