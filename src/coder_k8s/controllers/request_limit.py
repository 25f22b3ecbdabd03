"""Limits how many requests per minute the operator sends to one coderd to observe it.

What is observed is read repeatedly, for each organization. With many organizations, answers get older instead of
requests more frequent. Requests that change something, or that a change depends on, are not limited.

| consumer | requests per minute | of all consumers together |
|---|---|---|
| health and jobs that nobody can run | 60 | 120 |
| autoscaling | 100 | 120 |
| templates | 50 | 120 |
| uploads of templates, of which coderd allows 12 | 6 | 120 |

So neither of them can use up all requests.
"""

from collections import deque
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from enum import Enum

import msgspec

WINDOW = timedelta(minutes=1)
TOTAL = 120


class Consumer(Enum):
    """Who reads; the value is the maximum number of requests per minute."""

    HEALTH = 60
    AUTOSCALING = 100
    TEMPLATES = 50
    UPLOADS = 6


class _Sent(msgspec.Struct, frozen=True):
    at: datetime
    by: Consumer


class RequestLimiter:
    """The requests of the last minute, by server."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._sent: dict[Hashable, deque[_Sent]] = {}

    def admits(self, server: Hashable, consumer: Consumer) -> bool:
        """Whether a request may be sent now; if so, it counts."""
        sent = self._recent(server)
        if len(sent) >= TOTAL or sum(each.by is consumer for each in sent) >= consumer.value:
            return False
        self._sent.setdefault(server, sent).append(_Sent(self._now(), consumer))
        return True

    def wait(self, server: Hashable, consumer: Consumer) -> float:
        """Seconds until a request may be sent."""
        sent = self._recent(server)
        own = [each for each in sent if each.by is consumer]
        full = [each[0] for each, limit in ((sent, TOTAL), (own, consumer.value)) if len(each) >= limit]
        return max(((each.at + WINDOW - self._now()).total_seconds() for each in full), default=0.0)

    def _recent(self, server: Hashable) -> deque[_Sent]:
        """The requests of the last minute to this server. Servers without any are removed."""
        start = self._now() - WINDOW
        for sent in self._sent.values():
            while sent and sent[0].at <= start:
                sent.popleft()
        self._sent = {each: sent for each, sent in self._sent.items() if sent}
        return self._sent.get(server, deque())
