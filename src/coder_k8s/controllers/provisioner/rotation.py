"""Takes the steps that `keys` decides on: makes, stores, adopts and retires provisioner keys."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderControlPlane, CoderProvisioner
from coder_k8s.api.conditions import ProvisionerCondition
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.api.shared import SecretKey, seconds
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers import refusals
from coder_k8s.controllers.refusals import NAME_TAKEN_POLL
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.kube import errors as kube_errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder

from . import keys
from .keysecret import KeySecret, Stored
from .metrics import ProvisionerMetrics
from .objects import ROTATE, secret_name
from .views import INTERVAL, Views

KEY_READY = ProvisionerCondition.PROVISIONER_KEY_READY
SECRET_READY = ProvisionerCondition.PROVISIONER_KEY_SECRET_READY
STEPS = 8
"""More than any state needs to come to rest."""


class Rotation:
    """Keeps one key per provisioner in coderd and its secret in a Secret."""

    def __init__(
        self,
        client: Client,
        secret: KeySecret,
        status: StatusWriter[CoderProvisioner],
        views: Views,
        recorder: Recorder,
        metrics: ProvisionerMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._secret = secret
        self._status = status
        self._views = views
        self._recorder = recorder
        self._metrics = metrics
        self._now = now

    async def ensure(
        self, provisioner: CoderProvisioner, plane: CoderControlPlane, coderd: Coderd, report: Report
    ) -> tuple[CoderProvisioner, str]:
        """The object with what was recorded, and the key to run daemons with; empty when there is none."""
        if self._is_homeless(provisioner, report):
            return provisioner, ""
        wanted = wanted_by(provisioner, plane)
        max_age, checked, cause = INTERVAL, False, ""
        for _ in range(STEPS):
            step, stored, held, known = await self._decide(provisioner, wanted, coderd, max_age)
            max_age = INTERVAL
            if not (checked or isinstance(step, keys.Keep | keys.Wait)):
                max_age, checked = timedelta(), True  # decide on nothing but the present
                await self._confirm(provisioner, plane)
                continue
            match step:
                case keys.Keep() | keys.Wait() | keys.Blocked():
                    works = held is not None and held.id == provisioner.status.provisioner_key_id
                    self._tell_rest(provisioner, step, report)
                    return provisioner, await self._move(provisioner, stored, wanted, report) if works else ""
                case keys.Adopt(found):
                    provisioner = await self._adopt(provisioner, wanted, found, known)
                case keys.Begin():
                    provisioner, cause = await self._begin(provisioner, wanted, step), step.cause
                case keys.Make(name, lost):
                    made = False
                    with refusals.told(report, SECRET_READY):
                        await self._make(provisioner, wanted, coderd, name, lost)
                        made = True
                    if not made:
                        return provisioner, ""  # with all that was recorded: only the status knows what retires
                    self._tell(provisioner, name, cause)
                    max_age = timedelta()
        raise coderd_errors.Unavailable("the key changes faster than it can be recorded")

    async def _confirm(self, provisioner: CoderProvisioner, plane: CoderControlPlane) -> None:
        """`Conflict` if we look at the past, which may ask for a rotation that is long done. Before the first key there
        is nothing to lose."""
        if provisioner.status.provisioner_key_name:
            await self._client.confirm(PROVISIONER, provisioner.key, provisioner)
            await self._client.confirm(CONTROL_PLANE, plane.key, plane)
            await self._secret.confirm(provisioner)

    def _is_homeless(self, provisioner: CoderProvisioner, report: Report) -> bool:
        """Whether somebody else's Secret would swallow the secret of every key that we make."""
        if not self._secret.taken(provisioner):
            return False
        taken = f"Secret {secret_name(provisioner)} is not ours: remove it or choose another key.secretName"
        report.add(SECRET_READY, False, "NameTaken", taken, stalled=True)
        report.again(NAME_TAKEN_POLL)
        return True

    async def _decide(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, coderd: Coderd, max_age: timedelta
    ) -> tuple[keys.Step, Stored, ProvisionerKey | None, list[ProvisionerKey]]:
        """The next step, and what it follows from: what we hold, which key that is, and all that coderd has."""
        known = await self._views.keys(coderd, wanted.organization, max_age)
        stored = await self._secret.read(provisioner)
        held = await self._secret.identify(provisioner, wanted.plane, coderd, stored, known)
        retiring, due = _retiring(provisioner, wanted), self._due(provisioner, stored)
        step = keys.next_step(wanted, recorded_in(provisioner), held, known, retiring, due)
        if isinstance(step, keys.Cornered):
            step = step.give_way(await self._views.daemons(coderd, wanted.organization, max_age))
        return step, stored, held, known

    def _tell_rest(
        self, provisioner: CoderProvisioner, step: keys.Keep | keys.Wait | keys.Blocked, report: Report
    ) -> None:
        """Say why nothing is to be done at coderd now."""
        match step:
            case keys.Keep():
                report.add(KEY_READY, True, "KeyReady")
                if (due := self._interval(provisioner)) is not None:
                    report.again(max(0.0, (due - self._now()).total_seconds()))
            case keys.Wait(why):
                waiting = f"{why}: waiting for the last key to retire"
                report.add(KEY_READY, True, "Rotating", waiting, settled=False)
            case keys.Blocked(name):
                taken = f"coderd has a key {name} that is not ours: delete it there or choose another key.name"
                report.add(KEY_READY, False, "NameTaken", taken, stalled=True)

    async def _move(self, provisioner: CoderProvisioner, stored: Stored, wanted: keys.Wanted, report: Report) -> str:
        """The key that is in use, in the Secret that the pods are told of, whatever else has to wait."""
        await self._secret.write(provisioner, Stored(stored.key, stored.origin or wanted.plane, stored.asked))
        report.fields["secret_ref"] = SecretKey(name=secret_name(provisioner), key=provisioner.spec.key.secret_key)
        report.add(SECRET_READY, True, "SecretReady")
        return stored.key

    async def _adopt(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, found: ProvisionerKey, known: list[ProvisionerKey]
    ) -> CoderProvisioner:
        here = any(key.id == found.id for key in known)
        fits = _plain(found.tags) == _plain(wanted.tags)
        return await self._record(
            provisioner,
            provisioner_key_id=found.id,
            provisioner_key_name=found.name,
            organization_id=found.organization,
            organization_name=wanted.organization if here else found.organization,
            tags_hash=keys.tags_hash(wanted.tags if fits else found.tags),
            control_plane_ref_name=wanted.plane,
            control_plane_url=wanted.url,
            key_created=found.created_at.replace(microsecond=0),
        )

    async def _begin(self, provisioner: CoderProvisioner, wanted: keys.Wanted, step: keys.Begin) -> CoderProvisioner:
        """Record what is about to be made, and what it takes the place of, before it is made."""
        old = recorded_in(provisioner)
        retiring = [each for each in provisioner.status.retiring_keys if not _is(each, step.name, wanted)]
        if step.retires:
            retiring.append(
                RetiringKey(
                    name=old.name,
                    organization_name=old.organization,
                    control_plane_ref_name=old.plane,
                    control_plane_url=old.url,
                    since=self._now().replace(microsecond=0),
                )
            )
        return await self._record(
            provisioner,
            provisioner_key_name=step.name,
            provisioner_key_id="",
            organization_name=wanted.organization,
            organization_id="",
            tags_hash=keys.tags_hash(wanted.tags),
            control_plane_ref_name=wanted.plane,
            control_plane_url=wanted.url,
            key_created=None,
            retiring_keys=retiring,
        )

    async def _record(self, provisioner: CoderProvisioner, **fields: Any) -> CoderProvisioner:
        """Write ahead of a step. What was decided for one spec must not be told as done for the next."""
        written = await self._status.record(provisioner, **fields)
        if written.metadata.generation != provisioner.metadata.generation:
            raise kube_errors.Conflict(409, "Conflict", f"{provisioner.key} changed meanwhile")
        return written

    async def _make(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, coderd: Coderd, name: str, lost: bool
    ) -> None:
        if lost:
            with suppress(coderd_errors.NotFound):
                await coderd.delete_provisioner_key(wanted.organization, name)
        key = await coderd.create_provisioner_key(wanted.organization, name, wanted.tags)
        asked = provisioner.metadata.annotations.get(ROTATE, "")
        try:
            await self._secret.write(provisioner, Stored(key, wanted.plane, asked))
        except (kube_errors.Forbidden, kube_errors.Invalid):  # by a quota or a webhook: nobody will ever hold this key
            with suppress(coderd_errors.CoderdError):
                await coderd.delete_provisioner_key(wanted.organization, name)
            raise

    def _tell(self, provisioner: CoderProvisioner, name: str, cause: str) -> None:
        """What was made, and why if this very pass decided on it."""
        before = [each.name for each in provisioner.status.retiring_keys]
        if not before and cause in ("", "Created"):
            self._recorder.normal(PROVISIONER, provisioner, "ProvisionerKeyCreated", f"key {name}")
            return
        self._metrics.rotated(provisioner.key, cause or "Resumed")
        follows = f"key {name} follows {before[-1]}" if before else f"key {name} is made again"
        note = f"{cause}: {follows}" if cause else follows
        self._recorder.normal(PROVISIONER, provisioner, "ProvisionerKeyRotated", note)

    def _interval(self, provisioner: CoderProvisioner) -> datetime | None:
        rotation, created = provisioner.spec.key.rotation, provisioner.status.key_created
        if rotation is None or created is None:
            return None
        return created + timedelta(seconds=seconds(rotation.interval))

    def _due(self, provisioner: CoderProvisioner, stored: Stored) -> str:
        """Why another key is wanted although this one fits."""
        if provisioner.metadata.annotations.get(ROTATE, "") not in ("", stored.asked):
            return "Requested"
        due = self._interval(provisioner)
        return "IntervalElapsed" if due is not None and due <= self._now() else ""


