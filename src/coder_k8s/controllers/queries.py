"""Queries to coderd whose answers several objects share.

A consumer queries during its reconcile, so that coderd is not queried without consumers. However many consumers there
are, there is one request per question and interval. Jobs, daemons and templates are only observed: these requests are
limited per control plane (`request_limit.py`) and sent less often after errors. If the limit is reached, an answer can
be older than requested; `jobs_age` returns how old the jobs are.
"""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from coder_k8s.coderd.client import DAEMON_LIMIT
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.templates import ImportedVersion, ManagedTemplate, TemplateRoles
from coder_k8s.coderd.types import (
    Entitlements,
    Organization,
    ProvisionerDaemon,
    ProvisionerJob,
    ProvisionerKeyList,
    Template,
    User,
)
from coder_k8s.kube.backoff import Backoff

from .answers import RETRY, AnswerCache
from .request_limit import Consumer, RequestLimiter

T = TypeVar("T")

INTERVAL = timedelta(minutes=2)
"""Maximum age of an answer in steady state."""
BUSY_INTERVAL = timedelta(seconds=10)
"""Maximum age of the jobs while any of them waits or runs."""
IDLE_INTERVAL = timedelta(seconds=30)
RARE_INTERVAL = timedelta(minutes=10)
"""Maximum age of what changes rarely: organizations and templates."""
FOREVER = timedelta(days=36500)
TOLERATED = timedelta(minutes=3)
"""Maximum age of an answer for a report, after a first error."""
BACKOFF = Backoff(20.0, 300.0)
"""After errors; the first retry is after 10 to 20 seconds."""


def jobs_interval(known: Sequence[ProvisionerJob] | None) -> timedelta:
    """How old the jobs of an organization may be."""
    return BUSY_INTERVAL if known else IDLE_INTERVAL


