"""The reconcile of every kind.

| the object                          | reconcile                                                                   |
|-------------------------------------|-----------------------------------------------------------------------------|
| does not exist                      | drops what is held in memory about it                                       |
| is paused                           | reports that in the status, and nothing else                                |
| is being deleted                    | reports in the status if it was paused before; runs the cleanup of each     |
|                                     | finalizer, and removes those that are done                                  |
| has a CRD that lacks status fields  | reports that in the status, and nothing else                                |
| any other                           | runs the steps, writes the status once, removes finalizers that are not needed |
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from coder_k8s.api import CoderObject
from coder_k8s.api.shared import Status
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import Finding
from coder_k8s.kube.objects import Key

from .context import Context
from .crds import CRDOutdated
from .labels import paused
from .report import StatusReport
from .status import StatusRejected

T = TypeVar("T", bound=CoderObject)
S = TypeVar("S", bound=Status)

CleanUp = Callable[[T], Awaitable[float | None]]
"""Removes what garbage collection cannot reach. Seconds until the next attempt; `None` when nothing is left to do."""


class Steps(Generic[T, S]):
    """What a kind provides."""

    conditions: frozenset[str] = frozenset()
    """The types of its conditions; those that a reconcile does not report are removed."""
    finalize: Mapping[str, CleanUp[T]] = {}
    """The cleanup of each finalizer, in the order in which they run."""

    async def steps(self, seen: T, report: StatusReport[S]) -> T:
        """Bring one object to its desired state and report on it; returns the object as last written."""
        raise NotImplementedError

    def needs(self, finalizer: str, seen: T) -> bool:  # noqa: ARG002
        """Whether an object that is not being deleted has something for a finalizer to clean up."""
        return True

    def paused(self, seen: T) -> Sequence[Finding]:  # noqa: ARG002
        """Conditions of the kind that change while an object is paused."""
        return ()

    async def forget(self, key: Key) -> None:
        """Drop what is held in memory about a deleted object."""


class Reconciler(Generic[T]):
    """Reconciles one object of a kind at a time."""

    def __init__(self, context: Context[T], kind: Steps[T, Any]) -> None:
        self._context = context
        self._kind = kind
        self._status = context.status

    async def reconcile(self, key: Key) -> float | None:
        """Seconds until the next reconcile; `None` if only a change causes one."""
        try:
            return await self._reconcile(key)
        except CRDOutdated as outdated:
            return await self._status.report_outdated(key, outdated)
        except StatusRejected as rejected:
            return self._status.report_rejection(key, rejected)

    async def _reconcile(self, key: Key) -> float | None:
        seen = self._context.objects.get(key)
        if seen is None:
            self._context.forget(key)
            await self._kind.forget(key)
            return None
        if paused(seen):
            await self._status.pause(seen, self._kind.paused(seen))
            return None
        if seen.deleting:
            return await self._finalize(seen)
        await self._status.confirm_schema(seen)
        return await self._run(seen)

    async def _run(self, seen: T) -> float | None:
        report = StatusReport(seen.status)
        try:
            seen = await self._kind.steps(seen, report)
        except errors.ServerError as error:
            await self._status.report_failure(seen, report, error)
            raise
        owned = frozenset[str]() if report.retain_conditions else self._kind.conditions
        await self._status.write(self._context.latest(seen), report, owned)
        seen = self._context.latest(seen)
        for name in self._kind.finalize:  # after the write: the status may record what is to be cleaned up
            if name in seen.metadata.finalizers and not self._kind.needs(name, seen):
                seen = await self._context.finalizers.remove(seen, name)
        return report.requeue

    async def _finalize(self, seen: T) -> float | None:
        """Clean up for each finalizer, but not for those of another object that was created with the same name."""
        await self._status.resume_deletion(seen)
        seen = self._context.latest(seen)
        waits = []
        for name in [name for name in self._kind.finalize if name in seen.metadata.finalizers]:
            await self._context.children.confirm(seen)
            if (seconds := await self._kind.finalize[name](seen)) is None:
                seen = await self._context.finalizers.remove(seen, name)
            else:
                waits.append(seconds)
        return min(waits, default=None)
