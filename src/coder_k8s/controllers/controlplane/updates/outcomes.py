"""The condition `Upgrading`, and what each step wants of the pods."""

from typing import NamedTuple

import msgspec

from coder_k8s.api import ControlPlaneCondition, reasons
from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.controllers.report import Outcome

from .machine import ACCESS_TIMEOUT, elapsed
from .observations import Seen

UPGRADING = ControlPlaneCondition.UPGRADING
REFUSALS = {
    str(reason): reason
    for reason in (
        reasons.DOWNGRADE_REFUSED,
        reasons.KNOWN_BAD_PATH,
        reasons.IMAGE_UNREADABLE,
        reasons.PREFLIGHT_FAILED,
        reasons.DRAIN_TIMEOUT,
    )
}


class Words(NamedTuple):
    """What messages name."""

    job: str = ""
    pod: str = ""
    """A pod that stops or starts."""
    opens: str = ""
    """When the next window opens."""
    schedule_error: str = ""
    drain_timeout: str = ""
    migration_timeout: str = ""


class PodPlan(msgspec.Struct, frozen=True):
    """What a step wants of the Deployment."""

    image: str = ""
    """Image to apply, with everything else of the spec; empty: the pod template does not change."""
    replicas: int | None = None
    """`None`: the number of the spec; of a template that does not change, only while it has the old image."""
    recreate: bool = False
    """Whether a change of the template stops the old pod before it starts the new one."""
    follows_sources: bool = False
    """Whether a template that does not change otherwise follows the content of ConfigMaps and Secrets."""


def pod_plan(update: UpdateStatus | None, replicas: int) -> PodPlan | None:
    """What the current step wants of the Deployment; `None` if it follows the spec."""
    if update is None:
        return None
    match Step(update.step):
        case Step.PREFLIGHT | Step.WINDOW | Step.BACKUP | Step.REFUSED:
            return PodPlan(follows_sources=True)
        case Step.DRAIN:
            return PodPlan()
        case Step.STOP | Step.ROLLBACK:
            return PodPlan(replicas=0, recreate=True)
        case Step.MIGRATE | Step.VERIFY:
            return PodPlan(update.image, min(1, replicas), recreate=True)
        case Step.ROLLED_BACK:
            return PodPlan(update.from_image)
        case Step.SCALE_BACK | Step.ROLLOUT | Step.FLEET:
            return PodPlan(update.image)
        case Step.COMPLETE:
            return None


def judge(update: UpdateStatus, seen: Seen, words: Words) -> Outcome:
    """The condition of the current step. It does not decide `Ready` once the control plane itself is updated."""
    match Step(update.step):
        case Step.COMPLETE:
            source = f"from {update.from_} " if update.from_ else ""
            return Outcome(UPGRADING, False, reasons.UPDATED, f"Updated {source}to {update.to}", satisfied=True)
        case Step.REFUSED:
            return Outcome(UPGRADING, False, REFUSALS[update.reason], update.message, stalled=True)
        case Step.ROLLED_BACK:
            message = f"{update.message}. Image {update.from_image} runs again"
            return Outcome(UPGRADING, False, reasons.ROLLED_BACK, message, stalled=True)
        case Step.MIGRATE | Step.VERIFY:
            return _judge_new_pod(update, seen, words)
        case Step.FLEET:
            message = f"Waiting until the provisioners run image {update.image}"
            return Outcome(UPGRADING, True, reasons.FLEET, message, satisfied=True)
        case _:
            return _judge_progress(update, seen, words)


