"""Gathers what the current step of an update depends on, and nothing else."""

from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from coder_k8s.api import CoderControlPlane, ControlPlaneCondition, reasons
from coder_k8s.api.shared import seconds
from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.controlplane.deployment import CONTAINER, PodInputs, deployment
from coder_k8s.controllers.controlplane.objects import HTTP_PORT, NAME
from coder_k8s.controllers.deployments import typed
from coder_k8s.controllers.images import pull_policy
from coder_k8s.controllers.labels import labels, selector
from coder_k8s.controllers.pods import crash_count, failing, is_over, is_ready
from coder_k8s.controllers.rejections import rejection
from coder_k8s.controllers.rollout import rollout
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import DEPLOYMENT, JOB, POD
from coder_k8s.kube.objects import Key, Unstructured

from . import preflight
from .backups import Backups, backup_name
from .fleet import Builds, Fleet
from .known_paths import parse
from .machine import elapsed, is_settled
from .observations import Seen, Verification
from .outcomes import Words
from .preflight import Preflight
from .schema import read_schema
from .windows import opening

CRASHES = 3
"""Restarts of a container after which it is not expected to start any more."""
DOWN = timedelta(minutes=1)
"""How long Coder must not have served until it is not asked for builds."""
UNDRAINED = {
    Builds.NONE: "",
    Builds.RUNNING: "Builds still run after update.drain.timeout, and may fail",
    Builds.UNREADABLE: "The operator cannot read which builds run; those that run may fail",
}
READY = ControlPlaneCondition.OPERATOR_ACCESS_READY


class Subject(NamedTuple):
    """A control plane and its live Deployment, both with the names of images as they were applied."""

    plane: CoderControlPlane
    live: Unstructured | None
    running: str
    """`status.image`."""
    pods: PodInputs
    preflight: Preflight


