"""Templates, and the coderd simulator that imports them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from coder_k8s.api import CONTROL_PLANE, TEMPLATE, CoderTemplate
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.template import wiring
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.templates import Template, Version
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest
from tests.support import eventually, objects
from tests.support.clients import UserClient
from tests.support.clock import Clock
from tests.support.namespaces import Namespace
from tests.support.operators import Builder, Operator

NAME = "go"
PLANE = "demo"
FINALIZER = "coder.com/template-cleanup"
WRITES = ("POST", "PATCH", "PUT", "DELETE")


def inline(content: str = "# one") -> Manifest:
    return {"inline": {"files": {"main.tf": content}}}


class TemplateNamespace(Namespace[CoderTemplate]):
    """A namespace with a template, and a control plane whose coderd is the simulator."""

    kind = TEMPLATE
    builders: tuple[Builder, ...] = (wiring.build,)

    def __init__(self, client: Client, kubeconfig: Path, key: Key, coderd: CoderdServer, clock: Clock) -> None:
        super().__init__(client, kubeconfig, key, clock)
        self.coderd = coderd

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        host = f"{PLANE}.{self.namespace}.svc.cluster.local"
        return {Endpoint(host, 80): Endpoint("127.0.0.1", self.coderd.port)}

    async def make(self, name: str = "", **spec: Any) -> CoderTemplate:
        return await super().make(name, **{"controlPlaneRef": {"name": PLANE}, "source": inline(), **spec})

    async def make_plane(self, **status: Any) -> None:
        """Create a control plane whose coderd is the simulator, with operator access."""
        await self.put_secret(f"{PLANE}-operator-token", token=self.coderd.state.token)
        await objects.create(self.client, CONTROL_PLANE, self.key_of(PLANE), {"image": "coder:v2.36.1"})
        await self.set_plane_status(**{**objects.ready_plane_status(self.key_of(PLANE)), **status})

    async def set_plane_status(self, **status: Any) -> None:
        await self.client.merge(CONTROL_PLANE, self.key_of(PLANE), {"status": status}, "status")

    @property
    def versions(self) -> list[Version]:
        """The versions of all templates, the oldest first."""
        return list(self.coderd.state.templates.versions.values())

    @property
    def template(self) -> Template:
        """The only template that is not deleted."""
        [found] = [each for each in self.coderd.state.templates.templates.values() if not each.deleted]
        return found

    async def pending_version(self, number: int = 1) -> Version:
        """Wait until there are so many versions, and return the newest."""
        await eventually(lambda: len(self.versions) == number)
        return self.versions[-1]

    def finish(self, version: Version, error: str = "", error_code: str = "") -> None:
        """Complete the import of a version."""
        self.coderd.state.queue.finish_job(version.job, error, error_code)

    async def import_next(self, operator: Operator, number: int = 1) -> Version:
        """Wait for a version, complete its import, and let the operator see that."""
        version = await self.pending_version(number)
        await self.condition("Imported", "Importing", "False")
        await operator.wait_idle()
        self.finish(version)
        await operator.later(seconds=6)
        return version

    async def ready(self, operator: Operator) -> CoderTemplate:
        """Create the template, and wait until it is Ready."""
        await self.import_next(operator)
        await self.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        return await self.get()

    def delete_in_coder(self) -> None:
        """Delete the template as an administrator does."""
        found = self.template
        self.coderd.state.templates.templates[found.id] = replace(found, deleted=True)

    def writes(self) -> int:
        """The number of changing requests to coderd."""
        return sum(number for (method, _), number in self.coderd.state.requests.items() if method in WRITES)


@asynccontextmanager
async def template_namespace(
    admin: Path, operator: Path, namespace: str, version: str = "2.36.1"
) -> AsyncIterator[TemplateNamespace]:
    clock = Clock.at_present()
    async with CoderdServer(version, now=clock) as coderd, Http(load(admin), "user", Metrics()) as http:
        coderd.state.connect_daemon("built-in")
        made = TemplateNamespace(UserClient(http, "user"), operator, Key(namespace, NAME), coderd, clock)
        await made.make_plane()
        yield made
