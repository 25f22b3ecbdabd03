"""The licence of the spec, kept in coderd, told as the condition `LicenseApplied`."""

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.api.conditions import ControlPlaneCondition
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.report import Report
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Glimpse, Key

APPLIED = ControlPlaneCondition.LICENSE_APPLIED
RETRY = 30.0
UNSUPPORTED_RETRY = 600.0
CONFIRM = timedelta(minutes=2)
"""How often coderd is asked whether it still has the licence."""


class Licence(NamedTuple):
    """A licence without its text: what it is known by, and what it says of itself."""

    digest: str
    claims: dict[str, Any]

    @property
    def expires(self) -> datetime | None:
        """When the paid time ends; what follows until `exp` is a grace period."""
        return moment(self.claims.get("license_expires") or self.claims.get("exp"))


class LicenseKeeper:
    """Uploads a licence when coderd does not have it, and only then."""

    def __init__(
        self, client: Client, secrets: Cache[Glimpse], recorder: Recorder, now: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._secrets = secrets
        self._recorder = recorder
        self._now = now
        self._confirmed: dict[Key, tuple[str, datetime]] = {}
        self._refused: dict[Key, tuple[str, str]] = {}

    def forget(self, key: Key) -> None:
        self._confirmed.pop(key, None)
        self._refused.pop(key, None)

    async def ensure(self, plane: CoderControlPlane, coderd: Coderd | None, serving: bool, report: Report) -> bool:
        """Keep the licence of the spec in coderd; returns whether it was uploaded just now."""
        reference = plane.spec.license_secret_ref
        if reference is None:
            report.add(APPLIED, None, "NotConfigured", settled=True)
            return False
        jwt = await self._read(Key(plane.metadata.namespace, reference.name), reference.key)
        if not jwt:
            missing = f"there is no licence under key {reference.key} in Secret {reference.name}"
            report.add(APPLIED, False, "SecretMissing", missing, stalled=True)
            return False
        licence = read(jwt)
        if (refused := self._refused.get(plane.key)) and refused[0] == licence.digest:
            report.add(APPLIED, False, "Invalid", refused[1], stalled=True)
            return False
        if not serving or coderd is None:
            waiting = "a pod that is ready" if not serving else "operator access"
            report.add(APPLIED, False, "Pending", f"waiting for {waiting}")
            return False
        return await self._keep(plane, coderd, jwt, licence, report)

    async def _keep(self, plane: CoderControlPlane, coderd: Coderd, jwt: str, licence: Licence, report: Report) -> bool:
        try:
            uploaded = await self._upload_if_missing(plane, coderd, jwt, licence)
        except coderd_errors.Invalid as refusal:
            self._refused[plane.key] = (licence.digest, str(refusal))
            self._recorder.warning(CONTROL_PLANE, plane, "LicenseRejected", str(refusal))
            report.add(APPLIED, False, "Invalid", str(refusal), stalled=True)
            return False
        except coderd_errors.CoderdError as trouble:
            _explain(trouble, report)
            return False
        applied = (
            plane.status.license_last_applied if plane.status.license_last_applied_hash == licence.digest else None
        )
        report.fields |= {
            "license_last_applied_hash": licence.digest,
            "license_last_applied": applied or self._now().replace(microsecond=0),
        }
        report.add(APPLIED, True, "Applied")
        return uploaded

    async def _upload_if_missing(self, plane: CoderControlPlane, coderd: Coderd, jwt: str, licence: Licence) -> bool:
        """coderd's own list decides, also when the status was lost or never written."""
        known = plane.status.license_last_applied_hash == licence.digest
        confirmed, until = self._confirmed.get(plane.key, ("", self._now()))
        if known and confirmed == licence.digest and self._now() < until:
            return False
        uploaded = False
        if not any(_same(licence.claims, stored.claims) for stored in await coderd.licenses()):
            try:
                await coderd.add_license(jwt)
                uploaded = True
                self._recorder.normal(CONTROL_PLANE, plane, "LicenseApplied", "the licence was uploaded")
            except coderd_errors.Conflict:
                uploaded = False  # coderd has it, however it lists it
        self._confirmed[plane.key] = (licence.digest, self._now() + CONFIRM)
        return uploaded

    async def _read(self, key: Key, field: str) -> str:
        if self._secrets.get(key) is None:
            return ""
        try:
            data = (await self._client.get(SECRET, key)).manifest.get("data") or {}
        except errors.NotFound:
            return ""
        return base64.b64decode(data.get(field, "")).decode(errors="replace").strip()


def read(jwt: str) -> Licence:
    """What a licence says of itself; nothing if it is not a JWT, which coderd will tell the user."""
    parts = jwt.split(".")
    claims: Any = {}
    if len(parts) == 3:
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        except (ValueError, msgspec.DecodeError):
            claims = {}
    digest = hashlib.sha256(jwt.encode()).hexdigest()
    return Licence(digest, claims if isinstance(claims, dict) else {})


def moment(seconds: Any) -> datetime | None:
    """A claim that is a time; one that is none or out of range says nothing."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _same(ours: dict[str, Any], stored: dict[str, Any]) -> bool:
    return bool(ours) and all(stored.get(name) == value for name, value in ours.items())


def _explain(trouble: coderd_errors.CoderdError, report: Report) -> None:
    match trouble:
        case coderd_errors.NotSupported():
            report.add(APPLIED, False, "NotSupported", "this build of coderd knows no licences", stalled=True)
            report.again(UNSUPPORTED_RETRY)
        case coderd_errors.Forbidden() | coderd_errors.Unauthorized():
            report.add(APPLIED, False, "Forbidden", str(trouble))
            report.again(RETRY)
        case coderd_errors.RateLimited():
            report.add(APPLIED, False, "Error", str(trouble))
            report.again(trouble.after)
        case _:
            report.add(APPLIED, False, "Error", str(trouble))
            report.again(RETRY)
