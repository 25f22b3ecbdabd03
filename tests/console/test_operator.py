"""The operator in `status`."""

import asyncio
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.console.operator import Operator, age, operator_node
from coder_k8s.controllers.labels import OPERATOR_VERSION
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.config import load
from coder_k8s.kube.election import Election, ElectionOptions
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key
from coder_k8s.settings import LEASE_NAME
from tests.console.conftest import Console
from tests.console.operators import NOW, deployment, lease
from tests.support.installation import restricted_kubeconfig


@pytest.mark.parametrize(
    ("operator", "state"),
    [
        ({"lease": lease()}, "Running"),
        ({"lease": lease(), "deployment": deployment(0)}, "Running"),
        ({"lease": lease(44)}, "Running"),  # the clocks may differ
        ({"lease": lease(46), "deployment": deployment()}, "NotLeading"),
        ({"lease": lease(holder="")}, "NotLeading"),
        ({"deployment": deployment()}, "Running"),
        ({"deployment": deployment(), "problems": ("leases is forbidden",)}, "Running"),
        ({"deployment": deployment(0)}, "NotReady"),
        ({"problems": ("leases is forbidden",)}, "Unknown"),
        ({}, "NotFound"),
    ],
)
def test_states(operator: dict[str, Any], state: str) -> None:
    node = operator_node(Operator("coder-system", **operator), NOW)
    assert node.state == state
    assert bool(node.message) == (state != "Running")


@pytest.mark.parametrize(
    ("operator", "version"),
    [
        ({"lease": lease(version="0.2.0"), "deployment": deployment()}, "0.2.0"),
        ({"lease": lease(), "deployment": deployment()}, "0.1.0"),
        ({"deployment": deployment(2, "registry:5000/coder-k8s")}, ""),
        ({"deployment": deployment(2, "coder-k8s@sha256:abc")}, ""),
        ({}, ""),
    ],
)
def test_versions(operator: dict[str, Any], version: str) -> None:
    assert operator_node(Operator("coder-system", **operator), NOW).version == version


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s ago"), (1, "1s ago"), (119, "119s ago"), (150, "2m ago"), (9000, "2h ago")]
)
def test_ages(seconds: float, text: str) -> None:
    assert age(operator_node(Operator("coder-system", lease=lease(seconds)), NOW), NOW) == text


def test_settings_of_the_deployment() -> None:
    manifest = deployment(1, "i", "--watch-namespaces=a,b", CODER_K8S_METRICS_BIND_ADDRESS="0")
    operator = Operator("coder-system", manifest)
    assert operator.setting("watch-namespaces") == "a,b"
    assert operator.setting("metrics-bind-address") == "0"
    assert operator.setting("log-level") == ""
    assert operator.service_account == "operator"
    assert operator.elects_leader
    assert not Operator("coder-system", deployment(1, "i", "--no-leader-elect")).elects_leader
    assert not Operator("coder-system", deployment(1, "i", CODER_K8S_LEADER_ELECT="false")).elects_leader


async def test_the_leader_of_a_lease(kubeconfig: Path, console: Console, namespace: str) -> None:
    where = ("--operator-namespace", namespace)
    missing = f"operator {namespace}  not found  Not found in namespace {namespace} (use --operator-namespace)"
    assert (await asyncio.to_thread(console, "status", *where)).output.splitlines()[0] == missing
    async with Http(load(kubeconfig), "test", Metrics()) as http:
        election = Election(
            http,
            Key(namespace, LEASE_NAME),
            "pod-a_1234",
            field_manager="test",
            metrics=Metrics(),
            annotations={OPERATOR_VERSION: metadata.version("coder-k8s")},
            options=ElectionOptions(),
        )
        assert await election.acquire(asyncio.Event())
    (line, empty) = (await asyncio.to_thread(console, "status", *where)).output.splitlines()
    assert line.startswith(f"operator {namespace}  running  {metadata.version('coder-k8s')}, leader pod-a, last seen ")
    assert empty == f"No Coder resources found in namespace {namespace} (use -A for all namespaces)."
    content = json.loads((await asyncio.to_thread(console, "status", "-o", "json", *where)).output)["operator"]
    assert (content["state"], content["leader"], content["namespace"]) == ("Running", "pod-a", namespace)


def test_a_user_who_cannot_read_the_operator(
    console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path, operator_kubeconfig: Path
) -> None:
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", "coder-k8s-view")
    done = console("status", "--kubeconfig", str(config))
    assert done.exit_code == 0
    assert done.output.startswith("operator coder-system  unknown  deployments.apps is forbidden: ")
