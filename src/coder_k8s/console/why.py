"""Explains who can run a job, a workspace or a template, and why others cannot."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderControlPlane, CoderProvisioner
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.errors import CoderdError, Invalid, NotFound
from coder_k8s.coderd.types import Organization, ProvisionerJob
from coder_k8s.controllers.candidates import Candidate, candidates, rejection
from coder_k8s.controllers.controlplane.jobs.unserved import FAILS_AFTER, closest, need
from coder_k8s.controllers.tags import UNTAGGED, covers, is_user_scoped
from coder_k8s.kube.objects import Key

from .coderd import coderd_of
from .objects import find
from .render import printable
from .session import CommandFailed, Session

SHORT_ID = 8
"""Characters of a job's ID that identify it."""


class Subject(NamedTuple):
    """What a provisioner has to run."""

    what: str
    organization: Organization
    tags: Mapping[str, str]
    job: ProvisionerJob | None = None
    """Without one, the tags are those of future builds."""


async def explain(session: Session, name: str, plane_name: str | None, *, use_session_token: bool = False) -> str:
    """Return the explanation for each job, workspace or template that the name refers to."""
    plane = await _find_plane(session, plane_name)
    coderd = await coderd_of(session, plane, use_session_token=use_session_token)
    provisioners = [
        each
        for each in await find(session, PROVISIONER)
        if Key(each.metadata.namespace, each.spec.control_plane_ref.name) == plane.key
    ]
    try:
        organizations = await coderd.organizations()
        found = await _subjects(coderd, organizations, name)
        return "\n\n".join([await _explain(coderd, subject, provisioners) for subject in found])
    except CoderdError as error:
        raise CommandFailed(f"Coder of control plane {plane.metadata.name} cannot be queried: {error}") from None


async def _find_plane(session: Session, name: str | None) -> CoderControlPlane:
    found = [each for each in await find(session, CONTROL_PLANE) if name in (None, each.metadata.name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandFailed(f"no control plane{f' named {name}' if name else ''} found in {session.where}")
    names = ", ".join(each.metadata.name for each in found)
    raise CommandFailed(f"{session.where} has several control planes: use --control-plane with one of {names}")


async def _subjects(coderd: Coderd, organizations: Sequence[Organization], name: str) -> list[Subject]:
    """Return the jobs with this ID, or that wait for this workspace or template; otherwise what it is itself."""
    if _is_uuid(name):
        jobs = [(each, await coderd.find_provisioner_job(each.id, name)) for each in organizations]
        found = [_job(each, job) for each, job in jobs if job is not None]
    else:
        queued = [(each, job) for each in organizations for job in await coderd.provisioner_jobs(each.id)]
        found = [_job(each, job) for each, job in queued if job.waits and _is_about(job, name)]
    found = found or await _workspace(coderd, organizations, name) or await _template(coderd, organizations, name)
    if not found:
        raise CommandFailed(f"Coder has no job, workspace (OWNER/NAME) or template {name}, and no job waits for one")
    return found


async def _workspace(coderd: Coderd, organizations: Sequence[Organization], name: str) -> list[Subject]:
    owner, slash, short = name.partition("/")
    if not slash:
        return []
    try:
        workspace = await coderd.workspace(owner, short)
    except (NotFound, Invalid):  # before 2.32, coderd calls an unknown user invalid
        return []
    build = workspace.latest_build.job
    listed = await coderd.find_provisioner_job(workspace.organization_id, build.id)
    job = listed or build  # only the list has the name of the daemon
    return [
        Subject(f"Last build of workspace {name}", each, job.tags, job)
        for each in organizations
        if each.id == workspace.organization_id
    ]


async def _template(coderd: Coderd, organizations: Sequence[Organization], name: str) -> list[Subject]:
    by_id = {each.id: each for each in organizations}
    return [
        Subject(
            f"Template {name}",
            by_id[each.organization_id],
            (await coderd.template_version(each.active_version_id)).job.tags,
        )
        for each in await coderd.templates()
        if each.name == name and each.organization_id in by_id
    ]


async def _explain(coderd: Coderd, subject: Subject, provisioners: Sequence[CoderProvisioner]) -> str:
    daemons = await coderd.provisioner_daemons(subject.organization.id)
    considered = candidates(subject.organization, provisioners, daemons)
    return "\n".join(map(printable, text(subject, considered)))


def text(subject: Subject, considered: Sequence[Candidate]) -> Iterator[str]:
    """Yield the lines of an explanation: what it is, who was considered, and the result."""
    yield f"{subject.what} in organization {subject.organization.name}"
    if subject.job is not None:
        yield f"  Status: {_status(subject.job)}"
    yield f"  Tags:   {_tags(subject.tags)}"
    rows = [(each.name, _tags(each.tags), rejection(each, subject.tags) or "can run it") for each in considered]
    yield from _table([("PROVISIONER", "TAGS", "RESULT"), *rows]) if rows else ()
    yield f"Result: {_result(subject, considered)}"


def _result(subject: Subject, considered: Sequence[Candidate]) -> str:
    able = [each.name for each in considered if not rejection(each, subject.tags)]
    if subject.job is not None and subject.job.started_at is not None:
        return f"it has run, or runs, on daemon {subject.job.worker_name or 'that no longer exists'}."
    if able:
        return f"{', '.join(able)} can run it."
    if any(covers(each.tags, subject.tags) for each in considered):
        return "a provisioner has its tags, but does not run: see the table."
    if subject.tags == UNTAGGED:
        return "no provisioner can run it: without tags, it needs a provisioner without tags."
    if is_user_scoped(subject.tags):
        return "no provisioner can run it: with scope=user, it needs a daemon of its owner."
    return f"no provisioner can run it: {closest(considered, subject.tags)}."


def _status(job: ProvisionerJob) -> str:
    if not job.waits:
        return job.status
    fails = _time(job.created_at + FAILS_AFTER)
    return f"pending since {_time(job.created_at)}; if nothing runs it, Coder fails it at {fails}"


def _tags(tags: Mapping[str, str]) -> str:
    return need(tags) or "none"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        yield "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])


def _job(organization: Organization, job: ProvisionerJob) -> Subject:
    about = job.metadata.workspace_name or job.metadata.template_name or job.metadata.template_version_name
    kind = job.type.replace("_", " ") or "job"
    return Subject(f"Job {job.id} ({kind}{f' of {about}' if about else ''})", organization, job.tags, job)


def _is_about(job: ProvisionerJob, name: str) -> bool:
    names = (job.metadata.workspace_name, job.metadata.template_name)
    return name.rpartition("/")[2] in names or (len(name) >= SHORT_ID and job.id.startswith(name.lower()))


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name.lower()
    except ValueError:
        return False


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
