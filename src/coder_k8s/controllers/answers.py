"""Answers of coderd, cached so that coderd gets a bounded number of requests.

An object is reconciled whenever a related object changes, and coderd may be slow, unreachable or rate limited.
`AnswerCache` serves two kinds of questions:

- `fetch` is for a question that several objects share, such as the provisioner keys of an organization. One request is
  in flight at a time, and all callers that wait for it share its result, also an error. The caller sets the maximum
  age of a value. If a limit of requests is reached, an older value is returned.
- `get`, `keep` and `fail` are for the answer about one object. It is valid for one subject, such as a token or a
  version of a Secret; for another one, coderd is queried again. How long it is valid depends on the answer:

| answer | is valid for |
|---|---|
| a success | the seconds that the caller sets |
| an error, `Recheck.STEADY` | the steady interval of the cache: waiting does not fix it, a user does |
| an error, `Recheck.RETRY` | 30 seconds, or `Retry-After` if that is longer, but at most 10 minutes |
| an error, `Recheck.BACKOFF` | a time that doubles with each error in a row, with jitter |

Entries that are no longer used are removed after a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import msgspec

from coder_k8s.coderd.errors import CoderdError, RateLimited, Unavailable
from coder_k8s.kube.backoff import Backoff

T = TypeVar("T")
V = TypeVar("V")

RETRY = 30.0
STEADY = 110.0
"""Seconds; a license that is added is noticed within two minutes."""
LONGEST_RETRY = 600.0
UNUSED = timedelta(minutes=10)
"""How long an entry stays in memory after it became invalid."""
EXPIRY_INTERVAL = timedelta(minutes=1)
NEVER = datetime.min.replace(tzinfo=UTC)


def no_delay(_: int) -> float:
    return 0.0


def always() -> bool:
    return True


class Throttled(Unavailable):
    """The operator sends coderd no more requests for now, and has no answer yet."""


class Recheck(Enum):
    """When coderd is queried again after an error."""

    STEADY = auto()
    RETRY = auto()
    BACKOFF = auto()


class Entry(msgspec.Struct, eq=False):
    """The last answer to one question."""

    about: Hashable = ()
    """May contain a token."""
    value: Any = None
    received: datetime = NEVER
    """When the value was requested: coderd may have listed it long before its response arrived."""
    until: datetime = NEVER
    """Until when the value, or the error, is valid."""
    error: CoderdError | None = None
    failures: int = 0
    """Errors in a row."""
    used: datetime = NEVER
    """When a caller last read it."""
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def __repr__(self) -> str:
        return f"Entry(received={self.received}, until={self.until}, failures={self.failures})"


class AnswerCache(Generic[T]):
    """The last answer to each question; `T` is the type of the answers about single objects."""

    def __init__(self, now: Callable[[], datetime], backoff: Backoff | None = None, *, steady: float = STEADY) -> None:
        self._now = now
        self._backoff = backoff or Backoff(2.0, 120.0)
        self._steady = steady
        self._entries: dict[Hashable, Entry] = {}
        self._expired = NEVER

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, about: Hashable) -> T | None:
        """The answer, if it is still valid and about this subject."""
        entry = self._entries.get(key)
        if entry is None or entry.about != about or entry.until <= self._now():
            return None
        value: T = entry.value
        return value

    def keep(self, key: Hashable, about: Hashable, value: T, seconds: float) -> T:
        """Store an answer that is a success, or that is retried at a fixed interval."""
        entry = self._entry(key)
        entry.failures = 0
        return self._store(entry, about, value, seconds)

    def fail(self, key: Hashable, about: Hashable, value: T, recheck: Recheck, retry_after: float = 0.0) -> T:
        """Store an answer that is an error."""
        entry = self._entry(key)
        entry.failures += 1
        match recheck:
            case Recheck.STEADY:
                seconds = self._steady
            case Recheck.RETRY:
                seconds = min(max(RETRY, retry_after), LONGEST_RETRY)
            case Recheck.BACKOFF:
                seconds = self._backoff.delay(entry.failures)
        return self._store(entry, about, value, seconds)

    def left(self, key: Hashable) -> float:
        """For how many seconds the answer is still valid."""
        entry = self._entries.get(key)
        return max(0.0, (entry.until - self._now()).total_seconds()) if entry else 0.0

    def forget(self, key: Hashable) -> None:
        """Remove the answer about an object: it is deleted, or the answer is known to be wrong."""
        self._entries.pop(key, None)

    async def fetch(
        self,
        key: Hashable,
        request: Callable[[], Awaitable[V]],
        max_age: timedelta,
        *,
        retry: Callable[[int], float] = no_delay,
        admits: Callable[[], bool] = always,
        tolerated: timedelta = timedelta(),
    ) -> V:
        """The answer to a shared question, from coderd if the known one is older than `max_age`.

        An error is raised to all callers that wait for the same request, and to later ones for as many seconds as
        `retry` returns for the errors in a row; for longer if coderd sent `Retry-After`. If `admits` is False, there
        is no request: the known answer is returned, or `Throttled` raised. After the first of several errors in a row,
        the known answer is returned if it is not older than `tolerated`.
        """
        entry = self._entry(key)
        before, entry.used = entry.failures, self._now()
        asked = entry.used  # a request that was sent since is shared, however long it took
        async with entry.lock:
            if entry.error is not None and (entry.failures != before or self._now() < entry.until):
                if not self._is_tolerated(entry, tolerated):
                    raise entry.error.with_traceback(None)
            elif asked - entry.received >= max_age:
                if admits():
                    with self._tolerating(entry, tolerated):
                        await self._refresh(entry, request, retry)
                elif entry.received is NEVER:
                    raise Throttled("the operator limits its requests to Coder, and has no answer yet")
            value: V = entry.value
            return value

    def _is_tolerated(self, entry: Entry, age: timedelta) -> bool:
        """Whether the known answer can be used instead of an error, which may have passed by the next time."""
        passes = isinstance(entry.error, Unavailable) and entry.failures == 1
        return passes and self._now() - entry.received < age

    @contextmanager
    def _tolerating(self, entry: Entry, age: timedelta) -> Iterator[None]:
        try:
            yield
        except CoderdError:
            if not self._is_tolerated(entry, age):
                raise

    def known(self, key: Hashable) -> Any:
        """The last answer to a shared question, however old; `None` if there is none."""
        return self._entries.get(key, Entry()).value

    def is_answered(self, key: Hashable) -> bool:
        """Whether coderd answered a shared question, also with an error."""
        entry = self._entries.get(key, Entry())
        return entry.received is not NEVER or entry.error is not None

    def age(self, key: Hashable) -> timedelta:
        """How long ago the answer to a shared question was requested."""
        return self._now() - self._entries.get(key, Entry()).received

    async def _refresh(
        self, entry: Entry, request: Callable[[], Awaitable[object]], retry: Callable[[int], float]
    ) -> None:
        asked = self._now()
        try:
            entry.value = await request()
        except CoderdError as error:
            entry.error, entry.failures = error, entry.failures + 1
            delay = retry(entry.failures)
            retry_after = min(error.after, LONGEST_RETRY) if delay and isinstance(error, RateLimited) else 0.0
            entry.until = self._now() + timedelta(seconds=max(delay, retry_after))
            raise
        entry.error, entry.failures = None, 0
        entry.received, entry.until = asked, self._now()

    def _store(self, entry: Entry, about: Hashable, value: T, seconds: float) -> T:
        entry.about, entry.value = about, value
        entry.until = self._now() + timedelta(seconds=seconds)
        return value

    def _entry(self, key: Hashable) -> Entry:
        self._expire()
        return self._entries.setdefault(key, Entry())

    def _expire(self) -> None:
        """Remove entries that are no longer used."""
        now = self._now()
        if now - self._expired < EXPIRY_INTERVAL:
            return
        self._expired = now
        self._entries = {
            key: entry
            for key, entry in self._entries.items()
            if entry.lock.locked() or now - max(entry.until, entry.used) < UNUSED
        }
