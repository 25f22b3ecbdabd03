"""A fake kubelet that serves logs to the API server."""

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
from tests.support.tls_servers import stop

NODE = Kind("", "v1", "Node", "nodes", Unstructured, namespaced=False)


@asynccontextmanager
async def node(cluster: ClusterAccess, name: str, folder: Path, logs: dict[str, str]) -> AsyncIterator[None]:
    """A node with these logs, by `POD/CONTAINER`; `POD/CONTAINER/previous` for the previous instance."""

    async def handle(request: web.Request) -> web.Response:
        parts, query = request.match_info, request.query
        previous = "/previous" if query.get("previous") == "true" else ""
        log = logs[f"{parts['pod']}/{parts['container']}{previous}"].encode()
        tail = b"".join(log.splitlines(keepends=True)[-int(query["tailLines"]) :])
        return web.Response(body=tail[: int(query["limitBytes"])])  # like a kubelet, which cuts the end

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", handle)
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
        await stop(runner)
