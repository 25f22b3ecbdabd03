"""Clients for the coderd of the control planes that other objects refer to."""

from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, ControlPlaneCondition, reasons
from coder_k8s.api.shared import SecretKey
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import SERVICE
from coder_k8s.kube.objects import Key

from .children import controlled_by
from .context import Context
from .urls import api_url


class CoderdResolver:
    """Finds control planes, and creates clients with the operator's token or with a token that a user provides."""

    def __init__(self, context: Context[Any]) -> None:
        self._client = context.client
        self._planes = context.runtime.informer(CONTROL_PLANE)
        self._secrets = context.reader
        self._connections = context.runtime.coderd

    def get(self, key: Key) -> CoderControlPlane | None:
        """The control plane, unless it is being deleted."""
        found = self.find(key)
        return None if found is None or found.deleting else found

    async def why_absent(self, key: Key) -> str:
        """Why `get` finds no control plane. Raise `Conflict` if it exists, and the cache does not have it yet."""
        if self.find(key) is not None:
            return f"CoderControlPlane {key.name} is being deleted"
        await self._client.confirm(CONTROL_PLANE, key, None)
        return f"CoderControlPlane {key.name} does not exist; create it or correct controlPlaneRef.name"

    def waiting_for_access(self, plane: CoderControlPlane) -> str:
        """Why there is no client with the operator's token."""
        name = plane.metadata.name
        if plane.spec.operator_access.disabled:
            return f"Operator access of CoderControlPlane {name} is disabled; enable it or set bootstrap"
        if not _is_licensed(plane):
            return f"Waiting for CoderControlPlane {name} to apply its license"
        return f"Waiting for operator access of CoderControlPlane {name}; see its condition OperatorAccessReady"

    def find(self, key: Key) -> CoderControlPlane | None:
        """The control plane, also while it is being deleted: its coderd runs until keys and proxies are removed."""
        return self._planes.get(key)

    async def with_given_token(self, url: str, secret: Key, field: str) -> Coderd | None:
        """A client with a token that a user provides; `None` if the Secret has no token."""
        token = await self._secrets.read(secret, field)
        return Coderd(self._connections, url, token) if token else None

    async def with_operator_token(self, plane: CoderControlPlane) -> Coderd | None:
        """A client with the operator's token for a control plane; `None` while there is no token that works.

        The token of a control plane that is being deleted is no longer checked, and used as it is. It is not sent to a
        Service of another owner; for other control planes, `operatorAccessReady` excludes that.
        """
        where = token_reference(plane)
        if where is None or not (plane.deleting or (plane.status.operator_access_ready and _is_licensed(plane))):
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
        """Whether there is no token and will be none: a control plane that is being deleted gets no new one."""
        if plane.spec.operator_access.disabled:
            return True
        where = token_reference(plane)
        return plane.deleting and (where is None or not self._secrets.exists(Key(plane.metadata.namespace, where.name)))


def _is_licensed(plane: CoderControlPlane) -> bool:
    """Whether the control plane does not wait to upload its first license, without which Coder rejects requests."""
    applied = find(plane.status.conditions, ControlPlaneCondition.LICENSE_APPLIED)
    first = plane.spec.license_secret_ref is not None and not plane.status.license_last_applied_hash
    return not (first and applied is not None and applied.reason == reasons.PENDING)


def token_reference(plane: CoderControlPlane) -> SecretKey | None:
    """The Secret with the operator's token; the status may still name a generated one after a user provided another."""
    given = plane.spec.operator_access.token_secret_ref
    return SecretKey(name=given.name, key=given.key) if given else plane.status.operator_token_secret_ref
