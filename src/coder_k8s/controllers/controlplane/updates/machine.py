"""The steps of an update, as a pure function of the status and what is observed.

Coder migrates its database when a pod of a new version starts, in one transaction. Pods of the old version do not know
the new schema, and pods of the new version cannot use the old one. So a change of `image` in the spec is an update:

| step         | pods                          | ends when                                            | next         |
|--------------|-------------------------------|------------------------------------------------------|--------------|
| (none)       | follow the spec               | the image differs from that of pods that run or ran  | `Preflight`  |
| `Preflight`  | do not change                 | a Job with the new image has exited                  | `Window`     |
|              |                               | it shows that the image cannot be used, or time is up | `Refused`   |
|              |                               | the API server rejects the Deployment                | `Refused`    |
| `Window`     | do not change                 | a window is open, or none is configured; same schema | `Rollout`    |
|              |                               | the same, other schema or strategy `Recreate`        | `Backup`     |
|              |                               | it opens more than an hour after the preflight       | `Preflight`  |
| `Backup`     | do not change                 | a backup is complete, or none is configured          | `Drain`      |
|              |                               | the window has closed                                | `Window`     |
| `Drain`      | those of provisioners stop    | no build runs, or time is up                         | `Stop`       |
|              |                               | the window has closed                                | `Window`     |
|              |                               | time is up, `onTimeout: Abort`                       | `Refused`    |
|              |                               | the API server rejects the Deployment                | `Refused`    |
| `Stop`       | all stop, old image           | no pod is left                                       | `Migrate`    |
|              |                               | the spec has the old image again, but is rejected    | `RolledBack` |
| `Migrate`    | one pod of the new image      | it is ready                                          | `Verify`     |
|              |                               | the Deployment of the new image is rejected          | `RolledBack` |
|              |                               | it crashes and the schema has not changed            | `Rollback`   |
|              |                               | it crashes or is late, and the image changed again   | `Preflight`  |
| `Verify`     | one pod of the new image      | its version is right, the operator has access        | `ScaleBack`  |
|              |                               | it is ready, but cannot be queried for two minutes   | `ScaleBack`  |
| `ScaleBack`  | as many as the spec wants     | all are ready                                        | `Fleet`      |
| `Rollout`    | replaced one after another    | all are ready                                        | `Fleet`      |
| `Fleet`      | those of provisioners follow  | they run the new image, or time is up                | `Complete`   |
| `Rollback`   | all stop                      | no pod is left and the schema has not changed        | `RolledBack` |
|              |                               | no pod is left and the schema has changed            | `Migrate`    |
|              |                               | the schema is not known, and the image changed again | `Preflight`  |
| `Refused`    | do not change                 | the image or what the preflight depends on changes   | `Preflight`  |
|              |                               | the reason may be temporary, after some time         | `Preflight`  |
| `RolledBack` | follow the spec, old image    | the image or what the preflight depends on changes   | `Preflight`  |
| `Complete`   | follow the spec               | as (none)                                            | `Preflight`  |

Up to `Drain`, and in `Refused` and `RolledBack`, the update ends when nothing is to be updated any more: the spec has
the old image again, no replicas, or the strategy `Rolling`. In `Stop` it ends when the spec has the old image again.
`RolledBack` does not end before the Deployment has replicas again: the steps that follow do not start pods. An
image that changes later is taken up after `Verify`, or when the new pod does not work. The old image is started again
only while the schema is known to be unchanged. A first Deployment, or one that never had a pod, is no update.

Every step is stored in the status before it acts on pods, and its actions are idempotent. So an operator that
restarts continues with the stored step.
"""

from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from coder_k8s.api import reasons
from coder_k8s.api.updates import Plan, Step, UpdateStatus

from .due import base_image, is_due
from .known_paths import intermediate_version, tag
from .observations import Schema, Seen

PREFLIGHT_TIMEOUT = timedelta(minutes=11)
"""A minute more than the deadline of the Job."""
PREFLIGHT_VALID = timedelta(hours=1)
ACCESS_TIMEOUT = timedelta(minutes=2)
"""How long `Verify` waits for operator access, and for a response of the pod."""
FLEET_TIMEOUT = timedelta(minutes=10)

RETRY_REFUSED = {
    str(reasons.IMAGE_UNREADABLE): timedelta(minutes=10),
    str(reasons.PREFLIGHT_FAILED): timedelta(minutes=10),
    str(reasons.DRAIN_TIMEOUT): timedelta(hours=1),  # a drain stops the provisioners
    str(reasons.DOWNGRADE_REFUSED): timedelta(hours=1),
}
"""After which time a refused update is tried again: the reason may disappear without a change of the spec."""
CANCELLABLE = frozenset((Step.PREFLIGHT, Step.WINDOW, Step.BACKUP, Step.DRAIN, Step.REFUSED, Step.ROLLED_BACK))
"""Steps in which the pods serve as before: another image, or none, is taken up at once."""
INACTIVE = frozenset((Step.COMPLETE, Step.REFUSED, Step.ROLLED_BACK))


