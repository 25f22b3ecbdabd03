"""The operator's own way into coderd's API, told as the condition `OperatorAccessReady`."""

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.api.conditions import ControlPlaneCondition
from coder_k8s.api.shared import SecretKey, TokenSecret
from coder_k8s.coderd import access_db
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.names import derived
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube import errors
from coder_k8s.kube.apply import NotOurs
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Glimpse, Key, Manifest

from .database import URLMissing, connection_url
from .objects import metadata

READY = ControlPlaneCondition.OPERATOR_ACCESS_READY
TOKEN = "token"  # noqa: S105 - a name, not a token
RETRY = 30.0
TRUST = timedelta(hours=1)
"""How long a token that worked is taken to work, unless coderd says otherwise."""


class Blocked(Exception):
    """Why there is no access now; a reason of the condition."""

    def __init__(self, reason: str, message: str, *, stalled: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.stalled = stalled


class Proof(NamedTuple):
    """A token that worked, and until when that is enough."""

    token: str
    until: datetime

    def __repr__(self) -> str:
        return f"Proof(until={self.until})"


class OperatorAccess:
    """Has a token for the API of each control plane: the one it is given, or one of its own made by SQL."""

    def __init__(
        self,
        client: Client,
        children: Children,
        secrets: Cache[Glimpse],
        connections: Connections,
        recorder: Recorder,
        now: Callable[[], datetime],
        rng: Random,
    ) -> None:
        self._client = client
        self._children = children
        self._secrets = secrets
        self._connections = connections
        self._recorder = recorder
        self._now = now
        self._rng = rng
        self._proofs: dict[Key, Proof] = {}

    async def ensure(self, plane: CoderControlPlane, serving: bool, report: Report) -> Coderd | None:
        """A client with a token that works, if there is one."""
        wanted = plane.spec.operator_access
        report.fields |= {"operator_access_ready": False, "operator_token_secret_ref": None}
        if wanted.disabled:
            await self._disable(plane, report)
            return None
        given = wanted.token_secret_ref
        try:
            token = await (self._given(plane, given, serving) if given else self._generated(plane))
        except Blocked as trouble:
            holds = None if trouble.reason == "Pending" else False
            report.add(READY, holds, trouble.reason, str(trouble), stalled=trouble.stalled)
            report.again(RETRY)
            if holds is False:
                self._recorder.warning(CONTROL_PLANE, plane, "OperatorAccessFailed", str(trouble))
            return None
        report.add(READY, True, "TokenReady")
        where = SecretKey(name=given.name, key=given.key) if given else SecretKey(name=secret_name(plane), key=TOKEN)
        report.fields |= {"operator_access_ready": True, "operator_token_secret_ref": where}
        return Coderd(self._connections, api_url(plane), token)

    def distrust(self, key: Key) -> None:
        """coderd said that the token is bad, or the control plane is gone: no proof holds any more."""
        self._proofs.pop(key, None)

    async def _given(self, plane: CoderControlPlane, given: TokenSecret, serving: bool) -> str:
        token = await self._read(Key(plane.metadata.namespace, given.name), given.key)
        if not token:
            raise Blocked("SecretUnavailable", f"there is no key {given.key} in Secret {given.name}", stalled=True)
        if self._proven(plane, token):
            return token
        if not serving:
            raise Blocked("Pending", "waiting for a pod that is ready")
        try:
            await Coderd(self._connections, api_url(plane), token).me()
        except coderd_errors.Unauthorized as refusal:
            raise Blocked(
                "TokenRejected", f"coderd refuses the token of Secret {given.name}: {refusal}", stalled=True
            ) from None
        except coderd_errors.CoderdError as trouble:
            raise Blocked("Pending", f"the token could not be checked: {trouble}") from None
        self._proofs[plane.key] = Proof(token, self._now() + TRUST)
        return token

    async def _generated(self, plane: CoderControlPlane) -> str:
        current = self._current(plane)
        if not self._proven(plane, current):
            current = await self._issue(plane, current)
        return current

    async def _issue(self, plane: CoderControlPlane, current: str) -> str:
        """Keep, renew or make the token. The Secret has the new one before the old one is deleted."""
        name = access_db.token_name(plane.metadata.namespace, plane.metadata.name)
        try:
            url = await connection_url(self._client, plane)
            grant = await access_db.ensure_token(url, name, current, now=self._now(), rng=self._rng)
            await self._children.apply(SECRET, secret(plane, grant.token))
            if grant.stale:
                await access_db.retire(url, name, grant.token)
        except URLMissing as missing:
            raise Blocked("DatabaseURLMissing", str(missing), stalled=True) from None
        except coderd_errors.MigrationsPending as waiting:
            raise Blocked("Pending", str(waiting)) from None
        except coderd_errors.AccessError as trouble:
            stalled = isinstance(trouble, coderd_errors.UsernameTaken | coderd_errors.SchemaUnsupported)
            raise Blocked(trouble.reason, str(trouble), stalled=stalled) from None
        except NotOurs as taken:
            raise Blocked("SecretUnavailable", str(taken), stalled=True) from None
        if grant.new:
            self._recorder.normal(
                CONTROL_PLANE, plane, "OperatorTokenIssued", f"a token is in Secret {secret_name(plane)}"
            )
        await self._children.prune(SECRET, plane, keep=[secret_name(plane)])
        self._proofs[plane.key] = Proof(grant.token, self._now() + TRUST)
        return grant.token

    async def _disable(self, plane: CoderControlPlane, report: Report) -> None:
        """Revoke what was made. The Secret goes last: while it is there, there is something to revoke."""
        self.distrust(plane.key)
        made = self._children.owned(SECRET, plane)
        if made:
            try:
                url = await connection_url(self._client, plane)
                await access_db.revoke(url, access_db.token_name(plane.metadata.namespace, plane.metadata.name))
            except (URLMissing, coderd_errors.AccessError) as trouble:
                report.add(READY, False, "Disabled", f"the token is not revoked yet: {trouble}", settled=False)
                report.again(RETRY)
                return
            for one in made:
                await self._children.delete(SECRET, one)
            self._recorder.normal(CONTROL_PLANE, plane, "OperatorTokenRevoked", "operatorAccess.disabled is set")
        report.add(READY, False, "Disabled", "operatorAccess.disabled is set", settled=True)

    def _current(self, plane: CoderControlPlane) -> str:
        """The token that we have, also under the name that the Secret had before."""
        names = [secret_name(plane)]
        if plane.status.operator_token_secret_ref is not None:
            names.append(plane.status.operator_token_secret_ref.name)
        owned = {one.metadata.name: one for one in self._children.owned(SECRET, plane)}
        if names[0] not in owned:
            self.distrust(plane.key)  # it is not where it should be, however well it works
            if self._secrets.get(Key(plane.metadata.namespace, names[0])) is not None:
                raise Blocked("SecretUnavailable", f"Secret {names[0]} exists and is not ours", stalled=True)
        for name in names:
            if (found := owned.get(name)) is not None:
                return _decode((found.manifest.get("data") or {}).get(TOKEN, ""))
        return ""

    def _proven(self, plane: CoderControlPlane, token: str) -> bool:
        proof = self._proofs.get(plane.key)
        return proof is not None and proof.token == token and self._now() < proof.until

    async def _read(self, key: Key, field: str) -> str:
        if self._secrets.get(key) is None:
            return ""
        try:
            found = await self._client.get(SECRET, key)
        except errors.NotFound:
            return ""
        return _decode((found.manifest.get("data") or {}).get(field, ""))


def secret_name(plane: CoderControlPlane) -> str:
    return plane.spec.operator_access.generated_token_secret_name or derived(
        plane.metadata.name, suffix="-operator-token"
    )


def secret(plane: CoderControlPlane, token: str) -> Manifest:
    return {
        "metadata": metadata(plane, secret_name(plane)),
        "type": "Opaque",
        "data": {TOKEN: base64.b64encode(token.encode()).decode()},
    }


def _decode(value: str) -> str:
    return base64.b64decode(value).decode(errors="replace").strip()
