"""The end of the logs of containers, bounded in lines, bytes and time.

The API server can limit the bytes of a log, but then it cuts the end, which is the part that matters. If a log exceeds
the limit, fewer lines of it are requested. The first and the last line are dropped if they may be incomplete, because
half of a secret is not recognized as a secret.
"""

import asyncio
import time
from collections.abc import Iterator

import msgspec

from coder_k8s.kube import errors
from coder_k8s.kube.kinds import POD
from coder_k8s.kube.objects import Manifest, key_of

from .session import Session

LINES = (10_000, 1_000, 100)
"""Lines to request, until they fit in `BYTES`."""
BYTES = 1024 * 1024
TOTAL_BYTES = 16 * BYTES
"""Limit for all logs of a report."""
SECONDS = 20.0
"""Limit for one log: a kubelet that is overloaded may send it slowly, or never respond."""
TOTAL_SECONDS = 120.0
MIN_SECONDS = 0.1
"""With less time left, no log is requested. A timer of an event loop may also be early, by less than that."""
RECORD_BYTES = 16 * 1024
"""Container runtimes store longer lines as several records, each of which counts as a line."""


class Source(msgspec.Struct, frozen=True):
    """A container, or its previous instance."""

    pod: Manifest
    container: str
    previous: bool

    @property
    def file(self) -> str:
        return f"{key_of(self.pod).name}/{self.container}{'.previous' if self.previous else ''}.log"

    def __str__(self) -> str:
        return f"log of {'previous ' if self.previous else ''}container {self.container} of pod {key_of(self.pod)}"


class Logs:
    """Reads logs until the limit of a report is reached, and records what is skipped."""

    def __init__(
        self,
        session: Session,
        problems: list[str],
        limit: int = TOTAL_BYTES,
        seconds: float = SECONDS,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._session = session
        self._problems = problems
        self._left = limit
        self._seconds = seconds
        self._deadline = time.monotonic() + total_seconds

    async def read(self, pods: list[Manifest]) -> dict[str, str]:
        """Return the logs of pods by file name. Pods that are not ready come first."""
        found = {}
        for source in (each for pod in sorted(pods, key=_ready) for each in sources(pod)):
            seconds = min(self._seconds, self._deadline - time.monotonic())
            if self._left <= 0 or seconds < MIN_SECONDS:
                limit = "size" if self._left <= 0 else "time"
                self._problems.append(f"Skipped ({limit} limit of the report): {source}")
                continue
            try:
                async with asyncio.timeout(seconds):
                    text = await self._tail(source)
            except TimeoutError:
                self._problems.append(f"Skipped (no complete response within {seconds:.0f} s): {source}")
            except errors.KubeError as error:
                self._problems.append(skipped(str(source), error))
            else:
                found[source.file] = text.decode(errors="replace")
        return found

    async def _tail(self, source: Source) -> bytes:
        limit = min(BYTES, self._left)
        for lines in LINES:
            query = {"container": source.container, "tailLines": str(lines), "timestamps": "true"}
            query |= {"previous": "true"} if source.previous else {}
            query["limitBytes"] = str(limit)
            log = await self._session.http.send("GET", POD.path(key_of(source.pod), "log"), query, {})
            if len(log) < limit:
                self._left -= len(log)
                return from_complete_line(log, lines)
        self._left -= len(log)
        self._problems.append(f"Skipped (size limit of a log): the end of the {source}")
        # The end is cut off, so the number of records does not show whether the log begins with a complete line.
        return log[log.find(b"\n") + 1 : log.rfind(b"\n") + 1]


def from_complete_line(log: bytes, lines: int) -> bytes:
    """Return the end of a log without its first line, unless the log has fewer records than were requested."""
    records = log.count(b"\n") + len(log) // RECORD_BYTES
    return log if records < lines else log[log.find(b"\n") + 1 :]


def sources(pod: Manifest) -> Iterator[Source]:
    """Yield the containers of a pod, and the previous instance of those that were restarted."""
    status = pod.get("status", {})
    statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    restarted = {each["name"] for each in statuses if each["restartCount"]}
    for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
        yield Source(pod, container["name"], previous=False)
        if container["name"] in restarted:
            yield Source(pod, container["name"], previous=True)


def skipped(what: str, error: errors.KubeError) -> str:
    """Return a line about something that cannot be read."""
    cause = "forbidden" if isinstance(error, errors.Forbidden) else "failed"
    return f"Skipped ({cause}): {what}: {error}"


def _ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