def next_update(update: UpdateStatus | None, seen: Seen) -> UpdateStatus | None:
    """The update with its next step; the same if the current step continues, `None` if there is nothing to update."""
    if is_settled(update, seen):
        return update
    if update is None or update.step == Step.COMPLETE:
        return _begin(seen)
    step = Step(update.step)
    if step == Step.ROLLED_BACK and seen.replicas and not seen.live_replicas:
        return update
    if step in CANCELLABLE and not is_due(seen):
        return None
    if step in CANCELLABLE and (seen.image, seen.inputs) != (update.image, update.inputs):
        return _begin(seen)
    return _STEPS[step](update, seen)


def is_settled(update: UpdateStatus | None, seen: Seen) -> bool:
    """Whether no update runs, and none is due."""
    return (update is None or update.step == Step.COMPLETE) and not is_due(seen)


def _begin(seen: Seen) -> UpdateStatus:
    return UpdateStatus(
        image=seen.image,
        step=Step.PREFLIGHT,
        from_image=base_image(seen),
        from_=seen.version,
        started_at=seen.now,
        step_started_at=seen.now,
        inputs=seen.inputs,
    )


def _to(update: UpdateStatus, step: Step, seen: Seen) -> UpdateStatus:
    return replace(update, step=step, step_started_at=seen.now)


def _refuse(update: UpdateStatus, seen: Seen, reason: reasons.Reason, message: str) -> UpdateStatus:
    return replace(_to(update, Step.REFUSED, seen), reason=str(reason), message=message)


def elapsed(update: UpdateStatus, seen: Seen) -> timedelta:
    """How long the current step takes."""
    return seen.now - (update.step_started_at or seen.now)


