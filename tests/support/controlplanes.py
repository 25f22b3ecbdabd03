"""A control plane whose coderd is the simulator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd.access_db import USERNAME, token_name
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest
from tests.support.clients import UserClient
from tests.support.clock import Clock
from tests.support.databases import CoderdDatabase, create_database
from tests.support.namespaces import Namespace
from tests.support.operators import Builder

LICENSES = "/api/v2/licenses"
CONNECTION_URL = "CODER_PG_CONNECTION_URL"


class PlaneNamespace(Namespace[CoderControlPlane]):
    """A namespace with a control plane and its coderd."""

    kind = CONTROL_PLANE
    builders: tuple[Builder, ...] = (wiring.build,)

    def __init__(self, client: Client, kubeconfig: Path, key: Key, coderd: CoderdServer, clock: Clock) -> None:
        super().__init__(client, kubeconfig, key, clock)
        self.coderd = coderd

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        host = f"{self.name}.{self.namespace}.svc.cluster.local"
        return {Endpoint(host, 80): Endpoint("127.0.0.1", self.coderd.port)}

    async def token(self, secret: str = "") -> str:
        """The operator token in a Secret; empty if there is none."""
        return await self.secret_value(secret or f"{self.name}-operator-token", "token")


@asynccontextmanager
async def plane_namespace(
    admin: Path,
    operator: Path,
    namespace: str,
    *,
    version: str = "2.36.1",
    database_url: str | None = None,
    name: str = "demo",
    clock: Clock | None = None,
) -> AsyncIterator[PlaneNamespace]:
    """A namespace for a control plane, with its coderd."""
    clock = clock or Clock()
    async with (
        CoderdServer(version, now=clock, database_url=database_url) as coderd,
        Http(load(admin), "administrator", Metrics()) as http,
    ):
        coderd.state.health.set_health("provisioner_daemons")  # healthy, although it has none
        yield PlaneNamespace(UserClient(http, "administrator"), operator, Key(namespace, name), coderd, clock)


@asynccontextmanager
async def plane_with_token(
    admin: Path, operator: Path, namespace: str, version: str = "2.36.1", **spec: Any
) -> AsyncIterator[PlaneNamespace]:
    """A control plane with a valid token in the Secret `given`."""
    async with plane_namespace(admin, operator, namespace, version=version) as place:
        await place.put_secret("given", token=place.coderd.state.token)
        await place.make(operatorAccess={"tokenSecretRef": {"name": "given"}}, **spec)
        yield place


def value_of(metrics: str, name: str, /, **labels: str) -> float | None:
    """A metric sample by its name and some of its labels."""
    for line in metrics.splitlines():
        if line.startswith(f"{name}{{") and all(f'{label}="{value}"' in line for label, value in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


def env(url: str) -> list[Manifest]:
    return [{"name": CONNECTION_URL, "value": url}]


async def operator_tokens(database: CoderdDatabase) -> list[tuple[str, str]]:
    """ID and name of the operator's tokens."""
    rows = await database.server.fetch(
        "SELECT api_keys.id, token_name FROM api_keys JOIN users ON users.id = user_id WHERE username = $1 ORDER BY 2",
        database.name,
        USERNAME,
    )
    return [(row[0], row[1]) for row in rows]


async def assert_one_token(demo: PlaneNamespace, database: CoderdDatabase) -> str:
    """Assert that the Secret holds the only token of this control plane in the database, and that coderd accepts it."""
    token = await demo.token()
    own = token_name(demo.key.namespace, demo.key.name)
    found = [identifier for identifier, name in await operator_tokens(database) if name in (own, f"{own}-2")]
    assert found == [token.partition("-")[0]]
    return token


@pytest.fixture
async def database(postgres: Postgres) -> CoderdDatabase:
    """A database with coderd's tables."""
    return await create_database(postgres, "2.36.1")


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, database: CoderdDatabase
) -> AsyncIterator[PlaneNamespace]:
    """A control plane whose coderd uses that database."""
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, database_url=database.url) as place:
        yield place
