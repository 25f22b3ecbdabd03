"""Takes the steps that `keys` decides on: creates, stores, adopts and retires provisioner keys."""

from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from coder_k8s.api import (
    CONTROL_PLANE,
    PROVISIONER,
    CoderControlPlane,
    CoderProvisioner,
    ProvisionerCondition,
    events,
    reasons,
)
from coder_k8s.api.provisioner import ProvisionerStatus
from coder_k8s.api.shared import SecretKey
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.draft import draft
from coder_k8s.controllers.queries import INTERVAL
from coder_k8s.controllers.rejections import NAME_TAKEN_POLL, as_condition
from coder_k8s.controllers.report import Report, StatusReport
from coder_k8s.kube import errors as kube_errors
from coder_k8s.kube.apply import OwnedByOther

from . import keys, records
from .keysecret import KeySecret, Stored
from .metrics import ProvisionerMetrics
from .objects import ROTATE, secret_name
from .outcomes import report_key

KEY_READY = ProvisionerCondition.PROVISIONER_KEY_READY
SECRET_READY = ProvisionerCondition.PROVISIONER_KEY_SECRET_READY
STEPS = 8
"""More steps than any state needs."""


class Observed(msgspec.Struct, frozen=True):
    """The content of the Secret, the key that it identifies, and the earliest creation time of a key requested now."""

    stored: Stored
    held: ProvisionerKey | None
    requested: datetime


class Run(msgspec.Struct):
    """One sequence of steps, and the object as last recorded, even if a rejected write ends the sequence."""

    provisioner: CoderProvisioner
    plane: CoderControlPlane
    coderd: Coderd
    wanted: keys.Wanted
    cause: str = ""
    """Why a key is created; empty if an earlier reconcile decided it."""


