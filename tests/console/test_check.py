"""`check`: each check, and the command on a real API server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import RESOURCES
from coder_k8s.console.checks import check_all
from coder_k8s.console.checks.crds import outdated_fields
from coder_k8s.console.checks.gateway import check_gateway_api
from coder_k8s.console.checks.metrics import check_metrics
from coder_k8s.console.checks.permissions import Permission, required
from coder_k8s.console.checks.result import summary
from coder_k8s.console.checks.running import check_leader, check_operator
from coder_k8s.console.operator import Operator
from coder_k8s.console.session import Session
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import POD, SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.rules import Rule
from coder_k8s.manifests import crd, embedded, rbac
from tests.console.conftest import Console
from tests.console.manifests import RUNNING, made, plane, pod, put
from tests.console.operators import LABEL, NOW, deployment, install, lease, put_lease
from tests.support import eventually
from tests.support.api import Api, reply
from tests.support.installation import restricted_kubeconfig
from tests.support.metrics import sample_value

NO_RIGHTS = ("leases is forbidden",)


@pytest.mark.parametrize(
    ("operator", "outcomes"),
    [
        ({"deployment": deployment(), "lease": lease()}, ("ok", "ok")),
        ({"deployment": deployment(0), "lease": lease()}, ("failed", "ok")),
        ({"deployment": deployment(), "lease": lease(60)}, ("ok", "failed")),
        ({"deployment": deployment(), "lease": lease(holder="")}, ("ok", "failed")),
        ({"deployment": deployment()}, ("ok", "failed")),
        ({"deployment": deployment(2, "i", "--no-leader-elect")}, ("ok", "ok")),
        ({"deployment": deployment(), "problems": NO_RIGHTS}, ("ok", "skipped")),
        ({"lease": lease()}, ("ok", "ok")),
        ({"lease": lease(60)}, ("failed", "failed")),
        ({"problems": NO_RIGHTS}, ("skipped", "skipped")),
        ({"failures": ("cannot connect",)}, ("failed", "failed")),
        ({"deployment": deployment(), "failures": ("cannot connect",)}, ("failed", "failed")),
        ({}, ("failed", "failed")),
    ],
)
def test_operator_and_leader(operator: dict[str, Any], outcomes: tuple[str, str]) -> None:
    found = Operator("coder-system", **operator)
    assert (check_operator(found, NOW).outcome, check_leader(found, NOW).outcome) == outcomes


def test_an_operator_of_another_version() -> None:
    operator = Operator("coder-system", deployment(2, "coder-k8s:9.9.9"))
    assert (
        "2 of 2 pods are ready in namespace coder-system, version 9.9.9 (this command: "
        in check_operator(operator, NOW).message
    )


def test_crds_of_another_version() -> None:
    resource = RESOURCES[0]
    wanted, found = (crd.definition(resource, embedded.load()) for _ in range(2))
    assert outdated_fields(wanted, found) == []
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    schema["spec"]["properties"]["later"] = {"type": "string"}
    schema["spec"]["description"] = "Another text."
    assert outdated_fields(wanted, found) == []
    del schema["status"]["properties"]["phase"]
    del schema["spec"]["properties"]["service"]["properties"]["port"]["default"]
    schema["spec"]["properties"]["extraEnv"]["items"]["required"] = []
    assert set(outdated_fields(wanted, found)) == {"status.phase", "spec.service.port", "spec.extraEnv"}
    found["spec"]["versions"][0]["name"] = "v1"
    assert "spec" in outdated_fields(wanted, found)


def test_the_permissions_of_the_operator() -> None:
    rules = {
        "a": (Rule(("",), ("secrets",), ("get", "list")), Rule(("",), ("nodes",), ("get",), cluster_scoped=True)),
        rbac.ELECTION: (Rule(("coordination.k8s.io",), ("leases",), ("get",)),),
    }
    of_lease = Permission("system", "coordination.k8s.io", "leases", "get")
    assert set(required(rules, "system", [])) == {
        Permission("", "", "secrets", "get"),
        Permission("", "", "secrets", "list"),
        Permission("", "", "nodes", "get"),
        of_lease,
    }
    assert {str(each) for each in required(rules, "system", ["a", "b"])} == {
        "get secrets in namespace a",
        "list secrets in namespace a",
        "get secrets in namespace b",
        "list secrets in namespace b",
        str(of_lease),
    }


def test_a_summary() -> None:
    assert summary(["a", "b", "c"]) == "a, b, c"
    assert summary(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


GATEWAY = plane("prod", spec={"expose": {"gateway": {"host": "coder.example", "parentRefs": [{"name": "public"}]}}})
NOT_SERVED = reply(b"404 page not found", 404)
FORBIDDEN = reply(
    {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "codercontrolplanes is forbidden"}, 403
)


def planes(*items: dict[str, Any]) -> Any:
    return reply({"metadata": {"resourceVersion": "1"}, "items": list(items)})


@pytest.mark.parametrize(
    ("answers", "outcome", "message"),
    [
        ([reply({"resources": [{"name": "httproutes"}]})], "ok", "HTTPRoute gateway.networking.k8s.io/v1 is installed"),
        ([NOT_SERVED, planes(plane("prod"))], "ok", "Not installed, and no object requires it"),
        ([NOT_SERVED, planes(GATEWAY)], "failed", "required by spec.expose.gateway of coder/prod; install its CRDs"),
        ([NOT_SERVED, FORBIDDEN], "skipped", "Not installed; you do not have permission"),
        ([FORBIDDEN], "skipped", ""),
    ],
)
async def test_the_gateway_api(answers: list[Any], outcome: str, message: str) -> None:
    async with Api(*answers) as server, Http(server.config, "test", Metrics()) as http:
        result = await check_gateway_api(Session(http, Client(http, "test"), "", ""))
    assert result.outcome == outcome
    assert message in result.message


PODS = reply({"metadata": {"resourceVersion": "1"}, "items": [pod("a", {}, LABEL), pod("b", RUNNING, LABEL)]})
NO_PODS = reply({"metadata": {"resourceVersion": "1"}, "items": []})
METRICS = reply(b"controller_runtime_reconcile_total 1\n")


@pytest.mark.parametrize(
    ("operator", "answers", "outcome", "message"),
    [
        (deployment(), [PODS, METRICS], "ok", "Pod coder/b serves them on port 8080"),
        (deployment(2, "i", "--metrics-bind-address=:9090"), [PODS, METRICS], "ok", "on port 9090"),
        (deployment(2, "i", "--metrics-bind-address=0"), [NOT_SERVED], "ok", "Disabled by --metrics-bind-address=0"),
        (deployment(), [PODS, reply(b"hello")], "failed", "Pod coder/b does not serve the metrics of the operator"),
        (deployment(), [NO_PODS], "failed", "No pod of the operator is ready"),
        (
            deployment(),
            [PODS, reply(b"no route", 503)],
            "failed",
            "check the log of the operator and its NetworkPolicy",
        ),
        (deployment(), [PODS, FORBIDDEN], "skipped", "forbidden"),
        (None, [NOT_SERVED], "skipped", "No Deployment of the operator is readable in namespace coder"),
    ],
)
async def test_metrics(operator: Any, answers: list[Any], outcome: str, message: str) -> None:
    async with Api(*answers) as server, Http(server.config, "test", Metrics()) as http:
        result = await check_metrics(Session(http, Client(http, "test"), "", ""), Operator("coder", operator))
    assert result.outcome == outcome
    assert message in result.message


def lines(console: Console, *args: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit code, and outcome and message of each check."""
    done = console("check", *args)
    assert done.stderr == ""
    found = {}
    for line in done.stdout.splitlines():
        outcome, _, rest = line.partition("  ")
        name, _, message = rest.strip().partition(": ")
        found[name] = (outcome.strip(), message)
    return done.exit_code, found


