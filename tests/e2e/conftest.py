from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml

from coder_k8s.dev.cluster import ClusterAccess
from tests.e2e.operator_process import OperatorProcess
from tests.support.api_proxy import ApiProxy
from tests.support.operator import CONFIG

Start = Callable[..., OperatorProcess]


@pytest.fixture
def lease_namespace(cluster: ClusterAccess, namespace: str, operator_kubeconfig: Path) -> str:
    """A namespace in which the operator may hold its Lease, as it may in its own."""
    roles = list(yaml.safe_load_all((CONFIG / "rbac" / "leader-election.yaml").read_text()))
    for role in roles:
        role["metadata"]["namespace"] = namespace
    cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(roles))
    return namespace


@pytest.fixture
def start(operator_kubeconfig: Path, crds: None, lease_namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Starts operators under their own ServiceAccount, which compete for one Lease."""
    operators: list[OperatorProcess] = []

    def start(*flags: str, kubeconfig: Path = operator_kubeconfig) -> OperatorProcess:
        name = f"operator-{len(operators)}"
        operator = OperatorProcess(name, tmp_path, kubeconfig, "--leader-election-namespace", lease_namespace, *flags)
        operators.append(operator)
        operator.start()
        return operator

    yield start
    for operator in operators:
        operator.kill()


@pytest.fixture
async def proxy(cluster: ClusterAccess) -> AsyncIterator[ApiProxy]:
    async with ApiProxy().before(cluster.url, cluster.ca_path) as proxy:
        yield proxy


@pytest.fixture
def proxied_kubeconfig(proxy: ApiProxy, operator_kubeconfig: Path, tmp_path: Path) -> Path:
    return proxy.kubeconfig(operator_kubeconfig, tmp_path / "proxied")
