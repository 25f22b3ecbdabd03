"""Takes the steps that `keys` decides on: makes, stores, adopts and retires provisioner keys."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

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
"""More than any state needs to come to rest."""


class Seen(NamedTuple):
    """What a step follows from: what our Secret holds, which key that is, and since when a key that is requested now
    may be there."""

    stored: Stored
    held: ProvisionerKey | None
    requested: datetime


@dataclass
class Run:
    """One sequence of steps: what it is for, and the object as last recorded.

    A write that is rejected ends the sequence; what was recorded before stays known, also which keys retire.
    """

    provisioner: CoderProvisioner
    plane: CoderControlPlane
    coderd: Coderd
    wanted: keys.Wanted
    cause: str = ""
    """Why another key is made; empty when an earlier reconcile decided on it."""


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
        """The object with what was recorded, and the key to run daemons with; empty when there is none."""
        if self.secret_name_taken(provisioner, report):
            return provisioner, ""
        wanted = records.wanted_by(provisioner, plane, await self._organization(provisioner, plane, coderd))
        run = Run(provisioner, plane, coderd, wanted)
        key = await as_condition(self._take_steps(run, report), report, SECRET_READY)
        return run.provisioner, key or ""

    async def _take_steps(self, run: Run, report: StatusReport[ProvisionerStatus]) -> str:
        """Take steps until none is left. The key to run daemons with; empty when there is none."""
        step, seen = await self._decide(run, INTERVAL)
        if not isinstance(step, keys.Keep | keys.Wait):
            await self._confirm(run)  # act on nothing but the present
            step, seen = await self._decide(run, timedelta())
        for _ in range(STEPS):
            if isinstance(step, keys.Keep | keys.Wait):
                works = seen.held is not None and seen.held.id == run.provisioner.status.provisioner_key_id
                report_key(run.provisioner, run.wanted, step, report, self._now())
                return await self._move(run.provisioner, seen.stored, run.wanted.plane, report) if works else ""
            step, seen = await self._decide(run, await self._take(run, step, seen))
        raise coderd_errors.Unavailable("the key changes faster than it can be recorded")

    async def _take(self, run: Run, step: keys.Adopt | keys.Begin | keys.Make, seen: Seen) -> timedelta:
        """Take one step; how old the answers of coderd may be for the next decision."""
        if isinstance(step, keys.Adopt):
            run.provisioner = await self._adopt(run.provisioner, run.wanted, step.key)
            return INTERVAL
        await self._secret.dry_run(run.provisioner)  # or coderd makes keys that nothing can hold
        run.cause = run.cause or (step.cause if isinstance(step, keys.Begin) else "")
        run.provisioner = await self._write_ahead(run.provisioner, run.wanted, step, seen.requested)
        if await self._make(run, step):
            self._tell(run.provisioner, step.name, run.cause)
        return timedelta()

    async def recorded(
        self, provisioner: CoderProvisioner, plane: CoderControlPlane, report: StatusReport[ProvisionerStatus]
    ) -> str:
        """The key to go on with while coderd does not confirm it; empty when there is none."""
        stored = await self._secret.recorded(provisioner, plane.metadata.name)
        if not stored.key or self._secret.taken(provisioner):
            return ""
        if any(outcome.type == SECRET_READY for outcome in report.findings):  # the Secret is refused: nothing is moved
            return stored.key if provisioner.status.secret_ref == _secret_ref(provisioner) else ""
        return (
            await as_condition(self._move(provisioner, stored, plane.metadata.name, report), report, SECRET_READY) or ""
        )

    async def _organization(self, provisioner: CoderProvisioner, plane: CoderControlPlane, coderd: Coderd) -> str:
        """The ID of the organization. coderd hides its keys from users without rights as if it were not there."""
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
        """What the status says. An earlier version knew the organization of a key to be made only by its name."""
        status = provisioner.status
        organization = status.organization_id
        if not organization and status.organization_name and status.control_plane_ref_name == wanted.plane:
            with suppress(coderd_errors.NotFound):
                organization = (await self._queries.organization(coderd, status.organization_name)).id
        return records.recorded_in(provisioner, organization)

    async def _confirm(self, run: Run) -> None:
        """`Conflict` if we look at the past, which may ask for a rotation that is long done. Before the first key there
        is nothing to lose."""
        if run.provisioner.status.provisioner_key_name:
            await self._client.confirm(PROVISIONER, run.provisioner.key, run.provisioner)
            await self._client.confirm(CONTROL_PLANE, run.plane.key, run.plane)
            await self._secret.confirm(run.provisioner)

    def secret_name_taken(self, provisioner: CoderProvisioner, report: Report) -> bool:
        """Whether somebody else's Secret would swallow the secret of every key that we make."""
        if not self._secret.taken(provisioner):
            return False
        taken = f"Secret {secret_name(provisioner)} is not ours: remove it or choose another key.secretName"
        report.add(SECRET_READY, False, reasons.NAME_TAKEN, taken, stalled=True)
        report.requeue_after(NAME_TAKEN_POLL)
        return True

    async def _decide(self, run: Run, max_age: timedelta) -> tuple[keys.Step, Seen]:
        """The next step, by answers of coderd that are no older than this."""
        provisioner, wanted, coderd = run.provisioner, run.wanted, run.coderd
        listed = await self._queries.keys(coderd, wanted.organization, max_age)
        known, here = listed.keys, (wanted.plane, wanted.organization)
        stored = await self._secret.read(provisioner)
        held = await self._secret.identify(provisioner, wanted.plane, coderd, stored, known)
        recorded = await self._recorded(provisioner, wanted, coderd)
        spared: set[str] = set()
        if not recorded.id and any(key.name == recorded.name for key in known):
            spared = {daemon.key_id for daemon in await self._queries.daemons(coderd, wanted.organization, max_age)}
            spared |= records.claimed(provisioner, self._provisioners, here, known)
        retiring = [
            (each.control_plane_ref_name, each.organization_id or wanted.organization) == here
            for each in provisioner.status.retiring_keys
        ]
        now = self._now()
        due, unhurried = records.asked(provisioner, stored.asked, now), records.unhurried(provisioner)
        hasty = unhurried is not None and now < unhurried <= now + records.LONGEST
        step = keys.next_step(wanted, recorded, held, known, retiring, self._rng, asked=due, spared=spared, hasty=hasty)
        return step, Seen(stored, held, records.requested_at(listed, now))

    async def _move(
        self, provisioner: CoderProvisioner, stored: Stored, plane: str, report: StatusReport[ProvisionerStatus]
    ) -> str:
        """The key that is in use, in the Secret that the pods are told of, whatever else has to wait."""
        await self._secret.write(provisioner, Stored(stored.key, stored.origin or plane, stored.asked))
        report.status.secret_ref = where = _secret_ref(provisioner)
        report.add(SECRET_READY, True, reasons.SECRET_READY, f"Secret {where.name} holds the key under {where.key}.")
        return stored.key

    async def _adopt(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, found: ProvisionerKey
    ) -> CoderProvisioner:
        here = found.organization == wanted.organization
        fits = keys.plain(found.tags) == keys.plain(wanted.tags)
        status = draft(provisioner.status)
        status.provisioner_key_id, status.provisioner_key_name = found.id, found.name
        status.organization_id = found.organization
        status.organization_name = records.organization_name(provisioner) if here else found.organization
        status.tags_hash = keys.tags_hash(wanted.tags if fits else found.tags)
        status.control_plane_ref_name, status.control_plane_url = wanted.plane, wanted.url
        status.key_requested, status.key_refused = None, False
        status.key_created = found.created_at.replace(microsecond=0)
        return await self._record(provisioner, status)

    async def _write_ahead(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, step: keys.Begin | keys.Make, requested: datetime
    ) -> CoderProvisioner:
        """Record a request before it is sent. Where its name was free just now, no key from before can be ours."""
        match step:
            case keys.Begin():
                return await self._begin(provisioner, wanted, step, requested)
            case keys.Make(lost=True):
                return provisioner
            case _:
                status = draft(provisioner.status)
                status.key_requested, status.key_refused = requested, False
                return await self._record(provisioner, status)

    async def _begin(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, step: keys.Begin, requested: datetime
    ) -> CoderProvisioner:
        """Record what is about to be made, and what it takes the place of, before it is made."""
        if step.foreign:
            note = (
                f"Coder has a key {step.foreign} that this object did not make: it is left alone, {step.name} is made"
            )
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
        """Write ahead of a step. What was decided for one spec must not be told as done for the next."""
        written = await self._status.record(provisioner, status)
        if written.metadata.generation != provisioner.metadata.generation:
            raise kube_errors.Conflict(409, "Conflict", f"{provisioner.key} changed meanwhile")
        return written

    async def _make(self, run: Run, step: keys.Begin | keys.Make) -> bool:
        """Create the recorded key and store it; False when its name is taken."""
        coderd, wanted = run.coderd, run.wanted
        if isinstance(step, keys.Make) and step.lost:
            with suppress(coderd_errors.NotFound):
                await coderd.delete_provisioner_key(wanted.organization, step.name)
        try:
            key = await coderd.create_provisioner_key(wanted.organization, step.name, wanted.tags)
        except coderd_errors.CoderdError as refusal:
            if isinstance(refusal, coderd_errors.RateLimited) or not isinstance(refusal, coderd_errors.Unavailable):
                status = draft(run.provisioner.status)
                status.key_refused = True
                run.provisioner = await self._record(run.provisioner, status)
            if isinstance(refusal, coderd_errors.Conflict):
                return False
            raise
        asked = run.provisioner.metadata.annotations.get(ROTATE, "")
        try:
            await self._secret.write(run.provisioner, Stored(key, wanted.plane, asked))
        except (kube_errors.Forbidden, kube_errors.Invalid, OwnedByOther):
            # Although the dry run passed: nothing will hold this key.
            with suppress(coderd_errors.CoderdError):
                await coderd.delete_provisioner_key(wanted.organization, step.name)
            raise
        return True

    def _tell(self, provisioner: CoderProvisioner, name: str, cause: str) -> None:
        """What was made, and why if this very pass decided on it."""
        before = [each.name for each in provisioner.status.retiring_keys]
        if not before and cause in ("", "Created", "NameTaken"):
            self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_CREATED, f"key {name}")
            return
        self._metrics.rotated(provisioner.key, cause or "Resumed")
        follows = f"key {name} follows {before[-1]}" if before else f"key {name} is made again"
        note = f"{cause}: {follows}" if cause else follows
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_ROTATED, note)


def _secret_ref(provisioner: CoderProvisioner) -> SecretKey:
    return SecretKey(name=secret_name(provisioner), key=provisioner.spec.key.secret_key)