def test_a_complete_installation(console: Console, cluster: ClusterAccess, namespace: str) -> None:
    install(cluster, namespace)
    put_lease(cluster, namespace)
    code, found = lines(console, "--operator-namespace", namespace)
    gateway, _ = found.pop("Gateway API")  # control planes of other tests may need it
    assert {name: outcome for name, (outcome, _) in found.items()} == dict.fromkeys(
        ["API server", "CRDs", "operator", "leader", "permissions", "metrics"], "ok"
    )
    assert (code == 0) == (gateway == "ok")
    assert found["leader"][1].startswith("pod-a leads, last seen ")
    cluster.kubectl("delete", "clusterrolebinding", namespace)


def test_metrics_of_a_pod_that_cannot_be_reached(console: Console, cluster: ClusterAccess, namespace: str) -> None:
    install(cluster, namespace, "--log-level=info")
    put(cluster, SERVICE_ACCOUNT, namespace, made(SERVICE_ACCOUNT, "default"))
    put(cluster, POD, namespace, pod("coder-k8s-0", RUNNING, LABEL))
    _, found = lines(console, "--operator-namespace", namespace)
    outcome, message = found["metrics"]
    assert outcome == "failed"
    assert message.startswith("Not served: ")
    assert "not found" not in message
    cluster.kubectl("delete", "clusterrolebinding", namespace)


def test_the_generated_roles_are_sufficient(console: Console, operator_kubeconfig: Path) -> None:
    _, found = lines(console)
    assert found["permissions"][0] == "ok"
    assert found["permissions"][1].startswith("ServiceAccount coder-system/coder-k8s has all ")


def test_nothing_is_installed(console: Console, namespace: str) -> None:
    code, found = lines(console, "--operator-namespace", namespace)
    assert code == 1
    assert found["operator"] == (
        "failed",
        f"No Deployment in namespace {namespace}; install the operator or set --operator-namespace",
    )
    assert found["leader"][0] == "failed"
    outcome, message = found["permissions"]
    assert outcome == "failed"
    assert message.startswith(f"ServiceAccount {namespace}/coder-k8s cannot ")
    assert message.endswith(" more; upgrade the chart, or apply config/rbac")


def test_a_user_without_permissions(console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path) -> None:
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", None)
    code, found = lines(console, "--kubeconfig", str(config))
    assert code == 0
    assert found.pop("API server")[0] == "ok"
    assert {name: outcome for name, (outcome, _) in found.items() if name != "Gateway API"} == dict.fromkeys(
        ["CRDs", "operator", "leader", "permissions", "metrics"], "skipped"
    )


@pytest.mark.slow
async def test_wait(kubeconfig: Path, cluster: ClusterAccess, namespace: str, crds: None) -> None:
    install(cluster, namespace)
    metrics = Metrics()
    async with Http(load(kubeconfig), "test", metrics) as http:
        session = Session(http, Client(http, "test"), "", "")
        checking = asyncio.create_task(check_all(session, namespace, wait=30))

        def reviews() -> float:
            return sample_value(metrics.registry, "rest_client_requests_total", code="201", method="POST") or 0

        await eventually(lambda: reviews() > 0, 60)  # the first attempt has read that there is no Lease
        put_lease(cluster, namespace)
        results = await checking
    others = [result for result in results if result.name != "Gateway API"]  # control planes of other tests may need it
    assert {result.outcome for result in others} == {"ok"}
    assert reviews() >= 2 * len(set(required(rbac.declared(), namespace, [])))
    cluster.kubectl("delete", "clusterrolebinding", namespace)
