"""Reads what decides whether jobs and schedules are served, within the limit of requests to coderd.

The organization whose jobs were read the longest time ago is read first. If the limit is reached, the others keep
their last answer until the next reconcile. Some template versions are read before, so that many organizations do not
use up all requests.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from coder_k8s.api import CoderProvisioner
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.errors import CoderdError, NotFound, Unavailable
from coder_k8s.coderd.types import Organization, Template
from coder_k8s.controllers.answers import Throttled
from coder_k8s.controllers.candidates import candidates, distinct
from coder_k8s.controllers.queries import BUSY_INTERVAL, RARE_INTERVAL, CoderdQueries
from coder_k8s.controllers.request_limit import Consumer

from .schedules import Schedule
from .unserved import Queue, waiting

STALE_RETRY = 10.0
"""Seconds until the next attempt, if an answer is too old."""
INTERVAL = timedelta(minutes=1)
"""Maximum age of jobs and daemons, unless jobs wait that nobody can run."""


MAX_ORGANIZATIONS, MAX_CANDIDATES = 1000, 1000
"""Beyond them, comparing all jobs with all daemons would take too long."""
FIRST_VERSIONS = 10
"""Template versions that are read before the jobs."""


class Failure(msgspec.Struct, frozen=True):
    """An error, and what could not be read because of it."""

    what: str
    error: CoderdError


class Reading(msgspec.Struct, frozen=True):
    """What could be read, and the first error of each part."""

    queues: Sequence[Queue] = ()
    schedules: Sequence[Schedule] = ()
    jobs_failure: Failure | None = None
    templates_failure: Failure | None = None


class Reader:
    """Reads organizations, jobs, daemons and templates of one coderd at a time."""

    def __init__(self, queries: CoderdQueries) -> None:
        self._queries = queries

    async def read(self, coderd: Coderd, provisioners: Sequence[CoderProvisioner]) -> Reading:
        try:
            organizations = await self._organizations(coderd)
        except CoderdError as error:
            return Reading(jobs_failure=Failure("The organizations", error), templates_failure=_templates(error))
        templates, failure = await self._templates(coderd)
        used = {each.organization_id for each in templates}
        await self._read_new_versions(coderd, templates)
        queues, failures = dict[str, Queue](), dict[str, Failure]()
        for each in sorted(organizations, key=lambda each: self._queries.jobs_age(coderd, each.id), reverse=True):
            await asyncio.sleep(0)  # the answers may all be known, and there may be many
            try:
                queues[each.id] = await self._queue(coderd, each, provisioners, each.id in used)
            except CoderdError as error:
                if not await self._is_gone(coderd, each, error):
                    failures[each.id] = Failure(f"The jobs of organization {each.name}", error)
        unread = [failures[each] for each in failures if each in used]
        schedules, version_failure = await self._schedules(coderd, templates, queues)
        failures_of_templates = filter(None, (failure, version_failure, *unread))
        return Reading([*queues.values()], schedules, _first(failures.values()), _first(failures_of_templates))

    def next_read(self, coderd: Coderd, queues: Sequence[Queue]) -> float:
        """Seconds until an answer is too old."""
        ages = [self._queries.jobs_age(coderd, each.organization.id) for each in queues]
        left = (INTERVAL - max(ages, default=timedelta())).total_seconds()
        return max(left, self._queries.wait(coderd, Consumer.HEALTH), 1.0 if left > 0 else STALE_RETRY)

    async def _queue(
        self, coderd: Coderd, organization: Organization, provisioners: Sequence[CoderProvisioner], with_templates: bool
    ) -> Queue:
        """The jobs of an organization. Daemons are read only if a job or a template needs one."""

        async def read(max_age: timedelta) -> Queue:
            jobs = await self._queries.jobs(coderd, organization.id, max_age, Consumer.HEALTH)
            needed = with_templates or any(job.waits for job in jobs)
            daemons = await self._queries.daemons(coderd, organization.id, max_age, Consumer.HEALTH) if needed else []
            found = distinct(candidates(organization, provisioners, daemons))
            if len(found) > MAX_CANDIDATES:
                raise Unavailable(f"the organization has more than {MAX_CANDIDATES} daemons with different tags")
            return Queue(organization, jobs, found)

        queue = await read(INTERVAL)
        return await read(BUSY_INTERVAL) if waiting(queue) else queue

    async def _organizations(self, coderd: Coderd, max_age: timedelta = RARE_INTERVAL) -> list[Organization]:
        found = await self._queries.organizations(coderd, max_age)
        if len(found) > MAX_ORGANIZATIONS:
            raise Unavailable(f"Coder has more than {MAX_ORGANIZATIONS} organizations")
        return found

    async def _is_gone(self, coderd: Coderd, organization: Organization, error: CoderdError) -> bool:
        """Whether an organization was deleted since all of them were listed; its jobs are not found then."""
        if not isinstance(error, NotFound):
            return False
        with suppress(CoderdError):
            return organization.id not in {each.id for each in await self._organizations(coderd, BUSY_INTERVAL)}
        return False

    async def _templates(self, coderd: Coderd) -> tuple[list[Template], Failure | None]:
        try:
            return await self._queries.templates(coderd), None
        except CoderdError as error:
            return [], _templates(error)

    async def _read_new_versions(self, coderd: Coderd, templates: Sequence[Template]) -> None:
        """Query for the tags of some versions; an error is reported later."""
        versions = [each.active_version_id for each in templates]
        new = [each for each in versions if not self._queries.is_queried(coderd, each)]
        for version in new[:FIRST_VERSIONS]:
            with suppress(CoderdError):
                await self._queries.version_tags(coderd, version)

    async def _schedules(
        self, coderd: Coderd, templates: Sequence[Template], queues: Mapping[str, Queue]
    ) -> tuple[list[Schedule], Failure | None]:
        """The tags of the templates. Those of an organization that could not be read are left out."""
        found, failure = [], None
        for template in templates:
            if (queue := queues.get(template.organization_id)) is None:
                continue
            try:
                tags = await self._queries.version_tags(coderd, template.active_version_id)
            except NotFound:
                continue  # another version became active since the list was read
            except CoderdError as error:
                failure = failure or _templates(error)
                continue
            found.append(Schedule(queue.organization, template.name, tags, queue.candidates))
        return found, failure


def _first(failures: Iterable[Failure]) -> Failure | None:
    return next(iter(failures), None)


def _templates(error: CoderdError) -> Failure:
    return Failure("The templates", error)


def is_incomplete(failure: Failure | None) -> bool:
    """Whether the limit of requests is reached before everything was read once."""
    return failure is not None and isinstance(failure.error, Throttled)
