"""Revokes the token that the operator created for a control plane, when the spec no longer requires it.

The token is deleted in the database or, if that fails, by coderd: `kubectl delete -f` may delete the Secret with the
URL of the database together with the control plane, whose pods keep running until its token is revoked.
"""

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, events
from coder_k8s.coderd import access_db
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.children import controlled_by
from coder_k8s.controllers.cleanup import CONTROL_PLANE_FINALIZER
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.secrets import value
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SECRET, SERVICE
from coder_k8s.kube.objects import Key, Unstructured

from .database import URLMissing, connection_url
from .tokens import TOKEN, secret_name


class TokenLeft(Exception):
    """The token is not revoked; the message has the cause."""


class SecretLeft(Exception):
    """The token is revoked, but the API server rejects the deletion of its Secret."""


class Revocation:
    """Deletes the token in Coder, then its Secret.

    A control plane has a token while it controls a Secret, or its status names the generated one. The Secret is
    written before the token is created, and the status names it until the token is revoked. A Secret that is being
    deleted counts only if the status names it: after a revocation, a finalizer of another controller may keep it.
    """

    def __init__(self, context: Context[CoderControlPlane]) -> None:
        self._client = context.client
        self._children = context.children
        self._secrets = context.secrets
        self._connections = context.runtime.coderd
        self._recorder = context.recorder
        self._finalizers = context.finalizers
        self._deleted: dict[Key, frozenset[str]] = {}
        """The IDs of tokens that coderd deleted, by control plane."""

    def forget(self, key: Key) -> None:
        self._deleted.pop(key, None)

    async def add_finalizer(self, plane: CoderControlPlane) -> None:
        """Add the finalizer that must exist before a token is created."""
        await self._finalizers.add(plane, CONTROL_PLANE_FINALIZER)

    def has_token(self, plane: CoderControlPlane) -> bool:
        """Whether there may be a token that the operator created."""
        kept = [each for each in self._children.owned(SECRET, plane) if not each.deleting]
        return bool(kept) or self._is_recorded(plane)

    def is_due(self, plane: CoderControlPlane) -> bool:
        """Whether there may be such a token that the spec does not require."""
        given = _kept(plane)
        kept = [each for each in self._unwanted(plane) if not each.deleting]
        return bool(kept) or (self._is_recorded(plane) and given != secret_name(plane))

    async def revoke(self, plane: CoderControlPlane, why: str) -> None:
        """Delete the token and its Secret. Raise `TokenLeft` if neither the database nor coderd deletes the token."""
        secrets = self._unwanted(plane) or await self._unlabelled(plane)
        try:
            await self._in_database(plane)
        except (URLMissing, coderd_errors.AccessError, errors.Forbidden) as error:
            if not await self._in_coderd(plane, secrets):
                left = f"The token in Secret {secret_name(plane)} is not revoked yet: {error}"
                raise TokenLeft(left) from None
        for secret in secrets:
            try:
                await self._children.delete(SECRET, secret)
            except (errors.Forbidden, errors.Invalid) as error:
                left = f"The token is revoked, but Secret {secret.metadata.name} cannot be deleted: {error.message}"
                raise SecretLeft(left) from None
        if secrets:
            note = f"Revoked the operator token: {why}"
            self._recorder.record(CONTROL_PLANE, plane, events.OPERATOR_TOKEN_REVOKED, note)

    async def _in_database(self, plane: CoderControlPlane) -> None:
        url = await connection_url(self._client, plane)
        await self._children.confirm(plane)
        await access_db.revoke(url, access_db.token_name(plane.metadata.namespace, plane.metadata.name))

    async def _in_coderd(self, plane: CoderControlPlane, secrets: list[Unstructured]) -> bool:
        """Delete the token of each Secret through the coderd of this control plane; returns whether all are deleted.

        If coderd rejects the content of a Secret, the token may still exist: the Secret may have been edited.
        """
        if not secrets or controlled_by(plane, self._children.get(SERVICE, plane.key)) is None:
            return False
        await self._children.confirm(plane)
        for token in {value(secret, TOKEN) for secret in secrets}:
            identifier = token.partition("-")[0]
            if identifier in self._deleted.get(plane.key, ()):
                continue
            coderd = Coderd(self._connections, api_url(plane), token)
            try:
                if (await coderd.me()).username != access_db.USERNAME:
                    return False
                await coderd.revoke_own_token()
            except coderd_errors.CoderdError:
                return False
            self._deleted[plane.key] = self._deleted.get(plane.key, frozenset()) | {identifier}
        return True

    def _unwanted(self, plane: CoderControlPlane) -> list[Unstructured]:
        """The Secrets with tokens that the operator created, except one that `tokenSecretRef` names."""
        return [each for each in self._children.owned(SECRET, plane) if each.metadata.name != _kept(plane)]

    async def _unlabelled(self, plane: CoderControlPlane) -> list[Unstructured]:
        """The generated Secret if it lost its labels, without which it is not in the cache of children."""
        key = Key(plane.metadata.namespace, secret_name(plane))
        if key.name == _kept(plane) or self._secrets.get(key) is None:
            return []
        found = controlled_by(plane, await self._children.fetch(SECRET, key, expected=True))
        return [found] if found else []

    def _is_recorded(self, plane: CoderControlPlane) -> bool:
        """Whether the status names the generated Secret, and no other owner has a Secret of that name now."""
        named, name = plane.status.operator_token_secret_ref, secret_name(plane)
        if named is None or named.name != name:
            return False
        found = self._secrets.get(Key(plane.metadata.namespace, name))
        return found is None or found.is_controlled_by(plane)


def _kept(plane: CoderControlPlane) -> str:
    """The Secret of `tokenSecretRef`; none for a control plane that is being deleted, which keeps no token."""
    given = plane.spec.operator_access.token_secret_ref
    return given.name if given and not plane.deleting else ""