class CoderdQueries:
    """One answer per question, server, credential and organization, shared by all controllers."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._answers = AnswerCache[Any](now)
        self._limiter = RequestLimiter(now)

    async def entitlements(self, coderd: Coderd) -> Entitlements:
        """The entitlements of the licenses; for 30 seconds after an error, coderd is not queried again."""
        return await self._answers.fetch(_entitlements(coderd), coderd.entitlements, INTERVAL, retry=lambda _: RETRY)

    def entitlements_left(self, coderd: Coderd) -> float:
        """For how many seconds coderd is not queried for the entitlements again."""
        return max(0.0, (INTERVAL - self._answers.age(_entitlements(coderd))).total_seconds())

    async def me(self, coderd: Coderd) -> User:
        """The user of the token, who is always the same."""
        return await self._answers.fetch(("me", *coderd.identity), coderd.me, FOREVER)

    async def organization(self, coderd: Coderd, name: str, max_age: timedelta = INTERVAL) -> Organization:
        """The organization with that name or ID; its keys are listed by the ID, which never changes."""
        question = ("organization", *coderd.identity, name)
        return await self._answers.fetch(question, lambda: coderd.organization(name), max_age)

    async def keys(self, coderd: Coderd, organization: str, max_age: timedelta = INTERVAL) -> ProvisionerKeyList:
        question = ("keys", *coderd.identity, organization)
        return await self._answers.fetch(question, lambda: coderd.list_provisioner_keys(organization), max_age)

    async def daemons(
        self, coderd: Coderd, organization: str, max_age: timedelta = INTERVAL, consumer: Consumer | None = None
    ) -> list[ProvisionerDaemon]:
        """The daemons; if many are offline, only those that are connected."""

        async def request() -> list[ProvisionerDaemon]:
            found = await coderd.provisioner_daemons(organization)
            full = len(found) >= DAEMON_LIMIT
            return await coderd.provisioner_daemons(organization, offline=False) if full else found

        question = ("daemons", *coderd.identity, organization)
        if consumer is None:  # a change depends on the answer
            return await self._answers.fetch(question, request, max_age)
        return await self._observe(coderd, question, request, max_age, consumer)

    async def jobs(
        self,
        coderd: Coderd,
        organization: str,
        max_age: timedelta | None = None,
        consumer: Consumer = Consumer.AUTOSCALING,
    ) -> list[ProvisionerJob]:
        """The jobs that wait or run; by default every 10 seconds while there are any, otherwise every 30 seconds."""
        question = _jobs(coderd, organization)
        if max_age is None:
            max_age = jobs_interval(self._answers.known(question))
        return await self._observe(coderd, question, lambda: coderd.provisioner_jobs(organization), max_age, consumer)

    def jobs_age(self, coderd: Coderd, organization: str) -> timedelta:
        """How old the known jobs are."""
        return self._answers.age(_jobs(coderd, organization))

    async def organizations(self, coderd: Coderd, max_age: timedelta = RARE_INTERVAL) -> list[Organization]:
        question = ("organizations", *coderd.identity)
        return await self._observe(coderd, question, coderd.organizations, max_age, Consumer.HEALTH)

    async def templates(self, coderd: Coderd) -> list[Template]:
        """The templates of all organizations."""
        question = ("templates", *coderd.identity)
        return await self._observe(coderd, question, coderd.templates, RARE_INTERVAL, Consumer.HEALTH)

    async def version_tags(self, coderd: Coderd, version: str) -> dict[str, str]:
        """The tags of the jobs of a template version. They never change, so they are queried once."""

        async def request() -> dict[str, str]:
            return (await coderd.template_version(version)).job.tags

        return await self._observe(coderd, _tags(coderd, version), request, FOREVER, Consumer.HEALTH)

    def is_queried(self, coderd: Coderd, version: str) -> bool:
        """Whether coderd was queried for the tags of a template version."""
        return self._answers.is_answered(_tags(coderd, version))

    async def templates_of(self, coderd: Coderd, organization: str) -> list[ManagedTemplate]:
        """The templates of an organization with their settings."""
        question = _templates_of(coderd, organization)
        return await self._observe(
            coderd, question, lambda: coderd.templates_of(organization), INTERVAL, Consumer.TEMPLATES
        )

    def forget_templates(self, coderd: Coderd, organization: str) -> None:
        """Read the templates of an organization again, because one of them was changed."""
        self._answers.forget(_templates_of(coderd, organization))

    async def imported_version(self, coderd: Coderd, version: str, max_age: timedelta) -> ImportedVersion:
        """A version of a template, and how far its import is."""
        question = ("version", *coderd.identity, version)
        return await self._observe(
            coderd, question, lambda: coderd.imported_version(version), max_age, Consumer.TEMPLATES
        )

    async def template_roles(self, coderd: Coderd, template: str) -> TemplateRoles:
        """Who has a role for a template."""
        question = ("roles", *coderd.identity, template)
        return await self._observe(
            coderd, question, lambda: coderd.template_roles(template), RARE_INTERVAL, Consumer.TEMPLATES
        )

    def forget_roles(self, coderd: Coderd, template: str) -> None:
        self._answers.forget(("roles", *coderd.identity, template))

    async def groups(self, coderd: Coderd, organization: str) -> dict[str, str]:
        """The IDs of the groups of an organization, by name."""

        async def request() -> dict[str, str]:
            return {each.name: each.id for each in await coderd.groups(organization)}

        question = ("groups", *coderd.identity, organization)
        return await self._observe(coderd, question, request, RARE_INTERVAL, Consumer.TEMPLATES)

    async def user_id(self, coderd: Coderd, name: str) -> str:
        """The ID of a user; empty if there is none."""

        async def request() -> str:
            found = await coderd.find_user(name)
            return found.id if found else ""

        return await self._observe(coderd, ("user", *coderd.identity, name), request, RARE_INTERVAL, Consumer.TEMPLATES)

    def admits_upload(self, coderd: Coderd) -> bool:
        """Whether an archive may be uploaded now; if so, it counts."""
        return self._limiter.admits(coderd.identity, Consumer.UPLOADS)

    def wait(self, coderd: Coderd, consumer: Consumer) -> float:
        """Seconds until coderd may get another request of this consumer."""
        return self._limiter.wait(_server(coderd), consumer)

    async def _observe(
        self,
        coderd: Coderd,
        question: Hashable,
        request: Callable[[], Awaitable[T]],
        max_age: timedelta,
        consumer: Consumer,
    ) -> T:
        """An answer of which nothing depends but a report, within the limit of requests."""

        def admits() -> bool:
            return self._limiter.admits(_server(coderd), consumer)

        tolerated = TOLERATED if consumer is Consumer.HEALTH else timedelta()
        return await self._answers.fetch(
            question, request, max_age, retry=BACKOFF.delay, admits=admits, tolerated=tolerated
        )


def _server(coderd: Coderd) -> str:
    """The server that requests count for, whatever their token is."""
    return coderd.identity[0]


def _entitlements(coderd: Coderd) -> tuple[str, ...]:
    return ("entitlements", *coderd.identity)


def _tags(coderd: Coderd, version: str) -> tuple[str, ...]:
    return ("tags", *coderd.identity, version)


def _templates_of(coderd: Coderd, organization: str) -> tuple[str, ...]:
    return ("templates of", *coderd.identity, organization)


def _jobs(coderd: Coderd, organization: str) -> tuple[str, ...]:
    return ("jobs", *coderd.identity, organization)
