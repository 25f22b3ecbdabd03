"""Errors of coderd become conditions and are retried; running pods keep running."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.coderd.connections import Endpoint, Limits
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SERVICE
from tests.support.campaign import slice_of
from tests.support.planes import make_ready_plane, put_waiting_pod
from tests.support.workspaceproxies import (
    CREDENTIALS,
    MEMBER,
    NAME,
    PLANE,
    PROXIES,
    SECRET_NAME,
    ProxyNamespace,
    proxy_namespace,
)


@pytest.fixture
async def unlicensed(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProxyNamespace]:
    async with proxy_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, licensed=False) as made:
        yield made


async def nothing_was_created(place: ProxyNamespace) -> bool:
    assert (await place.get()).metadata.finalizers == []
    for kind, name in ((SECRET, SECRET_NAME), (SERVICE, f"wsproxy-{NAME}"), (DEPLOYMENT, f"wsproxy-{NAME}")):
        assert await place.find(kind, name) is None
    return True


async def test_nothing_is_attempted_without_a_license(unlicensed: ProxyNamespace) -> None:
    place = unlicensed
    async with place.operator() as operator:
        await place.make()
        condition = await place.condition("Registered", "NotEntitled", "False")
        assert "Contact sales" in condition.message
        await place.condition("Stalled", "NotEntitled", "True")
        await operator.wait_idle()
        assert await nothing_was_created(place)
        assert 60 < (operator.requeue_after() or 999) <= 120
        assert dict(place.coderd.state.requests) == {("GET", PROXIES): 1}
        await operator.later(seconds=60)
        assert place.coderd.state.requests.total() == 1
        place.coderd.state.install_license()
        await operator.later(seconds=60)
        await place.ready(operator)


async def test_license_of_the_control_plane_is_used_at_once(unlicensed: ProxyNamespace) -> None:
    place = unlicensed
    await place.make_plane()
    async with place.operator():
        await place.make(controlPlaneRef={"name": PLANE})
        await place.condition("Registered", "NotEntitled", "False")
        place.coderd.state.install_license()
        await place.set_plane_status(licenseTier="premium")
        await place.condition("Registered", "Registered", "True")


async def test_running_pods_stay_when_the_license_ends(place: ProxyNamespace) -> None:
    """And children still follow the spec."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        token = await place.token()
        place.coderd.state.remove_licenses()
        await operator.later(seconds=61)
        await place.condition("Registered", "NotEntitled", "False")
        await place.change(replicas=3)
        await place.condition("Registered", "NotEntitled", "False")
        assert (await place.deployment()).manifest["spec"]["replicas"] == 3
        assert await place.token() == token
        assert (await place.get()).status.phase == "Ready"


async def test_agpl_server_has_no_proxies(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> None:
    async with (
        proxy_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, "agpl") as place,
        place.operator() as operator,
    ):
        await place.make_plane()
        await place.make(controlPlaneRef={"name": PLANE})
        build = f"CoderControlPlane {PLANE} is a build of Coder without workspace proxies"
        await place.message("Registered", "NotSupported", f"{build}; use an image that has them")
        await place.condition("Stalled", "NotSupported", "True")
        await operator.wait_idle()
        assert await nothing_was_created(place)
        assert (operator.requeue_after() or 999) <= 120
        assert place.coderd.state.requests.total() == 1


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "429": ({"rate_limited": True}, "RateLimited"),
    "500": ({"failing": True}, "CoderUnavailable"),
    "timeout": ({"latency": 5}, "CoderUnavailable"),
    "cut": ({"cut": True}, "CoderUnavailable"),
    "no database": ({"database_down": True}, "CoderUnavailable"),
    "sign-in page": ({"sign_in_page": True}, "CoderUnavailable"),
}
WELL = {switch: 0 if switch == "latency" else False for switches, _ in FAILURES.values() for switch in switches}


