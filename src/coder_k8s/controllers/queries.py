"""Queries to coderd whose answers several objects share."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from coder_k8s.coderd.client import DAEMON_LIMIT
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import Entitlements, Organization, ProvisionerDaemon, ProvisionerKeyList

from .answers import RETRY, AnswerCache

INTERVAL = timedelta(minutes=2)
"""Maximum age of an answer in steady state."""


class CoderdQueries:
    """One answer per question, server, credential and organization, shared by all controllers."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._answers = AnswerCache[Any](now)

    async def entitlements(self, coderd: Coderd) -> Entitlements:
        """The entitlements of the licenses; for 30 seconds after an error, coderd is not queried again."""
        return await self._answers.fetch(_entitlements(coderd), coderd.entitlements, INTERVAL, retry=RETRY)

    def entitlements_left(self, coderd: Coderd) -> float:
        """For how many seconds coderd is not queried for the entitlements again."""
        return max(0.0, (INTERVAL - self._answers.age(_entitlements(coderd))).total_seconds())

    async def organization(self, coderd: Coderd, name: str, max_age: timedelta = INTERVAL) -> Organization:
        """The organization with that name or ID; its keys are listed by the ID, which never changes."""
        question = ("organization", *coderd.identity, name)
        return await self._answers.fetch(question, lambda: coderd.organization(name), max_age)

    async def keys(self, coderd: Coderd, organization: str, max_age: timedelta = INTERVAL) -> ProvisionerKeyList:
        question = ("keys", *coderd.identity, organization)
        return await self._answers.fetch(question, lambda: coderd.list_provisioner_keys(organization), max_age)

    async def daemons(
        self, coderd: Coderd, organization: str, max_age: timedelta = INTERVAL
    ) -> list[ProvisionerDaemon]:
        """The daemons; if there are more than coderd lists, only those that are connected."""

        async def request() -> list[ProvisionerDaemon]:
            found = await coderd.provisioner_daemons(organization)
            full = len(found) >= DAEMON_LIMIT
            return await coderd.provisioner_daemons(organization, offline=False) if full else found

        return await self._answers.fetch(("daemons", *coderd.identity, organization), request, max_age)


def _entitlements(coderd: Coderd) -> tuple[str, ...]:
    return ("entitlements", *coderd.identity)
