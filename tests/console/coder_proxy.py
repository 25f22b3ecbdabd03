"""A control plane whose Coder commands reach through the API server."""

from typing import Any

import aiohttp
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer
from tests.console.manifests import READY, plane, put, with_conditions
from tests.support.forwarding import Forwarder


class ApiServerWithCoder(Forwarder):
    """An API server whose proxy of the Service reaches the simulator; a real one connects only to pods."""

    def __init__(self, cluster: ClusterAccess, namespace: str, coderd: CoderdServer) -> None:
        super().__init__(cluster)
        self._prefix = f"/api/v1/namespaces/{namespace}/services/demo:http/proxy"
        self._coderd = coderd
        self.workspaces: dict[str, dict[str, Any]] = {}
        """Responses for workspaces, by OWNER/NAME; the simulator has none."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if not request.path.startswith(self._prefix):
            return await super().handle(request)
        owner_and_name = request.path.removeprefix(f"{self._prefix}/api/v2/users/").replace("/workspace/", "/")
        if owner_and_name in self.workspaces:
            return web.json_response(self.workspaces[owner_and_name])
        # Like the API server, without the credentials of the user.
        headers = {name: value for name, value in request.headers.items() if name.startswith("Coder-")}
        url = self._coderd.url + request.raw_path.removeprefix(self._prefix)
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
            return web.Response(status=response.status, body=await response.read(), content_type="application/json")


def make_plane(cluster: ClusterAccess, namespace: str, token: str) -> None:
    secret = "demo-operator-token"
    status = with_conditions(READY, operatorTokenSecretRef={"name": secret, "key": "token"})
    put(cluster, CONTROL_PLANE, namespace, plane("demo", status))
    if token:
        cluster.kubectl("create", "secret", "generic", secret, f"--from-literal=token={token}", "-n", namespace)
