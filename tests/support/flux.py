"""Sources of Flux, without its controllers: the CRDs, and a server for artifacts."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.template.references import FLUX_KINDS
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.go_module import download
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key, Manifest
from tests.support.api import Api, Responder, reply

MODULE, VERSION = "github.com/fluxcd/source-controller", "v1.9.4"
FOLDER = "config/crd/bases"
HOST = "source-controller.flux-system.svc.cluster.local."
SERVICE = """
apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: v1
kind: Service
metadata: {name: source-controller, namespace: flux-system}
spec: {ports: [{port: 80}]}
"""
SPECS: dict[str, Manifest] = {
    "GitRepository": {"interval": "1m", "url": "https://git.example.com/templates"},
    "OCIRepository": {"interval": "1m", "url": "oci://registry.example.com/templates"},
    "Bucket": {"interval": "1m", "bucketName": "templates", "endpoint": "storage.example.com"},
}


def install_flux(cluster: ClusterAccess) -> None:
    """Install the CRDs of sources."""
    with tempfile.TemporaryDirectory() as folder:
        module = download("go", MODULE, VERSION, Path(folder)).folder
        files = [module / FOLDER / f"{kind.group}_{kind.plural}.yaml" for kind in FLUX_KINDS.values()]
        content = "\n---\n".join(file.read_text() for file in files)
    cluster.kubectl("apply", "--server-side", "--filename=-", input=content)
    names = [f"crd/{kind.plural}.{kind.group}" for kind in FLUX_KINDS.values()]
    cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
    cluster.kubectl("apply", "--server-side", "--filename=-", input=SERVICE)


class FluxServer:
    """Serves artifacts by path."""

    def __init__(self, api: Api, responders: dict[str, Responder]) -> None:
        self._api = api
        self._responders = responders

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        return {Endpoint(HOST, 80): Endpoint("127.0.0.1", self._api.port)}

    def serve(self, name: str, responder: Responder) -> str:
        """Add a response, and return its URL."""
        self._responders[f"/{name}"] = responder
        return f"http://{HOST}/{name}"


@asynccontextmanager
async def flux_server() -> AsyncIterator[FluxServer]:
    responders: dict[str, Responder] = {}

    async def respond(request: web.Request) -> web.StreamResponse:
        return await responders.get(request.path, reply(b"", 404))(request)

    async with Api(respond) as api:
        yield FluxServer(api, responders)


async def put_source(client: Client, kind: str, key: Key, artifact: Manifest | None) -> None:
    """Create a source, or change its artifact."""
    found = FLUX_KINDS[kind]
    manifest: dict[str, Any] = {"metadata": {"namespace": key.namespace, "name": key.name}, "spec": SPECS[kind]}
    await client.apply(found, manifest)
    if artifact is not None:
        complete = {"path": "x", "lastUpdateTime": "2026-03-01T12:00:00Z", "revision": "main@sha1:abc", **artifact}
        await client.merge(found, key, {"status": {"artifact": complete}}, "status")