def asking(place: ProxyNamespace, switches: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    """An operator with a short timeout only while coderd hangs: a busy machine must not cause timeouts."""
    return place.operator(limits=Limits(total=0.5)) if "latency" in switches else place.operator()


@pytest.mark.parametrize("version", slice_of(["2.30.0", "2.36.1"], 1))
@pytest.mark.parametrize("failure", FAILURES)
async def test_temporary_errors_are_retried_with_back_off(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, version: str, failure: str
) -> None:
    """No other event causes a request to coderd, and the object is not stalled."""
    switches, reason = FAILURES[failure]
    async with (
        proxy_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, version) as place,
        asking(place, switches) as operator,
    ):
        place.coderd.state.set(**switches)
        await place.make()
        waits = []
        for _ in range(4):
            await place.condition("Registered", reason, "Unknown")
            await place.condition("Stalled", "Progressing", "False")
            await operator.wait_idle()
            waits.append(wait := operator.requeue_after())
            asked = place.coderd.state.requests.total()
            await operator.later()
            assert place.coderd.state.requests.total() == asked
            await operator.later(seconds=wait + 0.5)
            assert place.coderd.state.requests.total() > asked
        assert all(later > earlier for earlier, later in pairwise(waits[::2]))
        assert await nothing_was_created(place)
        place.coderd.state.set(**WELL)
        await operator.later(seconds=121)
        await place.ready(operator)
        assert (place.registrations(), place.changes()) == (1, 0)


