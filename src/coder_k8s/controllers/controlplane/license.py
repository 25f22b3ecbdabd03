"""Applies the license of the spec to coderd, and reports it in the condition `LicenseApplied`."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, events, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus, LicenseSecret
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import BuildInfo
from coder_k8s.controllers.answers import AnswerCache
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.draft import draft
from coder_k8s.controllers.explanations import explain
from coder_k8s.controllers.report import Outcome, StatusReport
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key

from .outcomes import APPLIED, LICENSE_ERRORS, NOT_SUPPORTED_RECHECK, Answer
from .tokens import secret_reference

CHECK_INTERVAL = 120.0
"""Seconds between two checks that coderd still has the license."""
UPLOAD_RETRY = timedelta(hours=1)
"""When a license that coderd rejected is uploaded again."""
DIGEST_LENGTH = 12
"""Digits of the digest that the condition shows of a license that was rejected."""


class License(msgspec.Struct, frozen=True):
    """The digest and the claims of a license, without its text."""

    digest: str
    claims: dict[str, Any]

    @property
    def expires(self) -> datetime | None:
        """When the license expires; from then until `exp` is a grace period."""
        return parse_timestamp(self.claims.get("license_expires") or self.claims.get("exp"))


class LicenseApplier:
    """Uploads a license if coderd does not have it."""

    def __init__(self, context: Context[CoderControlPlane]) -> None:
        self._secrets = context.secrets
        self._reader = context.reader
        self._recorder = context.recorder
        self._now = context.now
        self._answers = AnswerCache[Answer](context.now, steady=NOT_SUPPORTED_RECHECK)
        self._rejected: dict[Key, datetime] = {}
        """When a license that coderd rejected was last uploaded, or the condition first read after a restart."""

    def forget(self, key: Key) -> None:
        self._answers.forget(key)
        self._rejected.pop(key, None)

    async def ensure(
        self, plane: CoderControlPlane, coderd: Coderd | None, serving: bool, report: StatusReport[ControlPlaneStatus]
    ) -> None:
        """Upload the license of the spec unless coderd has it."""
        reference = plane.spec.license_secret_ref
        if reference is None:
            report.add(APPLIED, None, reasons.NOT_CONFIGURED, "The spec has no licenseSecretRef", satisfied=True)
            return
        outcome, status = await self._answer(plane, reference, coderd if serving else None, report.status.image)
        report.add_outcome(outcome)
        if status is not None:
            report.update(status)
        if left := self._answers.left(plane.key):
            report.requeue_after(left)

    async def _answer(
        self, plane: CoderControlPlane, reference: LicenseSecret, coderd: Coderd | None, image: str
    ) -> Answer:
        secret = self._secrets.get(Key(plane.metadata.namespace, reference.name))
        about = (plane.metadata.uid, secret and secret.metadata.resource_version, reference.key, image)
        if coderd is not None and (known := self._answers.get(plane.key, about)) is not None:
            return known
        key = Key(plane.metadata.namespace, reference.name)
        jwt = await self._reader.read(key, reference.key)
        if not jwt:
            missing = self._reader.missing(key, reference.key)
            return Answer(Outcome(APPLIED, False, reasons.SECRET_MISSING, missing, stalled=True))
        license = read(jwt)
        rejection = _recorded_rejection(plane, license)
        rejected = Answer(Outcome(APPLIED, False, reasons.LICENSE_INVALID, rejection, stalled=True))
        if coderd is None:
            waiting = Outcome(APPLIED, False, reasons.PENDING, "Waiting for operator access and a ready pod")
            return rejected if rejection else Answer(waiting)
        try:
            due = not rejection or self._is_due(plane.key, rejection, await coderd.build_info())
            answer = await self._apply(plane, coderd, jwt, license) if due else rejected
        except coderd_errors.CoderdError as error:
            names = {"secret": secret_reference(plane).name, "image": image or plane.spec.image}
            outcome, recheck, retry_after = explain(error, LICENSE_ERRORS, **names)
            keeps = rejection and outcome.reason == reasons.ERROR  # the condition is the record of the rejection
            return self._answers.fail(plane.key, about, rejected if keeps else Answer(outcome), recheck, retry_after)
        return self._answers.keep(plane.key, about, answer, CHECK_INTERVAL)

    def _is_due(self, key: Key, rejection: str, build: BuildInfo) -> bool:
        """Whether a license that was rejected is uploaded again: to another coderd, or after an hour.

        | coderd | since the last upload | uploaded again |
        |---|---|---|
        | has another version or deployment ID than in the message | any time | yes |
        | is the same | less than an hour | no |
        | is the same | an hour | yes |
        """
        since = self._rejected.setdefault(key, self._now())
        return _signature(build) not in rejection or self._now() - since >= UPLOAD_RETRY

    async def _apply(self, plane: CoderControlPlane, coderd: Coderd, jwt: str, license: License) -> Answer:
        """Upload a license unless coderd lists it, whatever the status records."""
        try:
            listed = any(_is_same(license.claims, stored.claims) for stored in await coderd.licenses())
            if not listed:
                await coderd.add_license(jwt)
        except coderd_errors.Conflict:
            listed = True  # with other claims
        except coderd_errors.Invalid as error:
            self._rejected[plane.key] = self._now()
            coder = _signature(await coderd.build_info())
            message = f"Coder {coder} rejects license {license.digest[:DIGEST_LENGTH]}{_source(plane)}: {error}"
            message = f"{message.rstrip('.')}. Store a valid license in the Secret"
            return Answer(Outcome(APPLIED, False, reasons.LICENSE_INVALID, message, stalled=True))
        self._rejected.pop(plane.key, None)
        if not listed:
            self._recorder.record(CONTROL_PLANE, plane, events.LICENSE_APPLIED, f"Uploaded the license{_source(plane)}")
        applied = Outcome(APPLIED, True, reasons.APPLIED, _described(plane, license))
        return Answer(applied, self._record(plane, license, uploaded=not listed))

    def _record(self, plane: CoderControlPlane, license: License, *, uploaded: bool) -> ControlPlaneStatus:
        last = plane.status.license_last_applied
        if uploaded or last is None or plane.status.license_last_applied_hash != license.digest:
            last = self._now().replace(microsecond=0)
        status = draft(plane.status)
        status.license_last_applied_hash, status.license_last_applied = license.digest, last
        return status


def _described(plane: CoderControlPlane, license: License) -> str:
    until = f" and expires on {license.expires.date().isoformat()}" if license.expires else ""
    return f"The license{_source(plane)} is in Coder{until}"


def _source(plane: CoderControlPlane) -> str:
    secret = plane.spec.license_secret_ref
    return f" of Secret {secret.name}" if secret else ""


def _signature(build: BuildInfo) -> str:
    """What identifies a coderd and its version."""
    return f"{build.version} (deployment {build.deployment_id})"


def _recorded_rejection(plane: CoderControlPlane, license: License) -> str:
    """The message about the rejection of this license; the condition has it also after a restart."""
    known = find(plane.status.conditions, APPLIED)
    if known is None or known.reason != reasons.LICENSE_INVALID or license.digest[:DIGEST_LENGTH] not in known.message:
        return ""
    return known.message


def read(jwt: str) -> License:
    """Decode a license; its claims are empty if it is not a JWT, which coderd then rejects."""
    parts = jwt.split(".")
    claims: Any = {}
    if len(parts) == 3:
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        except (ValueError, msgspec.DecodeError):
            claims = {}
    digest = hashlib.sha256(jwt.encode()).hexdigest()
    return License(digest, claims if isinstance(claims, dict) else {})


def parse_timestamp(seconds: Any) -> datetime | None:
    """The time in a claim; `None` if the claim is not a time or out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _is_same(claims: dict[str, Any], stored: dict[str, Any]) -> bool:
    return bool(claims) and all(stored.get(name) == value for name, value in claims.items())