def _preflight(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    verdict = seen.verdict
    if verdict is None:
        if elapsed(update, seen) < PREFLIGHT_TIMEOUT:
            return update
        cause = seen.unpulled or "the preflight Job did not finish in time"
        return _refuse(update, seen, reasons.IMAGE_UNREADABLE, f"Image {update.image} cannot be checked: {cause}")
    if verdict.error:
        message = f"The preflight of image {update.image} failed: {verdict.error}"
        return _refuse(update, seen, reasons.PREFLIGHT_FAILED, message)
    if not verdict.version:
        message = f"Image {update.image} does not report a version of Coder; use an image of Coder for this platform"
        return _refuse(update, seen, reasons.IMAGE_UNREADABLE, message)
    if seen.invalid:
        return _refuse(update, seen, reasons.PREFLIGHT_FAILED, _rejected(update.image, seen))
    if seen.dirty:
        message = "A migration of the database failed before; repair the database, or restore a backup"
        return _refuse(update, seen, reasons.PREFLIGHT_FAILED, message)
    if verdict.schema is Schema.NEWER:
        message = (
            f"The database has a newer schema than image {update.image} ({verdict.version}) can use; "
            f"set image to {update.from_image} or a newer version, or restore a backup"
        )
        return _refuse(update, seen, reasons.DOWNGRADE_REFUSED, message)
    if first := intermediate_version(update.from_ or tag(update.from_image), verdict.version):
        message = f"Coder cannot be updated from {update.from_} to {verdict.version} directly; update to {first} first"
        return _refuse(update, seen, reasons.KNOWN_BAD_PATH, message)
    # Pods of another image than that of the last complete rollout may be about to migrate the database.
    same = verdict.schema is Schema.SAME and seen.running == seen.live_image
    plan = Plan.ROLLING if same and seen.strategy == "Auto" else Plan.RECREATE
    return replace(_to(update, Step.WINDOW, seen), to=verdict.version, plan=plan, schema_before=seen.schema)


def _rejected(image: str, seen: Seen) -> str:
    return f"The Deployment with image {image} is rejected: {seen.invalid}"


def _restore(update: UpdateStatus, image: str, seen: Seen) -> UpdateStatus:
    """Start the old image again, because the API server rejects the Deployment. No pod of the new one has run."""
    found = replace(_to(update, Step.ROLLED_BACK, seen), inputs=seen.inputs)
    return replace(found, reason=str(reasons.ROLLED_BACK), message=_rejected(image, seen))


def _window(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    if not seen.window_open:
        return update
    if elapsed(update, seen) > PREFLIGHT_VALID:
        return _begin(seen)
    step = Step.ROLLOUT if update.plan == Plan.ROLLING else Step.BACKUP
    return replace(_to(update, step, seen), message="")


def _backup(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    if not seen.window_open:
        return _closed(update, seen, "before the backup was complete")
    if not seen.backup.done and not seen.backup.waived:
        return update
    return replace(_to(update, Step.DRAIN, seen), backup_ref=seen.backup.done)


def _closed(update: UpdateStatus, seen: Seen, when: str) -> UpdateStatus:
    message = f"The last window closed {when}; make update.windows longer, or update.drain.timeout shorter"
    return replace(_to(update, Step.WINDOW, seen), message=message)


def _drain(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    if not seen.window_open:
        return _closed(update, seen, "while builds ran")
    late = elapsed(update, seen).total_seconds() >= seen.drain_timeout
    if not seen.drained and not late:
        return update
    if not seen.drained and seen.abort:
        message = "Builds still run after update.drain.timeout; the update is tried again in an hour"
        if not seen.readable:
            message = "The operator cannot read which builds run; fix its access to Coder, or change update.drain"
        return _refuse(update, seen, reasons.DRAIN_TIMEOUT, message)
    if seen.invalid:
        return _refuse(update, seen, reasons.PREFLIGHT_FAILED, _rejected(update.image, seen))
    return replace(_to(update, Step.STOP, seen), resume_replicas=seen.replicas)


def _stop(update: UpdateStatus, seen: Seen) -> UpdateStatus | None:
    if seen.image == update.from_image == seen.live_image:
        return _restore(update, seen.image, seen) if seen.invalid else None
    if not seen.stopped:
        return update
    return _to(update, Step.MIGRATE, seen) if seen.replicas else None


def _migrate(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    if seen.ready:
        return _to(update, Step.VERIFY, seen)
    if seen.invalid and seen.live_image == update.from_image != update.image:
        return _restore(update, update.image, seen)
    if seen.crashing and update.schema_before and seen.schema == update.schema_before:
        message = f"Image {update.image} does not start: {seen.crashing}"
        return replace(_to(update, Step.ROLLBACK, seen), reason=str(reasons.ROLLED_BACK), message=message)
    return _take_up_another(update, seen)


def _rollback(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    if seen.stopped and not seen.schema and seen.image != update.image and is_due(seen):
        return _begin(seen)
    if not seen.stopped or not seen.schema:
        return update
    unchanged = seen.schema == update.schema_before
    return _to(update, Step.ROLLED_BACK if unchanged else Step.MIGRATE, seen)


def _verify(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    found = seen.verification
    waited = elapsed(update, seen) >= ACCESS_TIMEOUT
    known = bool(found.version and found.expected)
    if seen.ready and ((known and (found.access or waited)) or (not found.version and waited and seen.probed)):
        to = found.version or update.to  # its readiness probe succeeds
        return replace(_to(update, Step.SCALE_BACK, seen), to=to, schema_after=seen.schema)
    return _take_up_another(update, seen)


def _take_up_another(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    """Begin with another image, if the spec has one and that of the update does not work."""
    late = elapsed(update, seen).total_seconds() >= seen.migration_timeout
    broken = seen.crashing or late
    return _begin(seen) if broken and seen.image != update.image and is_due(seen) else update


def _scale_back(update: UpdateStatus, seen: Seen) -> UpdateStatus | None:
    if seen.image != update.image:
        return _begin(seen) if is_due(seen) else None
    return _to(update, Step.FLEET, seen) if seen.complete else update


def _fleet(update: UpdateStatus, seen: Seen) -> UpdateStatus | None:
    if seen.image != update.image:
        return _begin(seen) if is_due(seen) else None
    done = seen.fleet or elapsed(update, seen) >= FLEET_TIMEOUT
    return _to(update, Step.COMPLETE, seen) if done else update


def _refused(update: UpdateStatus, seen: Seen) -> UpdateStatus:
    retry = RETRY_REFUSED.get(update.reason)
    return _begin(seen) if retry is not None and elapsed(update, seen) >= retry else update


def _rolled_back(update: UpdateStatus, seen: Seen) -> UpdateStatus:  # noqa: ARG001 - only another image ends it
    return update


_STEPS: dict[Step, Callable[[UpdateStatus, Seen], UpdateStatus | None]] = {
    Step.PREFLIGHT: _preflight,
    Step.WINDOW: _window,
    Step.BACKUP: _backup,
    Step.DRAIN: _drain,
    Step.STOP: _stop,
    Step.MIGRATE: _migrate,
    Step.VERIFY: _verify,
    Step.SCALE_BACK: _scale_back,
    Step.ROLLOUT: _scale_back,
    Step.FLEET: _fleet,
    Step.ROLLBACK: _rollback,
    Step.REFUSED: _refused,
    Step.ROLLED_BACK: _rolled_back,
}
