"""The license of a control plane is uploaded to coderd once."""

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
from tests.support.campaign import slice_of
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
    """A control plane with a valid token and a license; its pods are not ready yet."""
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
    """Wait until the status records this license."""

    async def check() -> bool:
        await demo.condition("LicenseApplied", "Applied", "True")
        return (await demo.get()).status.license_last_applied_hash == digest(jwt)

    await eventually(check)


async def test_license_waits_for_a_pod_and_is_uploaded_once(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.condition("LicenseApplied", "Pending", "False")
        assert (await demo.conditions())["Ready"][0] != "True"
        await operator.wait_idle()
        assert sum(demo.coderd.state.requests.values()) == 0
        await demo.roll_out()
        await applied(demo, jwt)
        await demo.condition("Ready", "AllReady", "True")
        await demo.event("LicenseApplied")
        assert (await demo.get()).status.license_last_applied == demo.clock()
        for _ in range(5):
            await operator.later(minutes=3)
    for _ in range(3):
        async with demo.operator() as operator:
            await operator.reconcile()
    assert posts(demo) == 1
    assert [each.jwt for each in demo.coderd.state.licenses] == [jwt]


async def test_a_time_without_pods_uploads_nothing(demo: PlaneNamespace) -> None:
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


async def test_concurrent_writes_upload_nothing_again(demo: PlaneNamespace) -> None:
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


async def test_a_lost_status_uploads_nothing_again(demo: PlaneNamespace) -> None:
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


async def test_a_license_can_be_replaced_and_restored(demo: PlaneNamespace) -> None:
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
    """Another client uploads the same license between the check and the upload."""
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


async def test_a_license_that_coderd_lost_is_uploaded_again(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        demo.coderd.state.remove_licenses()
        await operator.later(seconds=119)
        assert posts(demo) == 1, "it is not queried at every reconcile"
        await operator.later(seconds=2)
        assert posts(demo) == 2
        plane = await demo.get()
        assert plane.status.license_last_applied == demo.clock()
        assert plane.status.license_tier == "premium", "the entitlements are queried at once"


async def test_surrounding_whitespace_is_ignored(demo: PlaneNamespace) -> None:
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
async def test_license_waits_for_its_secret(demo: PlaneNamespace, content: dict[str, str] | None) -> None:
    if content is not None:
        await demo.put_secret("license", **content)
    async with demo.operator():
        await demo.roll_out()
        condition = await demo.condition("LicenseApplied", "SecretMissing", "False")
        missing = (
            "does not exist; create it with key license" if content is None else "has no value for key license; set it"
        )
        assert condition.message == f"Secret license {missing}"
        await demo.condition("Stalled", "SecretMissing", "True")
        await demo.condition("EntitlementsKnown", "Checked", "True")
        assert posts(demo) == 0
        jwt = license(demo)
        await put(demo, jwt)
        await applied(demo, jwt)
        await demo.condition("Ready", "AllReady", "True")


async def test_a_deleted_license_secret_is_reported(demo: PlaneNamespace) -> None:
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


@pytest.mark.parametrize("content", slice_of(["garbage", "a.b.c", "a.e30.c", "\x00", "é.é.é"], 0, 3))
async def test_a_rejected_license_is_retried_after_an_hour(demo: PlaneNamespace, content: str) -> None:
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
        assert len(await demo.events("LicenseInvalid")) == 1, "nothing changed"
    async with demo.operator() as operator:
        await operator.reconcile()
        assert posts(demo) == 2, "the status has it after a restart"
        jwt = license(demo)
        await put(demo, jwt)
        await applied(demo, jwt)
        await demo.condition("Ready", "AllReady", "True")
        assert posts(demo) == 3


async def test_another_invalid_license_is_uploaded(demo: PlaneNamespace) -> None:
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
async def test_a_rejected_license_is_uploaded_to_another_coderd(
    demo: PlaneNamespace, change: str, restarted: bool
) -> None:
    """After a restore of the database, or an upgrade of coderd."""
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
            await uploaded_again(demo, change, before.message, jwt)
    if restarted:
        await another(demo, change)
        async with demo.operator():
            await uploaded_again(demo, change, before.message, jwt)
    assert posts(demo) == 2
    assert [each.jwt for each in state.licenses] == ([jwt] if change == "deployment" else [])


async def another(demo: PlaneNamespace, change: str) -> None:
    if change == "deployment":
        demo.coderd.state.deployment_id = "restored"
    else:
        demo.coderd.state.version = "2.30.0"


async def uploaded_again(demo: PlaneNamespace, change: str, before: str, jwt: str) -> None:
    if change == "deployment":
        await applied(demo, jwt)
        return

    async def reported_again() -> bool:
        message = (await demo.condition("LicenseApplied", "LicenseInvalid")).message
        return message != before and "v2.30.0" in message

    await eventually(reported_again)


async def test_messages_of_the_conditions(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        await operator.wait_idle()
        message = (await demo.condition("LicenseApplied", "Applied")).message
        assert message == "The license of Secret license is in Coder and expires on 2027-03-01"
        message = (await demo.condition("EntitlementsKnown", "Checked", "True")).message
        assert message == "License tier premium; external provisioners are entitled"
        message = (await demo.condition("OperatorAccessReady", "TokenReady", "True")).message
        assert message == f"Coder accepts the token in Secret given, of user {demo.coderd.state.owner.username}"
        writes = operator.write_requests()
        await operator.reconcile()
        assert operator.write_requests() == writes
    async with demo.operator() as operator:
        await operator.wait_idle()
        assert operator.writes() == 0


async def test_license_scaled_to_zero(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    await put(demo, jwt)
    async with demo.operator() as operator:
        await demo.roll_out()
        await applied(demo, jwt)
        await demo.condition("Ready", "AllReady", "True")
        await demo.change(replicas=0)
        await demo.condition("Available", "RolloutInProgress", "True")
        demo.coderd.state.set(rate_limited=True)  # a pod that stops may reject requests
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
        await demo.condition("Ready", "AllReady", "True")
    assert posts(demo) == 1


async def test_a_build_without_licenses_is_queried_rarely(
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
        asked = about_licenses(demo)
        for _ in range(9):
            await operator.later(minutes=1)
        assert about_licenses(demo) == asked
        assert await demo.condition("LicenseApplied", "NotSupported")
        assert await demo.condition("EntitlementsKnown", "NotSupported")
        await operator.later(minutes=2)
        assert about_licenses(demo) > asked


def about_licenses(demo: PlaneNamespace) -> int:
    """The number of requests about licenses and entitlements; health and jobs are read at their own intervals."""
    counts = demo.coderd.state.requests.items()
    return sum(count for (_, route), count in counts if "licenses" in route or "entitlements" in route)


@asynccontextmanager
async def failing_plane(demo: PlaneNamespace, **switches: Any) -> AsyncIterator[Operator]:
    """The token works, and the upload of the license fails."""
    async with demo.operator(limits=Limits(total=0.5)) as operator:
        await demo.roll_out()
        await demo.condition("LicenseApplied", "SecretMissing")
        await operator.wait_idle()
        demo.coderd.state.set(**switches)
        yield operator


@pytest.mark.parametrize(
    ("switches", "error", "retry"),
    [
        ({"failing": True}, "HTTP 500", 30),
        ({"cut": True}, "", 30),
        ({"latency": 2}, "no response within", 30),
        ({"database_down": True}, "HTTP 500", 30),
        ({"rate_limited": True}, "rate limited", 60),
    ],
)
async def test_an_error_is_reported_and_retried(
    demo: PlaneNamespace, switches: dict[str, Any], error: str, retry: float
) -> None:
    jwt = license(demo)
    async with failing_plane(demo, **switches) as operator:
        await put(demo, jwt)
        condition = await demo.condition("LicenseApplied", "Error", "False")
        assert error in condition.message
        assert (await demo.conditions())["Stalled"][0] == "False"
        await operator.wait_idle()
        asked = sum(demo.coderd.state.requests.values())
        await operator.later(seconds=retry - 1)
        assert sum(demo.coderd.state.requests.values()) == asked
        demo.coderd.state.set(failing=False, cut=False, latency=0, database_down=False, rate_limited=False)
        await operator.later(seconds=2)
        await applied(demo, jwt)
    assert posts(demo) == 1


async def test_a_deleted_token_is_reported(demo: PlaneNamespace) -> None:
    jwt = license(demo)
    async with failing_plane(demo) as operator:
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


async def test_a_user_without_the_permission_is_reported(demo: PlaneNamespace) -> None:
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


def test_read_license() -> None:
    assert read("").claims == {}
    assert read("a.W10.c").claims == {}
    assert read("a.!!!.c").claims == {}
    assert read("a.eyJleHAiOjF9.c").claims == {"exp": 1}


async def test_a_rejection_is_kept_while_coderd_is_unavailable(demo: PlaneNamespace) -> None:
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
