"""Revokes the token that the operator made for a control plane, once the spec does not want it any more.

The database is asked first. Where that fails, coderd is: `kubectl delete -f` may delete the Secret with the URL of the
database together with the control plane, whose pods go on serving until its token is revoked.
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
    """The token is not revoked; the message says why."""


class SecretLeft(Exception):
    """The token is revoked, and the API server refuses to delete its Secret."""


class Revocation:
    """Deletes the token in Coder, then its Secret.

    A control plane has a token while it controls a Secret, or its status names the generated one. The Secret is
    written before the token is, and status names it until the token is revoked. A Secret that is being deleted counts
    only if status names it: after a revocation it may stay for as long as another controller holds it.
    """

    def __init__(self, context: Context[CoderControlPlane]) -> None:
        self._client = context.client
        self._children = context.children
        self._secrets = context.secrets
        self._connections = context.runtime.coderd
        self._recorder = context.recorder
        self._finalizers = context.finalizers
        self._deleted: dict[Key, frozenset[str]] = {}
        """The ids of tokens that coderd deleted, by control plane."""

    def forget(self, key: Key) -> None:
        self._deleted.pop(key, None)

    async def add_finalizer(self, plane: CoderControlPlane) -> None:
        """Add the finalizer, without which no token is made."""
        await self._finalizers.add(plane, CONTROL_PLANE_FINALIZER)

    def has_token(self, plane: CoderControlPlane) -> bool:
        """Whether there may be a token that the operator made."""
        kept = [each for each in self._children.owned(SECRET, plane) if not each.deleting]
        return bool(kept) or self._is_recorded(plane)

    def is_due(self, plane: CoderControlPlane) -> bool:
        """Whether there may be such a token that the spec does not ask for."""
        given = _kept(plane)
        kept = [each for each in self._unwanted(plane) if not each.deleting]
        return bool(kept) or (self._is_recorded(plane) and given != secret_name(plane))

    async def revoke(self, plane: CoderControlPlane, why: str) -> None:
        """Raises `TokenLeft` when neither the database nor coderd deletes the token."""
        made = self._unwanted(plane) or await self._hidden(plane)
        try:
            await self._in_database(plane)
        except (URLMissing, coderd_errors.AccessError, errors.Forbidden) as error:
            if not await self._in_coderd(plane, made):
                left = f"the token in Secret {secret_name(plane)} is not revoked yet: {error}"
                raise TokenLeft(left) from None
        for one in made:
            try:
                await self._children.delete(SECRET, one)
            except (errors.Forbidden, errors.Invalid) as refusal:
                left = f"the token is revoked, but Secret {one.metadata.name} cannot be deleted: {refusal.message}"
                raise SecretLeft(left) from None
        if made:
            self._recorder.record(CONTROL_PLANE, plane, events.OPERATOR_TOKEN_REVOKED, why)

    async def _in_database(self, plane: CoderControlPlane) -> None:
        url = await connection_url(self._client, plane)
        await self._children.confirm(plane)
        await access_db.revoke(url, access_db.token_name(plane.metadata.namespace, plane.metadata.name))

    async def _in_coderd(self, plane: CoderControlPlane, made: list[Unstructured]) -> bool:
        """Whether coderd, if it is this control plane's own, deleted the token of each Secret.

        That it does not accept the content of a Secret proves nothing: somebody may have edited the Secret.
        """
        if not made or controlled_by(plane, self._children.get(SERVICE, plane.key)) is None:
            return False
        await self._children.confirm(plane)
        for token in {value(one, TOKEN) for one in made}:
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
        """The Secrets with tokens that the operator made, without one that the spec gives to the operator."""
        return [each for each in self._children.owned(SECRET, plane) if each.metadata.name != _kept(plane)]

    async def _hidden(self, plane: CoderControlPlane) -> list[Unstructured]:
        """The Secret if it lost the labels by which the cache has it."""
        key = Key(plane.metadata.namespace, secret_name(plane))
        if key.name == _kept(plane) or self._secrets.get(key) is None:
            return []
        found = controlled_by(plane, await self._children.fetch(SECRET, key, expected=True))
        return [found] if found else []

    def _is_recorded(self, plane: CoderControlPlane) -> bool:
        """Whether status names the generated Secret, unless that is somebody else's by now."""
        named, name = plane.status.operator_token_secret_ref, secret_name(plane)
        if named is None or named.name != name:
            return False
        found = self._secrets.get(Key(plane.metadata.namespace, name))
        return found is None or found.is_controlled_by(plane)


def _kept(plane: CoderControlPlane) -> str:
    """The Secret that the spec gives to the operator; with the control plane, its token goes too if we made it."""
    given = plane.spec.operator_access.token_secret_ref
    return given.name if given and not plane.deleting else ""
