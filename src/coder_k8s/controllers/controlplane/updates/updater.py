"""Runs the steps of updates."""

from msgspec.structs import replace

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, events
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.controlplane.deployment import (
    CHECKSUM,
    CONTAINER,
    RECREATE,
    PodInputs,
    checksum_in,
    deployment,
)
from coder_k8s.controllers.deployments import image_in, typed
from coder_k8s.controllers.draft import draft
from coder_k8s.controllers.images import pull_policy
from coder_k8s.controllers.rejections import rejection
from coder_k8s.controllers.report import StatusReport
from coder_k8s.kube.apply import OwnedByOther
from coder_k8s.kube.errors import ApiError
from coder_k8s.kube.kinds import DEPLOYMENT, JOB
from coder_k8s.kube.objects import Key, Manifest, Unstructured

from .fleet import Fleet
from .gathering import Gathering, Subject
from .machine import INACTIVE, RETRY_REFUSED, elapsed, next_update
from .metrics import UpdateMetrics
from .observations import Seen
from .outcomes import PodPlan, Words, judge, pod_plan
from .preflight import Preflight
from .stored_images import StoredImages
from .windows import opening

POLL = {
    Step.BACKUP: 5.0,
    Step.DRAIN: 5.0,
    Step.VERIFY: 2.0,
    Step.MIGRATE: 30.0,
    Step.PREFLIGHT: 60.0,
    Step.STOP: 30.0,
    Step.ROLLBACK: 5.0,
    Step.FLEET: 60.0,
}
"""Seconds between two reconciles in steps that depend on more than what is watched, or on time."""
SUSPENDED = frozenset((Step.STOP, Step.MIGRATE, Step.ROLLBACK))
"""Steps in which Coder does not respond."""
PENDING_IMAGE = frozenset((*SUSPENDED, Step.VERIFY))
"""Steps in which `status.image` stays that of the last complete rollout."""
MAX_STEPS = len(Step)


class Updater:
    """Takes each update one step further, and stores every step in the status before it acts."""

    def __init__(self, context: Context[CoderControlPlane], fleet: Fleet, metrics: UpdateMetrics) -> None:
        self._context = context
        self._children = context.children
        self._gathering = Gathering(context, fleet)
        self.images = StoredImages(context.children)
        self._metrics = metrics

    def forget(self, key: Key) -> None:
        self._metrics.forget(key)
        self.images.forget(key)
        self._gathering.rejected_jobs.pop(key, None)

    async def seen(self, plane: CoderControlPlane, live: Unstructured | None) -> Unstructured | None:
        """The live Deployment with the image that was applied, if the API server stores it under another name."""
        if live is None:
            return None
        update = plane.status.update.image if plane.status.update and is_updating(plane) else ""
        for image in sorted({plane.spec.image, plane.status.image, update} - {""}):
            wanted = replace(plane, spec=replace(plane.spec, image=image))
            await self.images.learn(live, deployment(wanted, PodInputs()))
        return self.images.view(live)

    async def advance(
        self,
        plane: CoderControlPlane,
        live: Unstructured | None,
        pods: PodInputs,
        report: StatusReport[ControlPlaneStatus],
    ) -> tuple[CoderControlPlane, PodPlan | None]:
        """Take the update as far as it can go now; returns the control plane as last written, and its pods."""
        preflight = Preflight(plane, pods.inject_access_url)
        subject = Subject(plane, live, self.images.applied(plane.key, plane.status.image), pods, preflight)
        seen, words = await self._gathering.observe(subject, plane.status.update)
        for _ in range(MAX_STEPS):
            before = plane.status.update
            update = next_update(before, seen)
            if update == before:
                break
            if before is None or before.step in INACTIVE or (update and update.step == Step.ROLLED_BACK):
                await self._confirm(plane, live)
            plane = await self._record(plane, update, seen)
            subject = subject._replace(plane=plane)
            seen, words = await self._gathering.observe(subject, update)
        update = plane.status.update
        running = update is not None and update.step == Step.PREFLIGHT
        if running and self._children.get(JOB, Key(plane.metadata.namespace, preflight.name)) is None:
            seen = seen._replace(unpulled=await self._create_job(plane, preflight.job))
        await self._children.prune(JOB, plane, keep=[preflight.name] if running else [])
        if update is not None:
            self._report(plane, update, seen, words, report)
        return plane, pod_plan(update, plane.spec.replicas)

    async def _create_job(self, plane: CoderControlPlane, job: Manifest) -> str:
        """Create the Job; returns why the API server rejects it."""
        rejected = self._gathering.rejected_jobs
        rejected.pop(plane.key, None)
        try:
            await self._children.apply(JOB, plane, job)
        except (OwnedByOther, ApiError) as error:
            if (found := rejection(error)) is None:
                raise
            rejected[plane.key] = found.message
        return rejected.get(plane.key, "")

    async def _confirm(self, plane: CoderControlPlane, live: Unstructured | None) -> None:
        """Raise `Conflict` if the Deployment has changed.

        An outdated cache must not begin an update, nor return to the old image while a pod of the new one runs.
        """
        await self._children.confirm_child(DEPLOYMENT, plane.key, live)

    async def _record(self, plane: CoderControlPlane, update: UpdateStatus | None, seen: Seen) -> CoderControlPlane:
        """Store the next step, and report it by an event and metrics."""
        before = plane.status.update
        status = draft(plane.status)
        status.update = update
        if update is not None and update.step == Step.SCALE_BACK:
            status.image = update.image  # also if it is scaled to zero from now on
        plane = await self._context.status.record(plane, status)
        self._metrics.step(plane.key, before, update, self._context.now())
        for event, note in _events(before, update):
            self._context.recorder.record(CONTROL_PLANE, plane, event, note)
        if update is not None and update.step == Step.STOP and seen.undrained:
            self._context.recorder.record(CONTROL_PLANE, plane, events.DRAIN_INCOMPLETE, seen.undrained)
        if update is not None and update.step == Step.SCALE_BACK and not seen.verification.version:
            note = f"The pod of image {update.image} is ready, but the operator cannot query its version on port 8080"
            self._context.recorder.record(CONTROL_PLANE, plane, events.VERSION_NOT_VERIFIED, note)
        return plane

    def _report(
        self,
        plane: CoderControlPlane,
        update: UpdateStatus,
        seen: Seen,
        words: Words,
        report: StatusReport[ControlPlaneStatus],
    ) -> None:
        self._metrics.running(plane.key, update)
        report.add_outcome(judge(update, seen, words))
        step = Step(update.step)
        if step in POLL:
            report.requeue_after(POLL[step])
        if step == Step.WINDOW and (following := opening(plane.spec.update.windows, seen.now).next):
            report.requeue_after(max(1.0, (following - seen.now).total_seconds()))
        if step == Step.REFUSED and (retry := RETRY_REFUSED.get(update.reason)) is not None:
            report.requeue_after(max(1.0, (retry - elapsed(update, seen)).total_seconds()))


