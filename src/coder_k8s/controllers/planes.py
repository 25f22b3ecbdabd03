"""The control planes that other objects name."""

from coder_k8s.api import CoderControlPlane
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.objects import Key

from .secrets import SecretReader
from .urls import api_url


class Planes:
    """Finds control planes, and the operator's own way into their coderd."""

    def __init__(self, planes: Cache[CoderControlPlane], secrets: SecretReader, connections: Connections) -> None:
        self._planes = planes
        self._secrets = secrets
        self._connections = connections

    def get(self, key: Key) -> CoderControlPlane | None:
        """The control plane, unless it is gone or going."""
        found = self._planes.get(key)
        return None if found is None or found.deleting else found

    async def coderd(self, plane: CoderControlPlane) -> Coderd | None:
        """Its coderd, seen with the operator's token; nothing before there is one."""
        where = plane.status.operator_token_secret_ref
        if where is None or not plane.status.operator_access_ready:
            return None
        token = await self._secrets.read(Key(plane.metadata.namespace, where.name), where.key)
        return Coderd(self._connections, api_url(plane), token) if token else None
