"""The operator's access to coderd's API, reported as the condition `OperatorAccessReady`."""

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, events, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.api.shared import SecretKey, TokenSecret
from coder_k8s.coderd import access_db
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.answers import RETRY, AnswerCache
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.report import Outcome, StatusReport, sentence
from coder_k8s.controllers.secrets import value
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther
from coder_k8s.kube.conditions import find
from coder_k8s.kube.finalizers import FinalizerRefused
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, Unstructured

from .database import URLMissing, connection_url
from .outcomes import READY, judge_access_error, judge_generated, judge_token
from .revocation import Revocation, SecretLeft, TokenLeft
from .tokens import TOKEN, secret, secret_name, secret_reference

TOKEN_RECHECK = 3600.0
"""Seconds between two checks of a token that works, unless coderd rejects it in between."""


class OperatorAccess:
    """Provides a token for the API of each control plane: one from the user, or one that it creates in the database."""

    def __init__(self, context: Context[CoderControlPlane], revocation: Revocation) -> None:
        self._client = context.client
        self._children = context.children
        self._secrets = context.secrets
        self._reader = context.reader
        self._connections = context.runtime.coderd
        self._revocation = revocation
        self._recorder = context.recorder
        self._now = context.now
        self._rng = context.runtime.rng
        self._database_answers = AnswerCache[Outcome](context.now)
        self._coderd_answers = AnswerCache[Outcome](context.now)

    async def ensure(
        self, plane: CoderControlPlane, serving: bool, report: StatusReport[ControlPlaneStatus]
    ) -> Coderd | None:
        """A client with a token that works, if there is one."""
        report.status.operator_access_ready = False
        if plane.spec.operator_access.disabled:
            await self._disable(plane, report)
            return None
        given = plane.spec.operator_access.token_secret_ref
        token, outcome = await (self._given(plane, given, serving) if given else self._generated(plane, serving))
        where = secret_reference(plane)
        if outcome.status and given and self._revocation.is_due(plane):
            outcome = await self._replace(plane, where, outcome, report)
        elif outcome.status:
            report.status.operator_token_secret_ref = where
        report.add_outcome(outcome)
        report.requeue_after(min(RETRY, self._left(plane) or RETRY) if not outcome.status else self._left(plane))
        if not outcome.status:
            if outcome.status is False and not outcome.stalled:  # a stalled object has an event already
                self._recorder.record(CONTROL_PLANE, plane, events.OPERATOR_ACCESS_FAILED, outcome.message)
            return None
        report.status.operator_access_ready = True
        return Coderd(self._connections, api_url(plane), token)

    def forget(self, key: Key) -> None:
        self.invalidate(key)
        self._revocation.forget(key)

    def invalidate(self, key: Key) -> None:
        """Check the token again, because coderd rejected it."""
        self._database_answers.forget(key)
        self._coderd_answers.forget(key)

    def _left(self, plane: CoderControlPlane) -> float:
        """Seconds until the first of the answers becomes invalid."""
        left = self._database_answers.left(plane.key), self._coderd_answers.left(plane.key)
        return min(filter(None, left), default=0.0)

    async def _given(self, plane: CoderControlPlane, given: TokenSecret, serving: bool) -> tuple[str, Outcome]:
        key = Key(plane.metadata.namespace, given.name)
        token = await self._reader.read(key, given.key)
        if not token:
            missing = self._reader.missing(key, given.key)
            return "", Outcome(READY, False, reasons.SECRET_UNAVAILABLE, missing, stalled=True)
        if not serving and self._coderd_answers.get(plane.key, (given.name, token)) is None:
            return "", Outcome(READY, None, reasons.PENDING, "Waiting for a ready pod")
        outcome = await self._check_in_coderd(plane, given.name, token)
        if outcome.reason == reasons.TOKEN_REJECTED:
            outcome = outcome._replace(message=f"{outcome.message.rstrip('.')}; store a new token in key {given.key}")
        return token, outcome

    async def _check_in_coderd(self, plane: CoderControlPlane, where: str, token: str) -> Outcome:
        """Whether coderd accepts a token. It is checked once an hour, and every 30 seconds while it is rejected."""
        about = (where, token)
        if (known := self._coderd_answers.get(plane.key, about)) is not None:
            return known
        coderd = Coderd(self._connections, api_url(plane), token)
        try:
            answer: str | coderd_errors.CoderdError = (await coderd.me()).username
        except coderd_errors.CoderdError as error:
            answer = error
        outcome = judge_token(answer, where)
        if outcome.reason == reasons.TOKEN_REJECTED:  # it may have been deleted since the check in the database
            self._database_answers.forget(plane.key)
        return self._coderd_answers.keep(plane.key, about, outcome, TOKEN_RECHECK if outcome.status else RETRY)

    async def _generated(self, plane: CoderControlPlane, serving: bool) -> tuple[str, Outcome]:
        name = secret_name(plane)
        token, outcome = await self._from_database(plane, name, serving)
        answer = await self._check_in_coderd(plane, name, token) if token and serving else None
        judged = judge_generated(outcome, answer, name)
        if judged.status and not outcome.status:
            self._warn(plane, judged.message)
        return token, judged

    def _warn(self, plane: CoderControlPlane, message: str) -> None:
        """Record an event when a token can no longer be renewed."""
        before = find(plane.status.conditions, READY)
        if before is None or before.message != sentence(message):
            self._recorder.record(CONTROL_PLANE, plane, events.OPERATOR_TOKEN_NOT_RENEWED, message)

    async def _from_database(self, plane: CoderControlPlane, name: str, serving: bool) -> tuple[str, Outcome]:
        """The token in the Secret, created if there is none, and its state in the database."""
        secrets = await self._token_secrets(plane)
        tokens = {child.metadata.name: value(child, TOKEN) for child in secrets}
        if name not in tokens and not self._is_free(plane, name):
            return "", _name_taken(f"Secret {name} exists and belongs to another owner")
        current = tokens.get(name) or next(iter(tokens.values()), "")  # in the Secret of an earlier name
        known = self._database_answers.get(plane.key, current)
        if known is not None and name in tokens:
            await self._prune(plane)  # the reconcile that moved the token may have failed before it
            return current, known
        try:
            url = await connection_url(self._client, plane)
        except URLMissing as missing:
            return current, Outcome(READY, False, reasons.DATABASE_URL_MISSING, str(missing), stalled=True)
        about = (current, url, serving)  # once a pod is ready, coderd has reached the database
        if (known := self._database_answers.get(plane.key, about)) is not None:
            return current, known
        try:
            return await self._issue(plane, url, current, secrets)
        except coderd_errors.MigrationsPending as waiting:
            return current, Outcome(READY, None, reasons.PENDING, str(waiting))
        except coderd_errors.AccessError as error:
            outcome = judge_access_error(error)
        except OwnedByOther as taken:
            return "", _name_taken(str(taken))
        except FinalizerRefused as error:
            outcome = Outcome(READY, None, reasons.FORBIDDEN, error.message, stalled=True)
        except (errors.Forbidden, errors.Invalid) as error:  # by a quota or a webhook
            message = f"Secret {name} cannot be written: {error.message}"
            outcome = Outcome(READY, False, reasons.SECRET_UNAVAILABLE, message, stalled=True)
        return current, self._database_answers.keep(plane.key, about, outcome, RETRY)

    async def _token_secrets(self, plane: CoderControlPlane) -> list[Unstructured]:
        """The Secrets with tokens of this control plane.

        A Secret that lost its labels is not in the cache of children. It is read from the API server if the status
        names it or its metadata is known, because a new token would revoke the one in it.
        """
        owned = self._children.owned(SECRET, plane)
        namespace, wanted, before = plane.metadata.namespace, secret_name(plane), plane.status.operator_token_secret_ref
        known = self._secrets.get(Key(namespace, wanted)) is not None and self._is_free(plane, wanted)
        names = [wanted] if known else []
        if before is not None and not owned:
            names.append(before.name)
        uncached = sorted({*names} - {child.metadata.name for child in owned})
        found = [await self._children.fetch(SECRET, Key(namespace, name), expected=True) for name in uncached]
        return owned + [each for each in found if each and each.is_controlled_by(plane)]

    async def _issue(
        self, plane: CoderControlPlane, url: str, current: str, secrets: list[Unstructured]
    ) -> tuple[str, Outcome]:
        """Keep, renew or create the token."""
        name = access_db.token_name(plane.metadata.namespace, plane.metadata.name)
        grant = await access_db.check_token(url, name, current, now=self._now(), rng=self._rng) if current else None
        if grant is not None:
            await self._children.apply(SECRET, plane, secret(plane, grant.token))
        else:
            await self._confirm(plane, secrets)
            grant = await (self._renew(plane, url, name, current) if current else self._create(plane, url, name))
        if grant.stale:
            await access_db.delete_stale_tokens(url, name, grant.token)
        if grant.new:
            issued = f"Stored operator token in Secret {secret_name(plane)}"
            self._recorder.record(CONTROL_PLANE, plane, events.OPERATOR_TOKEN_ISSUED, issued)
        await self._prune(plane)
        valid = f"The token in Secret {secret_name(plane)} is valid until {grant.expires.date().isoformat()}"
        return grant.token, self._database_answers.keep(
            plane.key, grant.token, Outcome(READY, True, reasons.TOKEN_READY, valid), TOKEN_RECHECK
        )

    async def _create(self, plane: CoderControlPlane, url: str, name: str) -> access_db.Grant:
        """Create the Secret, the finalizer and then the token, so that a deletion after a crash revokes it."""

        async def store(token: str) -> None:
            await self._children.apply(SECRET, plane, secret(plane, token))
            await self._revocation.add_finalizer(plane)

        return await access_db.ensure_token(url, name, "", now=self._now(), rng=self._rng, store=store)

    async def _renew(self, plane: CoderControlPlane, url: str, name: str, current: str) -> access_db.Grant:
        """Create a new token and write it to the Secret, before the old one is deleted."""
        await self._revocation.add_finalizer(plane)
        await self._children.dry_run(SECRET, secret(plane, "dry-run"))
        grant = await access_db.ensure_token(url, name, current, now=self._now(), rng=self._rng)
        try:
            await self._children.apply(SECRET, plane, secret(plane, grant.token))
        except (errors.Forbidden, errors.Invalid):  # the new token is stored nowhere
            await access_db.delete_stale_tokens(url, name, current)
            raise
        return grant

    async def _prune(self, plane: CoderControlPlane) -> None:
        await self._children.prune(SECRET, plane, keep=[secret_name(plane)])

    async def _confirm(self, plane: CoderControlPlane, secrets: list[Unstructured]) -> None:
        """Raise `Conflict` if a Secret has changed: a new token revokes the previous one."""
        seen = {child.key: child for child in secrets}
        for key in {Key(plane.metadata.namespace, secret_name(plane)), *seen}:
            await self._client.confirm(SECRET, key, seen.get(key))

    async def _disable(self, plane: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> None:
        """Revoke the token, then delete its Secret; the status names the Secret until both are done."""
        self.invalidate(plane.key)
        try:
            if self._revocation.is_due(plane):
                await self._revocation.revoke(plane, "operatorAccess.disabled is set")
        except (TokenLeft, SecretLeft) as left:
            report.add(READY, False, reasons.DISABLED, str(left), satisfied=False)
            report.requeue_after(RETRY)
            return
        report.status.operator_token_secret_ref = None
        report.add(READY, False, reasons.DISABLED, "Disabled by operatorAccess.disabled", satisfied=True)

    async def _replace(
        self, plane: CoderControlPlane, where: SecretKey, outcome: Outcome, report: StatusReport[ControlPlaneStatus]
    ) -> Outcome:
        """Revoke the generated token that a token from the user replaces; the status names its Secret until then."""
        try:
            await self._revocation.revoke(plane, f"operatorAccess.tokenSecretRef names Secret {where.name}")
        except (TokenLeft, SecretLeft) as left:
            report.requeue_after(RETRY)
            return outcome._replace(message=f"{outcome.message}. {left}")
        report.status.operator_token_secret_ref = where
        return outcome

    def _is_free(self, plane: CoderControlPlane, name: str) -> bool:
        """Whether the Secret may be written: it does not exist, or this object controls it."""
        found = self._secrets.get(Key(plane.metadata.namespace, name))
        return found is None or found.is_controlled_by(plane)


def _name_taken(message: str) -> Outcome:
    message = f"{message}; delete it, or set operatorAccess.generatedTokenSecretName"
    return Outcome(READY, False, reasons.SECRET_UNAVAILABLE, message, stalled=True)
