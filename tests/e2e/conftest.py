from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from tests.e2e.operator_process import OperatorProcess, Start
from tests.support.installation import CONFIG
from tests.support.proxy import Proxy


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Start]:
    """Starts operators with debug logs that end with the test: `launch(kubeconfig, *flags)`.

    No operator may log a defect.
    """
    operators: list[OperatorProcess] = []

    def launch(kubeconfig: Path, *flags: str) -> OperatorProcess:
        name = f"operator-{len(operators)}"
        operator = OperatorProcess(name, tmp_path, kubeconfig, "--log-level=debug", *flags)
        operators.append(operator)
        operator.start()
        return operator

    yield launch
    for operator in operators:
        operator.kill()
    for operator in operators:
        assert not operator.defects, operator.log.name


@pytest.fixture
def start(launch: Start, operator_kubeconfig: Path, crds: None, lease_namespace: str) -> Start:
    """Starts operators on the shared cluster: `start(*flags)`.

    They use the operator's ServiceAccount, share one Lease and watch only the namespace of the test.
    """
    confined = (f"--watch-namespaces={lease_namespace}", f"--leader-election-namespace={lease_namespace}")

    def start(*flags: str, kubeconfig: Path = operator_kubeconfig) -> OperatorProcess:
        return launch(kubeconfig, *confined, *flags)

    return start


@pytest.fixture
def lease_namespace(cluster: ClusterAccess, namespace: str, operator_kubeconfig: Path) -> str:
    """A namespace in which the operator can hold its Lease."""
    roles = list(yaml.safe_load_all((CONFIG / "rbac" / "leader-election.yaml").read_text()))
    for role in roles:
        role["metadata"]["namespace"] = namespace
    cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(roles))
    return namespace


@pytest.fixture
async def admin(cluster: ClusterAccess, crds: None) -> AsyncIterator[Client]:
    """A client with administrator permissions in the shared cluster."""
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        yield Client(http, "test")


@pytest.fixture
async def proxy(operator_kubeconfig: Path) -> AsyncIterator[Proxy]:
    async with Proxy(load(operator_kubeconfig)) as proxy:
        yield proxy


@pytest.fixture
def proxied_kubeconfig(proxy: Proxy, operator_kubeconfig: Path, tmp_path: Path) -> Path:
    return proxy.kubeconfig(operator_kubeconfig, tmp_path / "proxied")
