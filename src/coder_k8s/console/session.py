"""A connection to a cluster for one command."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from coder_k8s import __version__
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.discovery import wait_for_server
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics

FIELD_MANAGER = "kubectl-coder"
"""Differs from the operator's, so that changes of users and of the operator are distinguishable."""
CONNECT_TIMEOUT = 3.0


class CommandFailed(Exception):
    """A command cannot be executed; the message is one line for the user."""


@dataclass(frozen=True)
class ClusterTarget:
    """A cluster and a namespace in it. Defaults to the namespace of the context."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False


@dataclass(frozen=True)
class Session:
    """A connection to a cluster, and the namespace; empty for all namespaces."""

    http: Http
    client: Client
    server: str
    namespace: str

    @property
    def where(self) -> str:
        return f"namespace {self.namespace}" if self.namespace else "the cluster"


@asynccontextmanager
async def connect(target: ClusterTarget, wait: float = 0) -> AsyncIterator[Session]:
    """Connect to a cluster that responds within `wait` seconds, or a few seconds if that is less."""
    config = load(target.kubeconfig, target.context)
    namespace = "" if target.all_namespaces else target.namespace or config.namespace
    async with Http(config, f"kubectl-coder/{__version__}", Metrics()) as http:
        await wait_for_server(http, config.server, asyncio.Event(), max(wait, CONNECT_TIMEOUT))
        yield Session(http, Client(http, FIELD_MANAGER), config.server, namespace)
