"""Starts an update of Coder, or shows what it would do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.api.updates import Plan, Step, UpdateStatus
from coder_k8s.controllers.controlplane.updates import machine, preflight
from coder_k8s.controllers.controlplane.updates.observations import Seen, Verdict
from coder_k8s.controllers.controlplane.updates.windows import opening
from coder_k8s.controllers.names import derived
from coder_k8s.controllers.pods import failing
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import JOB, POD
from coder_k8s.kube.objects import Key, Manifest, Unstructured

from .session import CommandFailed, Session

POLL = 1.0
COMPONENT = "coder-dry-run"
"""The operator manages only the Jobs with its own labels."""


async def start(session: Session, name: str, image: str) -> str:
    """Set the image of a control plane."""
    plane = await _find(session, name)
    if plane.spec.image == image:
        return f"CoderControlPlane {name} already has image {image}"
    await session.client.merge(CONTROL_PLANE, plane.key, {"spec": {"image": image}})
    return f"CoderControlPlane {name}: image {plane.spec.image} -> {image}; follow it with `coder-k8s status`"


async def dry_run(session: Session, name: str, image: str, seconds: float, write: Callable[[str], None]) -> bool:
    """Run the preflight, and print what an update to an image would do; return whether it would start."""
    plane = await _find(session, name)
    wanted = replace(plane, spec=replace(plane.spec, image=image))
    write(f"Checking image {image} with a Job in namespace {plane.metadata.namespace}")
    verdict, cause = await _preflight(session, wanted, seconds)
    lines, starts = plan(wanted, verdict, cause, datetime.now(UTC))
    for line in lines:
        write(line)
    return starts


def plan(plane: CoderControlPlane, verdict: Verdict | None, cause: str, now: datetime) -> tuple[list[str], bool]:
    """What an update would do, one line per step, and whether it would start."""
    status, spec = plane.status, plane.spec
    begun = UpdateStatus(
        image=spec.image, step=Step.PREFLIGHT, from_image=status.image, from_=status.version, step_started_at=now
    )
    seen = Seen(
        now=now if verdict else now + machine.PREFLIGHT_TIMEOUT,
        image=spec.image,
        replicas=max(1, spec.replicas),
        strategy=spec.update.strategy,
        running=status.image,
        live_image=status.image or "unknown",
        live_replicas=max(1, spec.replicas),
        has_pods=True,
        verdict=verdict,
        unpulled=cause,
    )
    found = machine.next_update(begun, seen._replace(strategy=spec.update.strategy.replace("Rolling", "Auto")))
    if found is None:
        return [f"CoderControlPlane {plane.metadata.name} already runs image {spec.image}"], True
    if found.step == Step.REFUSED:
        return [f"Refused ({found.reason}): {found.message}"], False
    if spec.update.strategy == "Rolling":
        return ["update.strategy is Rolling: pods are replaced one after another without any check"], True
    opens = opening(spec.update.windows, now)
    lines = [f"Preflight: version {found.to}, now {status.version or 'unknown'}"]
    lines.append("Window: open" if opens.open else f"Window: opens {opens.text}")
    if found.plan == Plan.ROLLING:
        return [*lines, "Rollout: same database schema, so pods are replaced one after another"], True
    backup = spec.update.backup
    lines.append(f"Backup: of Cluster {backup.cnpg_cluster_ref.name}" if backup else "Backup: none is configured")
    return [
        *lines,
        f"Drain: provisioners stop, and running builds have {spec.update.drain.timeout}",
        f"Stop: all {spec.replicas} pods stop",
        "Migrate: one pod migrates the database; Coder is not available",
        "Verify: the version of this pod, and the operator's access",
        f"ScaleBack: {spec.replicas} pods start",
        "Fleet: provisioners and workspace proxies without an image of their own follow",
    ], True


async def _find(session: Session, name: str) -> CoderControlPlane:
    try:
        return await session.client.get(CONTROL_PLANE, Key(session.namespace, name))
    except errors.NotFound:
        raise CommandFailed(f"There is no CoderControlPlane {name} in {session.where}") from None


async def _preflight(session: Session, plane: CoderControlPlane, seconds: float) -> tuple[Verdict | None, str]:
    """What the Job found, or why it found nothing in time."""
    cause = ""
    async with _job(session, plane) as job:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    live = await session.client.get(JOB, job.key)
                    pods = await _pods(session, job)
                    cause = failing(pods)
                    if (verdict := preflight.read(live.manifest, pods)) is not None:
                        return verdict, ""
                    await asyncio.sleep(POLL)
    return None, cause


@asynccontextmanager
async def _job(session: Session, plane: CoderControlPlane) -> AsyncIterator[Unstructured]:
    """The Job, which is deleted at the end."""
    name = derived(plane.metadata.name, suffix=f"-dry-run-{preflight.inputs(plane, inject_access_url=True)}")
    manifest: Manifest = preflight.job(plane, inject_access_url=True, name=name)
    labels = {"app.kubernetes.io/name": COMPONENT, "app.kubernetes.io/instance": derived(plane.metadata.name)}
    manifest["metadata"] = {"name": name, "namespace": plane.metadata.namespace, "labels": labels}
    manifest["spec"]["template"]["metadata"]["labels"] = labels
    created = await session.client.create(JOB, manifest)
    try:
        yield created
    finally:
        await session.client.delete(JOB, created, unchanged=False)


async def _pods(session: Session, job: Unstructured) -> list[Unstructured]:
    pages = session.client.list(POD, job.metadata.namespace, labels=f"job-name={job.metadata.name}")
    return [POD.type.decode(item) async for page in pages for item in page.items]
