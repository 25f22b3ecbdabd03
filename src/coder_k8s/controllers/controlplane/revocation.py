"""Revokes the token that the operator made for a control plane, once the spec does not want it any more.

The database is asked first. Where that fails, coderd is: `kubectl delete -f` may delete the Secret with the URL of the
database together with the control plane, whose pods go on serving until its token is revoked.
"""

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd import access_db
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.controllers.children import Children, controlled_by
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import SECRET, SERVICE
from coder_k8s.kube.objects import Child

from .database import URLMissing, connection_url
from .tokens import secret_name, token_in


class Revocation:
    """Deletes the token in the database, then its Secret: while there is a Secret, there is something to revoke."""

    def __init__(self, client: Client, children: Children, connections: Connections, recorder: Recorder) -> None:
        self._client = client
        self._children = children
        self._connections = connections
        self._recorder = recorder

    def is_due(self, plane: CoderControlPlane) -> bool:
        """Whether there may be a token of the operator's own that the spec does not ask for."""
        given = plane.spec.operator_access.token_secret_ref
        named = plane.status.operator_token_secret_ref
        return bool(self._made(plane)) or (named is not None and (given is None or named.name != given.name))

    async def revoke(self, plane: CoderControlPlane, why: str) -> None:
        """Raises what the database says when nobody deletes the token; nothing happens when there is none."""
        made = self._made(plane)
        try:
            await self._in_database(plane, made)
        except (URLMissing, coderd_errors.AccessError):
            if not await self._in_coderd(plane, made):
                raise
        for one in made:
            await self._children.delete(SECRET, one)
        if made:
            self._recorder.normal(CONTROL_PLANE, plane, "OperatorTokenRevoked", why)

    async def _in_database(self, plane: CoderControlPlane, made: list[Child]) -> None:
        try:
            url = await connection_url(self._client, plane)
        except URLMissing:
            if made or self._is_generated(plane):
                raise
            return  # the token in use was given: no database was ever needed
        await self._children.confirm(plane)
        await access_db.revoke(url, access_db.token_name(plane.metadata.namespace, plane.metadata.name))

    async def _in_coderd(self, plane: CoderControlPlane, made: list[Child]) -> bool:
        """Whether coderd, if it is this control plane's own, knows none of the tokens any more."""
        if not made or controlled_by(plane, self._children.get(SERVICE, plane.key)) is None:
            return False
        await self._children.confirm(plane)
        for one in made:
            coderd = Coderd(self._connections, api_url(plane), token_in(one))
            try:
                await coderd.revoke_own_token()
                await coderd.me()
            except coderd_errors.Unauthorized:
                continue
            except coderd_errors.CoderdError:
                return False
            return False  # it is still accepted
        return True

    def _made(self, plane: CoderControlPlane) -> list[Child]:
        """The Secrets with tokens of the operator's own; one that the spec gives to the operator is the user's."""
        given = plane.spec.operator_access.token_secret_ref
        kept = given.name if given else ""
        return [each for each in self._children.owned(SECRET, plane) if each.metadata.name != kept]

    def _is_generated(self, plane: CoderControlPlane) -> bool:
        named = plane.status.operator_token_secret_ref
        return named is not None and named.name == secret_name(plane)
