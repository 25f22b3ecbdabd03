"""As much of a kubelet as an API server asks for logs."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from coder_k8s.dev.certificates import Authority
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.objects import Kind, Unstructured
from tests.console.manifests import made, put

NODE = Kind("", "v1", "Node", "nodes", Unstructured, namespaced=False)


@asynccontextmanager
async def node(cluster: ClusterAccess, name: str, folder: Path, logs: dict[str, str]) -> AsyncIterator[None]:
    """A node whose pods have these logs, by `POD/CONTAINER`, and `POD/CONTAINER/previous` for those before."""

    async def answer(request: web.Request) -> web.Response:
        parts = request.match_info
        previous = "/previous" if request.query.get("previous") == "true" else ""
        return web.Response(text=logs[f"{parts['pod']}/{parts['container']}{previous}"])

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    pair = Authority(folder, "kubelet-ca", datetime.now(UTC)).serving("kubelet", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
    }
    put(cluster, NODE, "", made(NODE, name, status=status, namespace=""))
    try:
        yield
    finally:
        cluster.request("DELETE", f"/api/v1/nodes/{name}")
        await runner.cleanup()