def is_updating(plane: CoderControlPlane) -> bool:
    """Whether a step of an update runs."""
    return plane.status.update is not None and plane.status.update.step not in INACTIVE


def is_suspended(plane: CoderControlPlane) -> bool:
    """Whether Coder does not respond because of an update."""
    return plane.status.update is not None and plane.status.update.step in SUSPENDED


def is_image_pending(plane: CoderControlPlane) -> bool:
    """Whether pods of the new image are not verified yet."""
    return plane.status.update is not None and plane.status.update.step in PENDING_IMAGE


def hold_patch(plan: PodPlan, plane: CoderControlPlane, live: Unstructured, checksum: str) -> Manifest:
    """The patch of a Deployment whose pod template does not change; empty if it is as the plan wants it.

    The pods follow the content of ConfigMaps and Secrets. Pods of an image that never rolled out completely do not
    change: one of them may migrate the database. A Deployment that is scaled to zero stays so: the database may have
    been restored, and pods of the old image would migrate it again.
    """
    known = typed(live)
    current = known.spec.replicas
    changes = bool(current) and plane.status.image in ("", known.image(CONTAINER))
    wanted = plan.replicas
    if wanted is None:
        wanted = plane.spec.replicas if changes else current
    patch: Manifest = {} if wanted == current else {"replicas": wanted}
    if plan.follows_sources and changes and checksum != checksum_in(live.manifest["spec"]["template"]):
        patch["template"] = {"metadata": {"annotations": {CHECKSUM: checksum}}}
    return {"spec": patch | strategy_patch(plan, live)} if patch or strategy_patch(plan, live) else {}


def accepted_patch(plan: PodPlan, plane: CoderControlPlane, live: Unstructured) -> Manifest:
    """The patch of a Deployment if the API server rejects that of the spec; empty if it is as the plan wants it.

    An update does not wait for a valid spec: it keeps the last pod template that was accepted. The new image is not
    added to a template that was accepted with the old one, because it may need other settings.

    | template that was accepted | step          | image       | replicas          |
    |----------------------------|---------------|-------------|-------------------|
    | with the image of the plan | any           | the same    | those of the plan |
    | with another image         | `RolledBack`  | the old one | those of the plan |
    | with another image         | another       | the same    | the same          |
    """
    update, spec = plane.status.update, live.manifest["spec"]
    patch: Manifest = {}
    if plan.image != image_in(live, CONTAINER):
        if update is None or update.step != Step.ROLLED_BACK:
            return {}
        new = {"image": plan.image, "imagePullPolicy": pull_policy(plan.image)}
        containers = spec["template"]["spec"]["containers"]
        changed = [{**each, **(new if each["name"] == CONTAINER else {})} for each in containers]
        patch["template"] = {"spec": {"containers": changed}}
    wanted = plane.spec.replicas if plan.replicas is None else plan.replicas
    if wanted != spec.get("replicas", 1):
        patch["replicas"] = wanted
    return {"spec": patch} if patch else {}


def strategy_patch(plan: PodPlan, live: Unstructured) -> Manifest:
    """The field of a Deployment that must change before its pod template does. Apply cannot remove `rollingUpdate`."""
    strategy = live.manifest["spec"].get("strategy", {}).get("type")
    if not plan.recreate or strategy == RECREATE:
        return {}
    return {"strategy": {"type": RECREATE, "rollingUpdate": None}}


def _events(before: UpdateStatus | None, update: UpdateStatus | None) -> list[tuple[events.Event, str]]:
    """The events of a transition; a refusal has that of the condition `Stalled`."""
    if update is None:
        active = before is not None and before.step not in INACTIVE
        return [(events.UPDATE_CANCELLED, f"The update to {before.image} is cancelled")] if before and active else []
    match Step(update.step):
        case Step.PREFLIGHT:
            return [(events.UPDATE_STARTED, f"Updating from {update.from_image} to {update.image}")]
        case Step.REFUSED | Step.ROLLED_BACK:
            return []
        case Step.COMPLETE:
            return [(events.UPDATE_COMPLETED, f"Updated to {update.image} ({update.to})")]
        case step:
            return [(events.UPDATE_STEP, f"Step {step} of the update to {update.image}")]