def _judge_progress(update: UpdateStatus, seen: Seen, words: Words) -> Outcome:
    match Step(update.step):
        case Step.PREFLIGHT | Step.WINDOW | Step.BACKUP:
            return _judge_waiting(update, seen, words)
        case Step.DRAIN:
            builds = "running builds" if seen.readable else "Coder to report which builds run"
            return _running(reasons.DRAIN, f"Waiting for {builds}, at most for {words.drain_timeout}")
        case Step.STOP:
            return _running(
                reasons.STOP, f"Waiting until pod {words.pod} has stopped" if words.pod else "Stopping all pods"
            )
        case Step.ROLLBACK if seen.stopped and not seen.schema:
            message = (
                f"Image {update.image} does not start, and the database does not respond, so it is not known whether "
                f"image {update.from_image} can be started again; fix the database, or set another image"
            )
            return _running(reasons.ROLLBACK, message)._replace(stalled=True)
        case Step.ROLLBACK:
            message = f"Stopping the pod of image {update.image}, which does not start"
            return _running(reasons.ROLLBACK, message)
        case Step.ROLLOUT:
            message = (
                f"Replacing the pods one after another by image {update.image}, which has the same database schema"
            )
            return _running(reasons.ROLLOUT, message)
        case _:
            return _running(reasons.SCALE_BACK, f"Starting all pods of image {update.image}")


def _judge_waiting(update: UpdateStatus, seen: Seen, words: Words) -> Outcome:
    """The condition of the steps in which the pods do not change."""
    match Step(update.step):
        case Step.PREFLIGHT if seen.unpulled:
            message = f"Image {update.image} cannot be checked: {seen.unpulled}"
            return _running(reasons.IMAGE_UNREADABLE, message)._replace(stalled=True)
        case Step.PREFLIGHT:
            message = f"Checking image {update.image} with Job {words.job}; the pods do not change meanwhile"
            return _running(reasons.PREFLIGHT, message)
        case Step.WINDOW if words.schedule_error:
            return _running(reasons.WINDOW, words.schedule_error)._replace(stalled=True)
        case Step.WINDOW:
            before = f". {update.message}" if update.message else ""
            return _running(reasons.WINDOW, f"Waiting for the update window that opens {words.opens}{before}")
        case _ if seen.backup.error:
            return _running(reasons.BACKUP_MISSING, seen.backup.error)._replace(stalled=True)
        case _:
            return _running(reasons.BACKUP, f"Waiting for Backup {words.job}")


def _judge_new_pod(update: UpdateStatus, seen: Seen, words: Words) -> Outcome:
    found = seen.verification
    if seen.crashing:
        backup = f"; backup {update.backup_ref} is from before" if update.backup_ref else ""
        message = (
            f"Image {update.image} does not start: {seen.crashing}. Image {update.from_image} is not started again, "
            f"because the database may have changed{backup}"
        )
        return _running(reasons.MIGRATION_FAILED, message)._replace(stalled=True)
    if update.step == Step.VERIFY and found.version and not found.expected:
        message = (
            f"Pod {words.pod} reports version {found.version}, but image {update.image} reported {update.to} in the "
            "preflight"
        )
        return _running(reasons.VERSION_MISMATCH, message)._replace(stalled=True)
    if update.step == Step.VERIFY and seen.ready and not found.version:
        message = f"Pod {words.pod} does not respond to the operator; permit traffic to its port 8080"
        return _running(reasons.VERIFY, message)._replace(stalled=elapsed(update, seen) >= ACCESS_TIMEOUT)
    if elapsed(update, seen).total_seconds() >= seen.migration_timeout and seen.replicas:
        message = (
            f"The pod of image {update.image} is not ready after {words.migration_timeout} and may still migrate the "
            "database; check its log and locks in the database, and do not delete it"
        )
        return _running(reasons.MIGRATION_TIMEOUT, message)._replace(stalled=True)
    if not seen.replicas:
        message = f"Waiting until replicas is not 0: no pod of image {update.image} migrates the database"
        return _running(reasons.MIGRATE, message)
    if update.step == Step.VERIFY:
        return _running(reasons.VERIFY, f"Checking the version of pod {words.pod}" if words.pod else "Starting a pod")
    return _running(reasons.MIGRATE, f"A pod of image {update.image} migrates the database")


def _running(reason: reasons.Reason, message: str) -> Outcome:
    return Outcome(UPGRADING, True, reason, message, satisfied=False)
