"""The control planes that other objects name."""

from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.api.shared import SecretKey
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SERVICE
from coder_k8s.kube.objects import Key

from .children import controlled_by
from .context import Context
from .urls import api_url


class ControlPlaneResolver:
    """Finds control planes, and the operator's own way into their coderd."""

    def __init__(self, context: Context[Any]) -> None:
        self._client = context.client
        self._planes = context.runtime.informer(CONTROL_PLANE)
        self._secrets = context.reader
        self._connections = context.runtime.coderd

    def get(self, key: Key) -> CoderControlPlane | None:
        """The control plane to work with: not one that is being deleted."""
        found = self.find(key)
        return None if found is None or found.deleting else found

    def why_absent(self, key: Key) -> str:
        """Why there is no control plane to work with."""
        if self.find(key) is not None:
            return f"CoderControlPlane {key.name} is being deleted"
        return f"there is no CoderControlPlane {key.name}"

    def find(self, key: Key) -> CoderControlPlane | None:
        """The control plane, also while it is being deleted: its coderd serves until keys and proxies are gone."""
        return self._planes.get(key)

    async def coderd(self, plane: CoderControlPlane) -> Coderd | None:
        """Its coderd with the operator's token; `None` while there is no token that works.

        Nobody checks the token of a control plane that is being deleted, so it is used as it is. It goes to no Service
        of another owner, which for other control planes `operatorAccessReady` rules out.
        """
        where = token_reference(plane)
        if where is None or not (plane.status.operator_access_ready or plane.deleting):
            return None
        if plane.deleting and await self._is_service_taken(plane):
            return None
        token = await self._secrets.read(Key(plane.metadata.namespace, where.name), where.key)
        return Coderd(self._connections, api_url(plane), token) if token else None

    async def _is_service_taken(self, plane: CoderControlPlane) -> bool:
        try:
            return controlled_by(plane, await self._client.get(SERVICE, plane.key)) is None
        except errors.NotFound:
            return False

    def has_lost_access(self, plane: CoderControlPlane) -> bool:
        """Whether there is no token and there will be none: a control plane that is being deleted gets no new one."""
        if plane.spec.operator_access.disabled:
            return True
        where = token_reference(plane)
        return plane.deleting and (where is None or not self._secrets.exists(Key(plane.metadata.namespace, where.name)))


def token_reference(plane: CoderControlPlane) -> SecretKey | None:
    """Where the operator's token is; beside a given token the status names a generated one until it is revoked."""
    given = plane.spec.operator_access.token_secret_ref
    return SecretKey(name=given.name, key=given.key) if given else plane.status.operator_token_secret_ref