class Gathering:
    """Observes the cluster, Coder and its database."""

    def __init__(self, context: Context[CoderControlPlane], fleet: Fleet) -> None:
        self._client = context.client
        self._children = context.children
        self._connections = context.runtime.coderd
        self._backups = Backups(context.client)
        self._fleet = fleet
        self._now = context.now
        self.rejected_jobs: dict[Key, str] = {}
        """Why the API server rejects the Job of the preflight."""

    async def observe(self, subject: Subject, update: UpdateStatus | None) -> tuple[Seen, Words]:
        """What the current step depends on, and what its message names."""
        plane, live = subject.plane, typed(subject.live) if subject.live else None
        seen = Seen(
            now=self._now(),
            image=plane.spec.image,
            replicas=plane.spec.replicas,
            strategy=plane.spec.update.strategy,
            running=subject.running,
            version=plane.status.version,
            live_image=live.image(CONTAINER) if live else "",
            live_replicas=live.spec.replicas if live else 0,
            has_pods=bool(self._pods(plane)) or bool(live and live.status.replicas),
            drain_timeout=seconds(plane.spec.update.drain.timeout),
            abort=plane.spec.update.drain.on_timeout == "Abort",
            migration_timeout=seconds(plane.spec.update.migration_timeout),
            probed=plane.spec.readiness_probe.enabled,
        )
        if not is_settled(update, seen):
            seen = seen._replace(inputs=subject.preflight.inputs)
        words = Words(
            drain_timeout=plane.spec.update.drain.timeout,
            migration_timeout=plane.spec.update.migration_timeout,
        )
        return (seen, words) if update is None else await self._observe_step(subject, update, seen, words)

    async def _observe_step(
        self, subject: Subject, update: UpdateStatus, seen: Seen, words: Words
    ) -> tuple[Seen, Words]:
        plane = subject.plane
        match Step(update.step):
            case Step.PREFLIGHT:
                return await self._preflight(subject, seen), words._replace(job=subject.preflight.name)
            case Step.WINDOW:
                found = opening(plane.spec.update.windows, seen.now)
                return seen._replace(window_open=found.open), words._replace(
                    opens=found.text, schedule_error=found.error
                )
            case Step.BACKUP:
                backup = await self._backups.ensure(plane, update, seen.now)
                opened = opening(plane.spec.update.windows, seen.now).open
                found_backup = seen._replace(backup=backup, window_open=opened)
                return found_backup, words._replace(job=backup_name(plane, update))
            case Step.DRAIN:
                return await self._drain(subject, update, seen), words
            case Step.STOP | Step.ROLLBACK:
                return await self._stopped(subject, update, seen, words)
            case Step.MIGRATE | Step.VERIFY:
                return await self._new_pod(subject, update, seen, words)
            case Step.SCALE_BACK | Step.ROLLOUT:
                found_rollout = rollout(subject.live, seen.replicas, CONTAINER)
                complete = found_rollout.complete and found_rollout.wanted == seen.replicas
                return seen._replace(complete=complete and found_rollout.image == update.image), words
            case Step.FLEET:
                return seen._replace(fleet=self._fleet.is_updated(plane, update)), words
            case _:
                return seen, words

    async def _preflight(self, subject: Subject, seen: Seen) -> Seen:
        plane = subject.plane
        job = self._children.get(JOB, Key(plane.metadata.namespace, subject.preflight.name))
        if job is None or not job.is_controlled_by(plane):
            return seen._replace(unpulled=self.rejected_jobs.get(plane.key, ""))
        pods = [
            each
            for each in self._children.pods(preflight.COMPONENT, plane)
            if each.controller is not None and each.controller.uid == job.metadata.uid
        ]
        verdict = preflight.read(job.manifest, pods)
        if verdict is None:
            return seen._replace(unpulled=failing(pods))
        schema = await read_schema(self._client, plane)
        invalid = await self._rejection(subject, seen.image)
        return seen._replace(verdict=verdict, schema=schema.version, dirty=schema.dirty, invalid=invalid)

    async def _rejection(self, subject: Subject, image: str) -> str:
        """Why the API server rejects the Deployment of the spec with this image; empty if it does not."""
        plane = subject.plane
        desired = deployment(replace(plane, spec=replace(plane.spec, image=image)), subject.pods)
        try:
            await self._children.dry_run(DEPLOYMENT, desired)
        except errors.ApiError as error:
            if (rejected := rejection(error)) is None:
                raise
            return rejected.message
        return ""

    async def _drain(self, subject: Subject, update: UpdateStatus, seen: Seen) -> Seen:
        builds = await self._fleet.builds(subject.plane, down=self._is_down(subject, seen.now))
        seen = seen._replace(
            drained=builds is Builds.NONE,
            undrained=UNDRAINED[builds],
            readable=builds is not Builds.UNREADABLE,
            window_open=opening(subject.plane.spec.update.windows, seen.now).open,
        )
        if not seen.drained and elapsed(update, seen).total_seconds() < seen.drain_timeout:
            return seen
        invalid = await self._rejection(subject, seen.image)  # a policy may have changed since the preflight
        return seen._replace(invalid=invalid)

    async def _stopped(self, subject: Subject, update: UpdateStatus, seen: Seen, words: Words) -> tuple[Seen, Words]:
        plane = subject.plane
        left = self._pods(plane)
        stopped = not left and seen.live_replicas == 0 and await self._is_stopped(plane)
        pod = min((each.metadata.name for each in left), default="")
        schema = (await read_schema(self._client, plane)).version if stopped and update.step == Step.ROLLBACK else 0
        reverted = update.step == Step.STOP and seen.image == update.from_image
        invalid = await self._rejection(subject, seen.image) if reverted else ""
        return seen._replace(stopped=stopped, schema=schema, invalid=invalid), words._replace(pod=pod)

    async def _is_stopped(self, plane: CoderControlPlane) -> bool:
        """Whether no pod is left and none will be created, according to the API server: a cache may be outdated."""
        own = selector(labels(NAME, plane))
        async for page in self._client.list(DEPLOYMENT, plane.metadata.namespace, labels=own):
            for item in page.items:
                found = rollout(DEPLOYMENT.type.decode(item), 0, CONTAINER)
                if found.wanted or not found.complete:
                    return False
        async for page in self._client.list(POD, plane.metadata.namespace, labels=own):
            if not all(is_over(POD.type.decode(item)) for item in page.items):
                return False
        return True

    async def _new_pod(self, subject: Subject, update: UpdateStatus, seen: Seen, words: Words) -> tuple[Seen, Words]:
        plane = subject.plane
        found = rollout(subject.live, seen.replicas, CONTAINER)
        ready = found.complete and found.wanted == 1 and found.image == update.image
        pods = [each for each in self._pods(plane) if not each.deleting]
        broken = [each for each in pods if not is_ready(each) and crash_count(each, CONTAINER) >= CRASHES]
        crashing = failing(broken)
        seen = seen._replace(ready=ready, crashing=crashing)
        if seen.live_image == update.from_image != update.image:  # no pod of the new image has run yet
            seen = seen._replace(invalid=await self._rejection(subject, update.image))
        if crashing or (ready and update.step == Step.VERIFY):
            seen = seen._replace(schema=(await read_schema(self._client, plane)).version)
        if not ready or update.step != Step.VERIFY:
            return seen, words
        pod = next(filter(is_ready, pods), None)
        if pod is None:  # the cache does not have it yet
            return seen._replace(ready=False), words
        return seen._replace(verification=await self._verify(plane, update, pod)), words._replace(pod=pod.metadata.name)

    async def _verify(self, plane: CoderControlPlane, update: UpdateStatus, pod: Unstructured) -> Verification:
        version = await self._version_of(plane, pod)
        # A tag that moves may have moved since the preflight.
        expected = parse(version) == parse(update.to) or pull_policy(update.image) == "Always"
        access = find(plane.status.conditions, READY)
        checked = access is not None and access.is_true and access.reason != reasons.UPGRADING
        return Verification(version, expected, checked or plane.spec.operator_access.disabled)

    async def _version_of(self, plane: CoderControlPlane, pod: Unstructured) -> str:
        """The version that a pod reports. It is the only one, so the Service also leads to it."""
        address = str((pod.manifest.get("status") or {}).get("podIP", ""))
        host = f"[{address}]" if ":" in address else address
        for url in ([f"http://{host}:{HTTP_PORT}"] if host else []) + [api_url(plane)]:
            try:
                return (await Coderd(self._connections, url).build_info()).version
            except coderd_errors.CoderdError:
                continue
        return ""

    def _is_down(self, subject: Subject, now: datetime) -> bool:
        """Whether no pod is ready for more than a moment."""
        known = find(subject.plane.status.conditions, ControlPlaneCondition.AVAILABLE)
        if known is None or known.is_true or rollout(subject.live, 0, CONTAINER).ready:
            return False
        return now - known.last_transition_time >= DOWN

    def _pods(self, plane: CoderControlPlane) -> list[Unstructured]:
        """The pods, without those that have ended and are kept, such as evicted ones."""
        return [pod for pod in self._children.pods(NAME, plane) if not is_over(pod)]