def wanted_by(provisioner: CoderProvisioner, plane: CoderControlPlane) -> keys.Wanted:
    return keys.Wanted(
        base=provisioner.spec.key.name or provisioner.metadata.name,
        organization=provisioner.spec.organization_name or "default",
        tags=provisioner.spec.tags,
        plane=plane.metadata.name,
        url=plane.status.url,
    )


def recorded_in(provisioner: CoderProvisioner) -> keys.Recorded:
    status = provisioner.status
    return keys.Recorded(
        name=status.provisioner_key_name.lower(),
        id=status.provisioner_key_id,
        organization=status.organization_name,
        tags_hash=status.tags_hash,
        plane=status.control_plane_ref_name,
        url=status.control_plane_url,
    )


def _retiring(provisioner: CoderProvisioner, wanted: keys.Wanted) -> list[str]:
    return [each.name for each in provisioner.status.retiring_keys if _is(each, each.name, wanted)]


def _is(retiring: RetiringKey, name: str, wanted: keys.Wanted) -> bool:
    place = (retiring.name, retiring.organization_name, retiring.control_plane_ref_name)
    return place == (name, wanted.organization, wanted.plane)


def _plain(tags: Any) -> dict[str, str]:
    """Tags without what coderd fills in or drops by itself."""
    return {
        name: value
        for name, value in tags.items()
        if value and (name, value) not in (("scope", "organization"), ("owner", ""))
    }
