"""A short visit to a cluster, with one line to say when it fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.discovery import wait_for_server
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics

FIELD_MANAGER = "kubectl-coder"
"""Not the operator's own: what a person writes must stay apart from what it applies."""
PATIENCE = 3.0


class Refused(Exception):
    """What was asked for cannot be done; the message is one line for a person."""


@dataclass(frozen=True)
class ClusterTarget:
    """Which cluster, and where in it; no namespace means that of the context."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    everywhere: bool = False


@dataclass(frozen=True)
class Session:
    """A cluster that answers, and the namespace that is meant; empty for all of them."""

    http: Http
    client: Client
    server: str
    namespace: str

    @property
    def where(self) -> str:
        return f"namespace {self.namespace}" if self.namespace else "the cluster"


@asynccontextmanager
async def visit(place: ClusterTarget) -> AsyncIterator[Session]:
    config = load(place.kubeconfig, place.context)
    namespace = "" if place.everywhere else place.namespace or config.namespace
    async with Http(config, f"kubectl-coder/{metadata.version('coder-k8s')}", Metrics()) as http:
        await wait_for_server(http, config.server, asyncio.Event(), PATIENCE)
        yield Session(http, Client(http, FIELD_MANAGER), config.server, namespace)