class Rotation:
    """Keeps one key per provisioner in coderd and its secret in a Secret."""

    def __init__(self, context: Context[CoderProvisioner], secret: KeySecret, metrics: ProvisionerMetrics) -> None:
        self._client = context.client
        self._provisioners = context.objects
        self._secret = secret
        self._status = context.status
        self._queries = context.runtime.queries
        self._recorder = context.recorder
        self._metrics = metrics
        self._now = context.now
        self._rng = context.runtime.rng

    async def ensure(
        self,
        provisioner: CoderProvisioner,
        plane: CoderControlPlane,
        coderd: Coderd,
        report: StatusReport[ProvisionerStatus],
    ) -> tuple[CoderProvisioner, str]:
        """The object as recorded, and the key for the daemons; empty if there is none."""
        if self.secret_name_taken(provisioner, report):
            return provisioner, ""
        wanted = records.wanted_by(provisioner, plane, await self._organization(provisioner, plane, coderd))
        run = Run(provisioner, plane, coderd, wanted)
        key = await as_condition(self._take_steps(run, report), report, SECRET_READY)
        return run.provisioner, key or ""

    async def _take_steps(self, run: Run, report: StatusReport[ProvisionerStatus]) -> str:
        """Take steps until none is left; returns the key for the daemons, or empty."""
        step, seen = await self._decide(run, INTERVAL)
        if not isinstance(step, keys.Keep | keys.Wait):
            await self._confirm(run)  # never act on a stale cache
            step, seen = await self._decide(run, timedelta())
        for _ in range(STEPS):
            if isinstance(step, keys.Keep | keys.Wait):
                works = seen.held is not None and seen.held.id == run.provisioner.status.provisioner_key_id
                report_key(run.provisioner, run.wanted, step, report, self._now())
                return await self._move(run.provisioner, seen.stored, run.wanted.plane, report) if works else ""
            step, seen = await self._decide(run, await self._take_step(run, step, seen))
        raise coderd_errors.Unavailable("the key changes faster than it can be recorded")

    async def _take_step(self, run: Run, step: keys.Adopt | keys.Request, seen: Observed) -> timedelta:
        """Take one step; returns the maximum age of coderd responses for the next decision."""
        if isinstance(step, keys.Adopt):
            run.provisioner = await self._adopt(run, step.key)
            return INTERVAL
        await self._secret.dry_run(run.provisioner)  # or coderd creates keys that cannot be stored
        run.cause = run.cause or (step.cause if isinstance(step, keys.RecordIntent) else "")
        run.provisioner = await self._write_ahead(run, step, seen.requested)
        if await self._create(run, step):
            self._record_event(run.provisioner, step.name, run.cause)
        return timedelta()

    async def recorded(
        self, provisioner: CoderProvisioner, plane: CoderControlPlane, report: StatusReport[ProvisionerStatus]
    ) -> str:
        """The key for the daemons while coderd does not confirm it; empty if there is none."""
        stored = await self._secret.recorded(provisioner, plane.metadata.name)
        if not stored.key or self._secret.name_taken(provisioner):
            return ""
        if any(outcome.type == SECRET_READY for outcome in report.findings):  # the Secret was rejected
            return stored.key if provisioner.status.secret_ref == _secret_ref(provisioner) else ""
        moved = self._move(provisioner, stored, plane.metadata.name, report)
        return await as_condition(moved, report, SECRET_READY) or ""

    async def _organization(self, provisioner: CoderProvisioner, plane: CoderControlPlane, coderd: Coderd) -> str:
        """The ID of the organization. coderd returns 404 for its keys if the user lacks permission."""
        name = records.organization_name(provisioner)
        known = records.organization_known(provisioner, plane) or (await self._queries.organization(coderd, name)).id
        try:
            await self._queries.keys(coderd, known)
        except coderd_errors.NotFound as hidden:
            found = await self._queries.organization(coderd, name, timedelta())
            if found.id == known:
                raise coderd_errors.Forbidden(str(hidden)) from None
            return found.id
        return known

    async def _recorded(self, provisioner: CoderProvisioner, wanted: keys.Wanted, coderd: Coderd) -> keys.Recorded:
        """The recorded key. An earlier version recorded only the name of its organization until it was created."""
        status = provisioner.status
        organization = status.organization_id
        if not organization and status.organization_name and status.control_plane_ref_name == wanted.plane:
            with suppress(coderd_errors.NotFound):
                organization = (await self._queries.organization(coderd, status.organization_name)).id
        return records.recorded_in(provisioner, organization)

    async def _confirm(self, run: Run) -> None:
        """Raise `Conflict` if a cache is stale: it may show a fulfilled rotation request. The first key has none."""
        if run.provisioner.status.provisioner_key_name:
            await self._client.confirm(PROVISIONER, run.provisioner.key, run.provisioner)
            await self._client.confirm(CONTROL_PLANE, run.plane.key, run.plane)
            await self._secret.confirm(run.provisioner)

    def secret_name_taken(self, provisioner: CoderProvisioner, report: Report) -> bool:
        """Whether a Secret of another owner has the name, so that no key can be stored."""
        if not self._secret.name_taken(provisioner):
            return False
        taken = f"Secret {secret_name(provisioner)} belongs to another owner; delete it or set another key.secretName"
        report.add(SECRET_READY, False, reasons.NAME_TAKEN, taken, stalled=True)
        report.requeue_after(NAME_TAKEN_POLL)
        return True

    async def _decide(self, run: Run, max_age: timedelta) -> tuple[keys.Step, Observed]:
        """The next step, based on coderd responses up to this age."""
        provisioner, wanted, coderd = run.provisioner, run.wanted, run.coderd
        listed = await self._queries.keys(coderd, wanted.organization, max_age)
        known, here = listed.keys, (wanted.plane, wanted.organization)
        stored = await self._secret.read(provisioner)
        held = await self._secret.identify(provisioner, wanted.plane, coderd, stored, known)
        recorded = await self._recorded(provisioner, wanted, coderd)
        excluded: set[str] = set()
        if not recorded.id and any(key.name == recorded.name for key in known):
            excluded = {daemon.key_id for daemon in await self._queries.daemons(coderd, wanted.organization, max_age)}
            excluded |= records.claimed(provisioner, self._provisioners, here, known)
        retiring = [
            (each.control_plane_ref_name, each.organization_id or wanted.organization) == here
            for each in provisioner.status.retiring_keys
        ]
        now = self._now()
        cause, until = records.rotation_cause(provisioner, stored.request, now), records.backoff_until(provisioner)
        recent = until is not None and now < until <= now + records.MAX_BACKOFF
        step = keys.next_step(
            wanted, recorded, held, known, retiring, self._rng, due=cause, excluded=excluded, backing_off=recent
        )
        return step, Observed(stored, held, records.requested_at(listed, now))

    async def _move(
        self, provisioner: CoderProvisioner, stored: Stored, plane: str, report: StatusReport[ProvisionerStatus]
    ) -> str:
        """Write the key in use to the Secret of the spec, which the pods refer to."""
        self._secret.confirm_stored(provisioner, stored)
        await self._secret.write(provisioner, Stored(stored.key, stored.origin or plane, stored.request))
        report.status.secret_ref = where = _secret_ref(provisioner)
        report.add(
            SECRET_READY,
            True,
            reasons.SECRET_READY,
            f"Secret {where.name} has the provisioner key under key {where.key}",
        )
        return stored.key

    async def _adopt(self, run: Run, found: ProvisionerKey) -> CoderProvisioner:
        provisioner, wanted = run.provisioner, run.wanted
        here = found.organization == wanted.organization
        same = keys.normalize_tags(found.tags) == keys.normalize_tags(wanted.tags)
        status = draft(provisioner.status)
        status.provisioner_key_id, status.provisioner_key_name = found.id, found.name
        status.organization_id = found.organization
        status.organization_name = records.organization_name(provisioner) if here else found.organization
        status.tags_hash = keys.tags_hash(wanted.tags if same else found.tags)
        status.control_plane_ref_name, status.control_plane_url = wanted.plane, wanted.url
        status.key_requested, status.key_refused = None, False
        status.key_created = found.created_at.replace(microsecond=0)
        return await self._record(provisioner, status)

    async def _write_ahead(self, run: Run, step: keys.Request, requested: datetime) -> CoderProvisioner:
        """Record a request before it is sent, with the time at which its name was free."""
        match step:
            case keys.RecordIntent():
                return await self._record_intent(run, step, requested)
            case keys.CreateKey(lost=True):
                return run.provisioner
            case _:
                status = draft(run.provisioner.status)
                status.key_requested, status.key_refused = requested, False
                return await self._record(run.provisioner, status)

    async def _record_intent(self, run: Run, step: keys.RecordIntent, requested: datetime) -> CoderProvisioner:
        """Record the key to create, and the one that it replaces."""
        provisioner, wanted = run.provisioner, run.wanted
        if step.foreign:
            taken = f"Coder already has a provisioner key {step.foreign} that this object did not create"
            note = f"{taken}; using the name {step.name} instead"
            self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_NAME_TAKEN, note)
        status, now = draft(provisioner.status), self._now().replace(microsecond=0)
        if step.retires:
            organization = status.organization_id or (wanted.organization if step.proven else "")
            key_id = status.provisioner_key_id or step.proven
            status.retiring_keys = [*status.retiring_keys, records.current(provisioner, organization, key_id, now)]
        status.provisioner_key_name, status.provisioner_key_id = step.name, ""
        status.organization_name, status.organization_id = records.organization_name(provisioner), wanted.organization
        status.tags_hash = keys.tags_hash(wanted.tags)
        status.control_plane_ref_name, status.control_plane_url = wanted.plane, wanted.url
        status.key_requested, status.key_refused, status.key_created = requested, False, None
        return await self._record(provisioner, status)

    async def _record(self, provisioner: CoderProvisioner, status: ProvisionerStatus) -> CoderProvisioner:
        """Write the status before a step; raises `Conflict` if the spec changed since the decision."""
        written = await self._status.record(provisioner, status)
        if written.metadata.generation != provisioner.metadata.generation:
            raise kube_errors.Conflict(409, "Conflict", f"{provisioner.key} changed meanwhile")
        return written

    async def _create(self, run: Run, step: keys.Request) -> bool:
        """Create and store the recorded key; returns False if its name is taken."""
        coderd, wanted = run.coderd, run.wanted
        if isinstance(step, keys.CreateKey) and step.lost:
            with suppress(coderd_errors.NotFound):
                await coderd.delete_provisioner_key(wanted.organization, step.name)
        try:
            key = await coderd.create_provisioner_key(wanted.organization, step.name, wanted.tags)
        except coderd_errors.CoderdError as error:
            if isinstance(error, coderd_errors.RateLimited) or not isinstance(error, coderd_errors.Unavailable):
                status = draft(run.provisioner.status)
                status.key_refused = True
                run.provisioner = await self._record(run.provisioner, status)
            if isinstance(error, coderd_errors.Conflict):
                return False
            raise
        request = run.provisioner.metadata.annotations.get(ROTATE, "")
        try:
            await self._secret.write(run.provisioner, Stored(key, wanted.plane, request))
        except (kube_errors.Forbidden, kube_errors.Invalid, OwnedByOther):
            # The dry run passed, but the key cannot be stored.
            with suppress(coderd_errors.CoderdError):
                await coderd.delete_provisioner_key(wanted.organization, step.name)
            raise
        return True

    def _record_event(self, provisioner: CoderProvisioner, name: str, cause: str) -> None:
        """Record an event for a created key, with the cause if this reconcile decided it."""
        before = [each.name for each in provisioner.status.retiring_keys]
        if not before and cause in ("", "Created", "NameTaken"):
            self._recorder.record(
                PROVISIONER, provisioner, events.PROVISIONER_KEY_CREATED, f"Created provisioner key {name}"
            )
            return
        self._metrics.count_rotation(provisioner.key, cause or "Resumed")
        done = f"Rotated key {before[-1]} to {name}" if before else f"Created key {name} again"
        note = f"{done} ({records.in_words(cause)})" if cause else done
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_ROTATED, note)


def _secret_ref(provisioner: CoderProvisioner) -> SecretKey:
    return SecretKey(name=secret_name(provisioner), key=provisioner.spec.key.secret_key)
