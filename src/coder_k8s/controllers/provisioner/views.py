"""What coderd says about an organization, asked once for all provisioners that want to know."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from coder_k8s.coderd.client import DAEMON_LIMIT
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.errors import CoderdError
from coder_k8s.coderd.types import DatedKeys, Organization, ProvisionerDaemon

T = TypeVar("T")

INTERVAL = timedelta(minutes=2)
"""How old an answer may be while nothing happens."""
KEPT = 5 * INTERVAL
"""How long an answer that nobody asks for is remembered: its token or its organization may never come back."""


@dataclass
class Answer:
    """The last answer to a question, and how the attempts to get one went."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Any = None
    at: datetime | None = None
    attempts: int = 0
    trouble: CoderdError | None = None


class Views:
    """One answer per question, server, organization and credential, refreshed when somebody needs a newer one.

    Whoever waits while the question fails shares the failure: a server that hangs is not asked once for each.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._answers: dict[tuple[str, ...], Answer] = {}

    async def organization(self, coderd: Coderd, name: str, max_age: timedelta = INTERVAL) -> Organization:
        """The organization of that name or ID; the keys in it are known by its ID, which never changes."""
        question = ("organization", *coderd.identity, name)
        return await self._get(question, max_age, lambda: coderd.organization(name))

    async def keys(self, coderd: Coderd, organization: str, max_age: timedelta = INTERVAL) -> DatedKeys:
        ask = coderd.dated_provisioner_keys
        return await self._get(("keys", *coderd.identity, organization), max_age, lambda: ask(organization))

    async def daemons(
        self, coderd: Coderd, organization: str, max_age: timedelta = INTERVAL
    ) -> list[ProvisionerDaemon]:
        async def ask() -> list[ProvisionerDaemon]:
            """Those that are connected must not be missing because of the many that no longer are."""
            found = await coderd.provisioner_daemons(organization)
            full = len(found) >= DAEMON_LIMIT
            return await coderd.provisioner_daemons(organization, offline=False) if full else found

        return await self._get(("daemons", *coderd.identity, organization), max_age, ask)

    async def _get(self, question: tuple[str, ...], max_age: timedelta, ask: Callable[[], Awaitable[T]]) -> T:
        answer = self._answers.setdefault(question, Answer())
        before = answer.attempts
        async with answer.lock:
            if answer.attempts > before and answer.trouble is not None:
                raise answer.trouble.with_traceback(None)
            if answer.at is None or self._now() - answer.at >= max_age:
                await self._refresh(answer, ask)
            value: T = answer.value
            return value

    async def _refresh(self, answer: Answer, ask: Callable[[], Awaitable[object]]) -> None:
        self._forget()
        answer.trouble = None
        try:
            answer.value = await ask()
            answer.at = self._now()
        except CoderdError as trouble:
            answer.trouble = trouble
            raise
        finally:
            answer.attempts += 1

    def _forget(self) -> None:
        limit = self._now() - KEPT
        self._answers = {
            question: answer
            for question, answer in self._answers.items()
            if answer.lock.locked() or (answer.at is not None and answer.at > limit)
        }
