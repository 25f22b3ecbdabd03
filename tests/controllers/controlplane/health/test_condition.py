"""The condition `Healthy` of a control plane: status, events and metrics."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, reasons
from coder_k8s.api.reasons import Reason
from coder_k8s.api.reasons.health import HEALTH_REASONS
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer, User
from coder_k8s.kube.conditions import Condition, find
from coder_k8s.kube.objects import Key, timestamp
from tests.support import eventually, objects
from tests.support.controlplanes import PlaneNamespace, plane_with_token, value_of
from tests.support.forwarding import Forwarder
from tests.support.operators import Operator

HEALTH = "/api/v2/debug/health"
SETTINGS = "/api/v2/debug/health/settings"
METRICS = ("coder_k8s_health_severity", "coder_k8s_health_code", "coder_k8s_health_checked_timestamp_seconds")
SECRET = "Hs7Kq2ZpLmX9vB4nT1cR8w"
EXAMPLES = {str(reason): reason.example for reason in HEALTH_REASONS}
OTHER_EXAMPLES = ("AllChecksPassed", "Pending", "ScaledToZero", "Upgrading")


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    """A control plane with a valid token."""
    async with plane_with_token(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        yield place


async def healthy(demo: PlaneNamespace) -> Condition | None:
    return find((await demo.get()).status.conditions, "Healthy")


async def check_again(operator: Operator) -> None:
    """Let coderd run its check again, and the operator read it."""
    await operator.later(minutes=10)


async def start(demo: PlaneNamespace, operator: Operator) -> None:
    """Let the control plane become Ready, with the first result of the check."""
    await demo.roll_out()
    await demo.condition("Ready", "AllReady", "True")
    await operator.wait_idle()


def warn(demo: PlaneNamespace, section: str, code: str, severity: str = "warning", message: str = "Text") -> None:
    demo.coderd.state.health.set_health(section, severity, [{"code": code, "message": message}])


def fail(demo: PlaneNamespace, section: str, error: str) -> None:
    demo.coderd.state.health.set_health(section, "error", error=error)


PROBLEMS: dict[Reason, tuple[str, str, str]] = {
    reasons.ACCESS_URL_INVALID: (
        "access_url",
        "EACS02",
        "parse access URL: first path segment in URL cannot contain colon",
    ),
    reasons.ACCESS_URL_UNREACHABLE: (
        "access_url",
        "EACS03",
        "get healthz endpoint: lookup coder.invalid: no such host",
    ),
    reasons.ACCESS_URL_NOT_OK: ("access_url", "EACS04", "/healthz did not return 200 OK"),
    reasons.WEBSOCKET_BLOCKED: (
        "websocket",
        "EWS01",
        "websocket dial: expected handshake response status code 101 but got 400",
    ),
    reasons.DATABASE_DOWN: ("database", "EDB01", "ping: connection refused"),
    reasons.DATABASE_SLOW: ("database", "EDB02", "median latency of 20ms exceeds 15ms"),
    reasons.DERP_DEGRADED: ("derp", "EDERP01", "Node uses WebSockets"),
    reasons.STUN_UNAVAILABLE: ("derp", "ESTUN01", "No STUN servers are available."),
    reasons.PROXY_UNHEALTHY: ("workspace_proxy", "EWP02", "unable to fetch workspace proxies"),
    reasons.NO_PROVISIONERS: ("provisioner_daemons", "EPD01", "No active provisioner daemons found!"),
    reasons.PROVISIONER_VERSION_SKEW: ("provisioner_daemons", "EPD02", "outdated"),
    reasons.UNKNOWN_CODE: ("access_url", "ENEW01", "Odd"),
}
"""A section with a code and a text, for each reason."""
ONLY_WARNINGS = ("AccessURLNotOK", "DatabaseSlow", "STUNUnavailable", "ProvisionerVersionSkew")


@pytest.mark.parametrize("reason", PROBLEMS)
async def test_each_reason_is_reported_after_two_runs_and_recovers_after_one(
    demo: PlaneNamespace, reason: Reason
) -> None:
    section, code, text = PROBLEMS[reason]
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.message("Healthy", "AllChecksPassed", "All checks of Coder passed")
        await demo.condition("Ready", "AllReady", "True")
        warn(demo, section, code, "error", text)
        await check_again(operator)
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await check_again(operator)
        await demo.condition("Healthy", reason, "True" if reason in ONLY_WARNINGS else "False")
        await demo.message("Healthy", reason, EXAMPLES[reason])
        await demo.condition("Ready", "AllReady", "True")
        health = (await demo.get()).status.health
        assert health is not None
        severity = "warning" if reason in ONLY_WARNINGS else "error"
        assert (health.severity, health.codes, health.version) == (severity, [code], "v2.36.1")
        assert health.checked == demo.clock()
        metrics, who = operator.metrics(), {"namespace": demo.namespace, "name": demo.key.name}
        number = 1 if reason in ONLY_WARNINGS else 2
        assert value_of(metrics, METRICS[0], section=section, **who) == number
        assert value_of(metrics, METRICS[1], code=code, **who) == 1
        assert value_of(metrics, METRICS[2], **who) == demo.clock().timestamp()
        event = "HealthCheckWarning" if reason in ONLY_WARNINGS else "HealthCheckFailed"
        assert (await demo.event(event))["note"].startswith(f"{code}: ")
        demo.coderd.state.health.set_health(section)
        await operator.later(minutes=5)
        await demo.condition("Healthy", "AllChecksPassed", "True")
        assert len(await demo.events("HealthCheckRecovered")) == (0 if reason in ONLY_WARNINGS else 1)
        assert value_of(operator.metrics(), METRICS[1], code=code, **who) is None


async def test_a_first_error_is_unknown_until_it_is_confirmed(demo: PlaneNamespace) -> None:
    warn(demo, "provisioner_daemons", "EPD01", "error")
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.message("Healthy", "Pending", EXAMPLES["Pending"])
        assert (await demo.get()).status.health is None
        await check_again(operator)
        await demo.condition("Healthy", "NoProvisioners", "False")
        await demo.condition("Ready", "AllReady", "True")


async def test_no_daemons_while_autoscaling_is_at_zero(demo: PlaneNamespace) -> None:
    """That is no error, but it is one if pods are added and their daemons do not connect."""
    name = Key(demo.namespace, "build")
    spec = {"controlPlaneRef": {"name": demo.name}, "autoscaling": {"minReplicas": 0, "maxReplicas": 3}}
    await objects.create(demo.client, PROVISIONER, name, spec)

    async def scale(operator: Operator, replicas: int) -> None:
        scaling = {"desiredReplicas": replicas, "pendingJobs": replicas, "lastScaleTime": timestamp(demo.clock())}
        written = await demo.client.merge(PROVISIONER, name, {"status": {"autoscaling": scaling}}, "status")
        cache, version = operator.informers[PROVISIONER], written.metadata.resource_version
        await eventually(lambda: (known := cache.get(name)) and known.metadata.resource_version == version)

    async with demo.operator() as operator:
        await scale(operator, 0)
        warn(demo, "provisioner_daemons", "EPD01", "error")
        await start(demo, operator)
        zero = "All checks of Coder passed; EPD01 is ignored because autoscaling scaled all provisioners to zero"
        await demo.message("Healthy", "AllChecksPassed", zero)
        await check_again(operator)
        await check_again(operator)
        await demo.message("Healthy", "AllChecksPassed", zero)
        assert await demo.events("HealthCheckFailed") == []
        await scale(operator, 1)
        await check_again(operator)
        await demo.message("Healthy", "AllChecksPassed", zero)
        await check_again(operator)
        await demo.condition("Healthy", "NoProvisioners", "False")
        await scale(operator, 0)
        await operator.later(minutes=5)
        await demo.condition("Healthy", "AllChecksPassed", "True")


@pytest.mark.parametrize("section", ["Websocket", "ProvisionerDaemons"])
async def test_a_section_that_is_dismissed_in_coder(demo: PlaneNamespace, section: str) -> None:
    fail(demo, "websocket", "EWS01: x")
    warn(demo, "provisioner_daemons", "EPD01", "error")
    async with demo.operator() as operator:
        await start(demo, operator)
        await check_again(operator)
        await demo.condition("Healthy", "WebsocketBlocked", "False")
        health = (await demo.get()).status.health
        assert health is not None
        assert health.codes == ["EWS01", "EPD01"]
        demo.coderd.state.health.dismiss_health(["Websocket", "ProvisionerDaemons"])
        await operator.later(minutes=5)
        found = await demo.condition("Healthy", "AllChecksPassed", "True")
        assert f"{section} is dismissed in Coder" in found.message


async def test_an_ignored_code_counts_immediately(demo: PlaneNamespace) -> None:
    fail(demo, "access_url", "EACS03: x")
    async with demo.operator() as operator:
        await start(demo, operator)
        await check_again(operator)
        await demo.condition("Healthy", "AccessURLUnreachable", "False")
        await demo.change(health={"ignore": ["EACS03"]})
        found = await demo.condition("Healthy", "AllChecksPassed", "True")
        assert found.message == "All checks of Coder passed; EACS03 is ignored by spec.health.ignore"
        await demo.change(health={"ignore": None})
        await operator.reconcile()
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await check_again(operator)
        await check_again(operator)
        await demo.condition("Healthy", "AccessURLUnreachable", "False")


async def test_the_check_can_be_turned_off(demo: PlaneNamespace) -> None:
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await operator.wait_idle()
        before = demo.coderd.state.count("GET", HEALTH)
        await demo.change(health={"interval": "0s"})

        async def is_gone() -> bool:
            status = (await demo.get()).status
            return status.health is None and find(status.conditions, "Healthy") is None

        await eventually(is_gone)
        await check_again(operator)
        assert demo.coderd.state.count("GET", HEALTH) == before
        assert not any(f"{metric}{{" in operator.metrics() for metric in METRICS)


@pytest.mark.parametrize("published", [True, False], ids=["later", "first"])
async def test_errors_of_the_check(demo: PlaneNamespace, published: bool) -> None:
    """A first error that may pass by itself changes nothing; the next one makes the condition Unknown."""
    health = demo.coderd.state.health
    health.timed_out = "" if published else "Still running: DERP, Websocket"
    async with demo.operator() as operator:
        await demo.roll_out()
        if published:
            await demo.condition("Healthy", "AllChecksPassed", "True")
            await operator.wait_idle()
            health.timed_out = "Still running: DERP, Websocket"
            await operator.later(minutes=5)
            await demo.condition("Healthy", "AllChecksPassed", "True")
            await operator.later(seconds=30)
        await demo.condition("Healthy", "TimedOut", "Unknown")
        await demo.message("Healthy", "TimedOut", EXAMPLES["TimedOut"])
        health.timed_out = ""
        await operator.later(seconds=30)
        await demo.condition("Healthy", "AllChecksPassed", "True")


@pytest.mark.parametrize(
    ("switch", "reason", "status"),
    [
        ("failing", "Unreachable", "HTTP 500"),
        ("cut", "Unreachable", "the connection ended without a response"),
        ("sign_in_page", "Unreachable", "invalid response"),
        ("database_down", "DatabaseDown", "Internal error fetching API key by id"),
    ],
)
async def test_a_coderd_that_does_not_respond(demo: PlaneNamespace, switch: str, reason: str, status: str) -> None:
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await operator.wait_idle()
        demo.coderd.state.set(**{switch: True})
        await operator.later(minutes=5)
        await operator.later(seconds=30)
        found = await demo.condition("Healthy", reason, "Unknown")
        assert status in found.message
        demo.coderd.state.set(**{switch: False})
        await operator.later(seconds=30)
        await demo.condition("Healthy", "AllChecksPassed", "True")


async def test_a_database_that_is_down_on_an_old_coderd(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> None:
    """coderd 2.30 responds with 401, as for an invalid token."""
    async with (
        plane_with_token(cluster.kubeconfig, operator_kubeconfig, namespace, "2.30.0") as demo,
        demo.operator() as operator,
    ):
        await demo.roll_out()
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await operator.wait_idle()
        demo.coderd.state.set(database_down=True)
        await operator.later(minutes=5)
        await operator.later(seconds=30)
        await demo.condition("Healthy", "DatabaseDown", "Unknown")
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


async def test_the_user_of_the_token_is_no_owner(demo: PlaneNamespace) -> None:
    token = demo.coderd.state.add_token(User("member"))
    await demo.put_secret("given", token=token)
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.message("Healthy", "Forbidden", EXAMPLES["Forbidden"])
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        before = demo.coderd.state.count("GET", HEALTH)
        for _ in range(9):
            await operator.later(minutes=1)
        assert demo.coderd.state.count("GET", HEALTH) == before


async def test_a_token_that_was_revoked(demo: PlaneNamespace) -> None:
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await operator.wait_idle()
        demo.coderd.state.revoke_token(demo.coderd.state.token)
        await operator.later(minutes=5)
        await demo.message("Healthy", "TokenRejected", EXAMPLES["TokenRejected"])
        await operator.reconcile()
        await demo.condition("OperatorAccessReady", "TokenRejected", "False")


class Proxy(Forwarder):
    """A proxy in front of coderd that answers requests for the health check itself."""

    answer: web.Response | None = None
    others: tuple[str, ...] = ()
    """URLs of other replicas, which are asked in turns."""
    turn = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == HEALTH and self.answer is not None:
            return web.Response(status=self.answer.status, body=self.answer.body, headers=self.answer.headers)
        if request.path == HEALTH and self.others:
            self.turn += 1
            self._url = self.others[self.turn % len(self.others)]
        return await super().handle(request)


def through(demo: PlaneNamespace, proxy: Proxy) -> dict[str, Any]:
    """Options of an operator whose requests to coderd go through a proxy."""
    [host] = demo.routes
    return {"connect_to": {host: Endpoint("127.0.0.1", proxy.port)}}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, {"message": "Route not found."}, "NotSupported"),
        (404, {"message": "Healthcheck is in progress and did not complete in time. Try again."}, "TimedOut"),
        (429, {"message": "You've been rate limited for sending more than 512 requests in 1m0s."}, "RateLimited"),
        (500, {"message": "Internal error"}, "Unreachable"),
        (200, {"derp": []}, "Unreachable"),
        (302, {}, "Unreachable"),
        (200, {}, "AllChecksPassed"),
    ],
)
async def test_responses_of_other_versions(
    demo: PlaneNamespace, status: int, body: dict[str, Any], reason: str
) -> None:
    async with Proxy(demo.coderd.url) as proxy:
        proxy.answer = web.json_response(body, status=status)
        async with demo.operator(**through(demo, proxy)):
            await demo.roll_out()
            found = await demo.condition("Healthy", reason)
            if status in (404, 429, 500) and reason != "TimedOut":
                assert found.message == EXAMPLES[reason]
            await demo.condition("Ready", "AllReady", "True")


async def test_texts_of_coderd_are_not_trusted(demo: PlaneNamespace) -> None:
    """A tenant can run any image as Coder."""
    token, control = demo.coderd.state.token, "".join(map(chr, range(32)))
    text = f"https://root:{SECRET}@db/?token={SECRET} {token} {control} {'<b>' * 3000}"
    section = {"severity": "error", "error": f"EACS03: {text}", "warnings": [{"code": text, "message": text}] * 50}
    names = ("database", "access_url", "websocket", "provisioner_daemons", "derp", "workspace_proxy")
    async with Proxy(demo.coderd.url) as proxy, demo.operator(**through(demo, proxy)) as operator:
        for run in range(3):
            body = {"time": f"{run}" * 9999, "coder_version": f"v2 {text}", **dict.fromkeys(names, section)}
            proxy.answer = web.json_response(body)
            await (check_again(operator) if run else start(demo, operator))
        found = await demo.condition("Healthy", "AccessURLUnreachable", "False")
        status = (await demo.get()).status
        assert status.health is not None
        assert status.health.codes == ["EACS03", "EUNKNOWN"]
        assert len(status.health.version) <= 64
        events = [event["note"] for event in await demo.events()]
        for shown in (found.message, status.health.version, operator.metrics(), *events):
            assert SECRET not in shown
            assert token not in shown
        assert all(len(each.encode()) <= 1024 for each in (found.message, *events))


async def test_replicas_that_disagree_do_not_change_the_condition(demo: PlaneNamespace) -> None:
    async with CoderdServer("2.36.1", now=demo.clock) as other, Proxy(demo.coderd.url) as proxy:
        other.state.add_token(User("admin", roles=("owner",)), demo.coderd.state.token)
        proxy.others = (other.url, demo.coderd.url)
        await demo.change(replicas=2)
        async with demo.operator(**through(demo, proxy)) as operator:
            await demo.roll_out(2)
            await demo.condition("Healthy", "AllChecksPassed", "True")
            await operator.wait_idle()
            first = await healthy(demo)
            for _ in range(24):
                await operator.later(minutes=5)
            assert other.state.count("GET", HEALTH) > 10
            assert await healthy(demo) == first
            assert await demo.events("HealthCheckFailed") == []


async def test_an_idle_hour_writes_nothing(demo: PlaneNamespace) -> None:
    """Only the time of the check of the entitlements is written, every two minutes."""
    warn(demo, "database", "EDB02", message="median latency of 20ms exceeds 15ms")
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Healthy", "DatabaseSlow", "True")
        await operator.wait_idle()
        before, first = operator.writes(), (await demo.get()).status
        queries = demo.coderd.state.count("GET", HEALTH), demo.coderd.state.count("GET", SETTINGS)
        for minute in range(60):
            warn(demo, "database", "EDB02", message=f"median latency of {minute}ms exceeds 15ms")
            await operator.later(minutes=1)
        status = (await demo.get()).status
        assert (status.health, status.conditions) == (first.health, first.conditions)
        assert operator.writes() - before == 30, "the entitlements"
        counts = demo.coderd.state.count("GET", HEALTH), demo.coderd.state.count("GET", SETTINGS)
        assert [after - earlier for after, earlier in zip(counts, queries, strict=True)] == [12, 12]
    async with demo.operator() as operator:
        await operator.wait_idle()
        assert operator.writes() == 0, "nor does a restart"


async def test_reports_without_a_time(demo: PlaneNamespace) -> None:
    """Each of them counts as another run, so that an error is reported."""
    section = {"severity": "error", "error": "EWS01: x"}
    async with Proxy(demo.coderd.url) as proxy, demo.operator(**through(demo, proxy)) as operator:
        for time in ({}, {"time": None}, {"time": "soon"}):
            proxy.answer = web.json_response({"websocket": section, **time})
            await (check_again(operator) if time else start(demo, operator))
        await demo.condition("Healthy", "WebsocketBlocked", "False")


async def test_a_restart_keeps_an_error(demo: PlaneNamespace) -> None:
    fail(demo, "websocket", "EWS01: x")
    async with demo.operator() as operator:
        await start(demo, operator)
        await check_again(operator)
        await demo.condition("Healthy", "WebsocketBlocked", "False")
    fail(demo, "websocket", "EWS01: y")
    async with demo.operator() as operator:
        await operator.wait_idle()
        assert operator.writes() == 0
        await check_again(operator)
        assert "(x)" in (await demo.condition("Healthy", "WebsocketBlocked", "False")).message
        assert len(await demo.events("HealthCheckFailed")) == 1


async def test_a_scaled_down_coder_keeps_the_condition(demo: PlaneNamespace) -> None:
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await demo.change(replicas=0)
        await demo.condition("Healthy", "ScaledToZero", "True")
        await operator.wait_idle()
        assert not any(f"{metric}{{" in operator.metrics() for metric in METRICS)


async def test_an_upgrade_keeps_the_condition(demo: PlaneNamespace) -> None:
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Healthy", "AllChecksPassed", "True")
        await demo.condition("Ready", "AllReady", "True")
        fail(demo, "websocket", "EWS01: x")
        await demo.change(image="ghcr.io/coder/coder:v2.36.2", update={"strategy": "Rolling"})
        await demo.message("Healthy", "Upgrading", EXAMPLES["Upgrading"])
        await check_again(operator)
        await check_again(operator)
        await demo.condition("Healthy", "Upgrading", "True")
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await demo.condition("Healthy", "Pending", "Unknown")
        await check_again(operator)
        await demo.condition("Healthy", "WebsocketBlocked", "False")


async def test_metrics_are_removed_with_the_object(demo: PlaneNamespace) -> None:
    warn(demo, "database", "EDB02")
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Healthy", "DatabaseSlow", "True")
        assert all(f"{metric}{{" in operator.metrics() for metric in METRICS)
        await demo.delete(CONTROL_PLANE, demo.name)
        await eventually(lambda: not any(f"{metric}{{" in operator.metrics() for metric in METRICS))


def test_every_example_is_tested() -> None:
    errors = ("TimedOut", "Unreachable", "Forbidden", "TokenRejected", "NotSupported", "RateLimited")
    assert set(EXAMPLES) == {*map(str, PROBLEMS), *OTHER_EXAMPLES, *errors}