@pytest.mark.parametrize("failure", slice_of(FAILURES, 0, 1))
async def test_children_follow_the_spec_while_coderd_is_unavailable(place: ProxyNamespace, failure: str) -> None:
    switches, reason = FAILURES[failure]
    async with asking(place, switches) as operator:
        await place.make()
        await place.ready(operator)
        token = await place.token()
        place.coderd.state.set(**switches)
        await place.change(image="coder:v2")
        await place.condition("Registered", reason, "Unknown")
        await operator.wait_idle()
        [container] = (await place.deployment()).manifest["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "coder:v2"
        place.coderd.state.set(**WELL)
        await operator.later(seconds=61)
        await place.ready(operator)
        assert await place.token() == token
    assert (place.registrations(), place.changes()) == (1, 0)


async def test_lost_response(place: ProxyNamespace) -> None:
    """The proxy was registered and its token is lost: the record proves ownership, and the operator regenerates it."""
    place.coderd.state.set(unanswered="POST")
    async with place.operator() as operator:
        await place.make()
        await place.condition("Registered", "CoderUnavailable", "Unknown")
        await operator.wait_idle()
        made = place.proxies[NAME]
        assert (await place.get()).status.proxy_name == NAME
        await operator.later(seconds=3)
        await place.ready(operator)
        assert await place.token() == place.proxies[NAME].token != made.token
        assert place.proxies[NAME].id == made.id
        await operator.later(seconds=61)
    assert (place.registrations(), place.changes()) == (1, 1)


async def test_credentials_missing_wrong_and_rotated(place: ProxyNamespace) -> None:
    state = place.coderd.state
    good = state.token
    await place.delete(SECRET, CREDENTIALS)
    async with place.operator() as operator:
        await place.make()
        missing = f"Secret {CREDENTIALS} does not exist; create it with key token"
        await place.message("Registered", "CredentialsMissing", missing)
        await place.condition("Stalled", "CredentialsMissing", "True")
        assert state.requests.total() == 0
        await place.put_secret(CREDENTIALS, other="key")
        no_key = f"Secret {CREDENTIALS} has no value for key token; set it"
        await place.message("Registered", "CredentialsMissing", no_key)
        await place.put_secret(CREDENTIALS, token="nonsense")
        rejected = await place.condition("Registered", "CredentialsRejected", "False")
        advice = f"rejects the token in Secret {CREDENTIALS}; put a valid token under key token: "
        assert rejected.message.startswith(f"Coder at {place.coderd.url} {advice}")
        await place.condition("Stalled", "CredentialsRejected", "True")
        await place.put_secret(CREDENTIALS, token=state.add_token(MEMBER))
        await place.condition("Registered", "Forbidden", "False")
        await place.condition("Stalled", "Forbidden", "True")
        await operator.wait_idle()
        # Any user can list proxies, so only the rejected registration shows the missing permission.
        assert (state.count("POST", PROXIES), place.proxies) == (1, {})
        assert (await place.get()).metadata.finalizers == []
        assert (await place.get()).status.proxy_name == ""
        assert await place.token() == ""
        assert await place.find(DEPLOYMENT, f"wsproxy-{NAME}") is None
        assert 60 < (operator.requeue_after() or 999) <= 120
        await place.put_secret(CREDENTIALS, token=f"{good}\n")
        await place.ready(operator)
        rotated = state.add_token(state.owner)
        state.revoke_token(good)
        await operator.later(seconds=61)
        await place.condition("Registered", "CredentialsRejected", "False")
        await place.put_secret(CREDENTIALS, token=rotated)
        await place.condition("Ready", "AllReady", "True")
    assert (place.registrations(), place.changes()) == (2, 0)


async def test_message_names_the_url_of_an_unavailable_coder(place: ProxyNamespace) -> None:
    """Also when nothing listens there."""
    host, port = Endpoint("coder.example.com", 80), place.coderd.port
    failed = "Request to Coder at http://coder.example.com failed; check bootstrap.coderURL"
    place.coderd.state.set(failing=True)
    async with place.operator(connect_to={host: Endpoint("127.0.0.1", port)}):
        await place.make(bootstrap=place.bootstrap | {"coderURL": "http://coder.example.com"})
        found = await place.condition("Registered", "CoderUnavailable", "Unknown")
        assert found.message.startswith(f"{failed}: HTTP 500")
    async with place.operator(connect_to={host: Endpoint("127.0.0.1", 1)}):
        await place.change(replicas=2)
        found = await place.condition("Registered", "CoderUnavailable", "Unknown")
        assert found.message.startswith(f"{failed}: coder.example.com: cannot connect: ")
    place.coderd.state.set(failing=False, rate_limited=True)
    async with place.operator(connect_to={host: Endpoint("127.0.0.1", port)}):
        await place.change(replicas=3)
        found = await place.condition("Registered", "RateLimited", "Unknown")
        assert found.message.startswith("Coder at http://coder.example.com limits the request rate: You've been")


async def test_rejected_operator_token_needs_no_user_action(place: ProxyNamespace) -> None:
    """The operator renews its own token; then the reconcile continues."""
    await place.make_plane()
    state = place.coderd.state
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        await place.ready(operator)
        renewed = state.add_token(state.owner)
        state.revoke_token(state.token)
        await operator.later(seconds=61)
        await place.condition("Registered", "CredentialsRejected", "False")
        await place.condition("Stalled", "Progressing", "False")
        await place.put_secret(f"{PLANE}-operator-token", token=renewed)
        await operator.later(seconds=31)
        await place.condition("Ready", "AllReady", "True")


async def test_deployment_of_a_control_plane_is_not_adopted(place: ProxyNamespace) -> None:
    """A control plane may be named like the Deployment of a proxy."""
    before = await make_ready_plane(place.client, place.namespace, f"wsproxy-{NAME}")
    async with place.operator() as operator:
        await place.make()
        taken = await place.condition("Ready", "NameTaken", "False")
        assert f"Deployment wsproxy-{NAME} exists and belongs to CoderControlPlane" in taken.message
        await operator.wait_idle()
        assert (await place.conditions())["DeploymentReady"] == ("False", "NoReplicasReady")
        status = (await place.get()).status
        assert (status.phase, status.replicas, status.ready_replicas) == ("Pending", 0, 0)
    assert await place.deployment() == before


async def test_condition_has_the_cause_of_a_pod_that_does_not_start(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        deployment = await place.deployment()
        await operator.wait_idle()
        await put_waiting_pod(place.client, deployment, "ImagePullBackOff")
        cause = f'pod wsproxy-{NAME}-1: ImagePullBackOff: Back-off pulling image "coder"'
        expected = f"0 of 1 updated pods are ready; {cause}"
        await place.message("DeploymentReady", "NoReplicasReady", expected)
        await place.message("Ready", "NoReplicasReady", expected)
