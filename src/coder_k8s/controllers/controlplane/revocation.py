"""Revokes the token that the operator made for a control plane, once the spec does not want it any more."""

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd import access_db
from coder_k8s.controllers.children import Children
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Child

from .database import URLMissing, connection_url
from .tokens import secret_name


class Revocation:
    """Deletes the token in the database, then its Secret: while there is a Secret, there is something to revoke."""

    def __init__(self, client: Client, children: Children, recorder: Recorder) -> None:
        self._client = client
        self._children = children
        self._recorder = recorder

    def is_due(self, plane: CoderControlPlane) -> bool:
        """Whether there may be a token of the operator's own that the spec does not ask for."""
        given = plane.spec.operator_access.token_secret_ref
        named = plane.status.operator_token_secret_ref
        return bool(self._made(plane)) or (named is not None and (given is None or named.name != given.name))

    async def revoke(self, plane: CoderControlPlane, why: str) -> None:
        """Raises when the database does not let us; nothing happens when there is no token."""
        made = self._made(plane)
        try:
            url = await connection_url(self._client, plane)
        except URLMissing:
            if made or self._is_generated(plane):
                raise
            return  # the token in use was given: no database was ever needed
        await self._children.confirm(plane)
        await access_db.revoke(url, access_db.token_name(plane.metadata.namespace, plane.metadata.name))
        for one in made:
            await self._children.delete(SECRET, one)
        if made:
            self._recorder.normal(CONTROL_PLANE, plane, "OperatorTokenRevoked", why)

    def _made(self, plane: CoderControlPlane) -> list[Child]:
        """The Secrets with tokens of the operator's own; one that the spec gives to the operator is the user's."""
        given = plane.spec.operator_access.token_secret_ref
        kept = given.name if given else ""
        return [each for each in self._children.owned(SECRET, plane) if each.metadata.name != kept]

    def _is_generated(self, plane: CoderControlPlane) -> bool:
        named = plane.status.operator_token_secret_ref
        return named is not None and named.name == secret_name(plane)
