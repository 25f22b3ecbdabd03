"""The one status write of a reconcile."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from coder_k8s.api import CoderObject, events, reasons
from coder_k8s.api.shared import Status
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition, Finding, find, merge
from coder_k8s.kube.events import EventReason, Recorder
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest
from coder_k8s.kube.patch import merge_patch

from .crds import RECHECK, CRDOutdated, SchemaCheck
from .draft import assigned
from .report import NO_ACTION, READY, RECONCILING, STALLED, Report, StatusReport

log = logging.getLogger(__name__)

TRIES = 5
REJECTED_RETRY = 60.0
PAUSED = (
    Finding(
        READY,
        None,
        reasons.PAUSED,
        "Annotation coder.com/paused is set; no changes are made until it is removed (kubectl coder resume)",
    ),
    Finding(RECONCILING, False, reasons.PAUSED, "Reconciliation is paused"),
    Finding(STALLED, False, reasons.PAUSED, NO_ACTION),
)
DELETION_PAUSED = (
    Finding(
        READY,
        None,
        reasons.PAUSED,
        "The object is being deleted, but annotation coder.com/paused blocks its cleanup; "
        "remove the annotation (kubectl coder resume)",
    ),
    *PAUSED[1:],
)
RESUMED_DELETION = tuple(
    Finding(type_, status, reasons.DELETING, message)
    for type_, status, message in (
        (READY, False, "The object is being deleted; its cleanup is in progress"),
        (RECONCILING, True, "The object is being deleted; its cleanup is in progress"),
        (STALLED, False, NO_ACTION),
    )
)
BEGUN = (
    Finding(READY, None, reasons.PROGRESSING, "The first reconcile is in progress"),
    Finding(RECONCILING, True, reasons.PROGRESSING, "The first reconcile is in progress"),
    Finding(STALLED, False, reasons.PROGRESSING, NO_ACTION),
)


T = TypeVar("T", bound=CoderObject)


class StatusRejected(Exception):
    """The API server or a webhook rejects the status of this object, perhaps because of its spec or metadata."""

    def __init__(self, error: errors.Invalid) -> None:
        fields = ", ".join(sorted({field for field in error.fields if field != "<nil>"}))
        # If the fields are known, the message of the server adds only values, and a value may be a password.
        super().__init__(
            f"The API server rejects the status of this object because of {fields}. Correct this field."
            if fields
            else f"The API server rejects the status of this object: {error.message}"
        )


class StatusWriter(Generic[T]):
    """Writes a status if it differs, while others write to the same object.

    A write is valid for the resourceVersion that was seen. If the object has changed since, it is read again and the
    same changes are written on top, unless it was replaced or a newer generation was reported.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        cache: Cache[T],
        recorder: Recorder,
        writer: str,
        now: Callable[[], datetime],
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._kind = kind
        self._cache = cache
        self._recorder = recorder
        self._writer = writer
        self._now = now
        self._schema = SchemaCheck(client, kind, now)
        self._rejected = metrics.status_rejected.labels(str(kind))

    async def confirm_schema(self, seen: T) -> None:
        """Raise `CRDOutdated` unless the CRD stores every field of the status."""
        await self._schema.confirm(seen)

    async def report_outdated(self, key: Key, outdated: CRDOutdated) -> float | None:
        """Report in the status that the CRD lacks fields; seconds until the next reconcile."""
        seen = self._cache.get(key)
        if seen is None:
            return None
        report = Report()
        report.stall(reasons.CRD_OUTDATED, str(outdated))
        try:
            await self.write(seen, report, owned=frozenset())
        except CRDOutdated:  # not even conditions are stored
            log.warning("%s", outdated)
        except StatusRejected as rejected:
            return self.report_rejection(key, rejected)
        return RECHECK.total_seconds()

    def report_rejection(self, key: Key, rejected: StatusRejected) -> float | None:
        """Report it by an event, which is logged, and a metric, because no condition can be written."""
        self._rejected.inc()
        seen = self._cache.get(key)
        if seen is None:
            return None
        self._recorder.record(self._kind, seen, events.STATUS_REJECTED, str(rejected))
        return REJECTED_RETRY

    async def write(self, seen: T, report: Report, owned: frozenset[str]) -> None:
        """Write what a reconcile found. Conditions of the types in `owned` that it did not report are removed."""
        generation, now, findings = seen.metadata.generation, self._now(), report.conclude()
        unreported = owned - {finding.type for finding in findings}

        def changed(status: Status) -> Status:
            conditions = merge(status.conditions, findings, generation, now, drop=unreported)
            return replace(status, observed_generation=generation, conditions=conditions, **report.fields)

        await self._patch(seen, changed)

    async def report_failure(self, seen: T, report: StatusReport[Any], error: errors.ServerError) -> None:
        """Report a reconcile that an error of the API server ended: an object without a status would look finished.

        An object that is Ready or Stalled at this generation keeps its status, and gets no second event afterwards.
        """
        if _is_concluded(seen):
            return
        report.interrupt(reasons.RETRYING, f"The API server failed: {error.message}")
        report.status.phase = report.status.phase or "Pending"
        await self.write(seen, report, owned=frozenset())

    async def record(self, seen: T, status: Status) -> T:
        """Write what was assigned to a draft of the status, before a step that requires it.

        Raise `Conflict` if the object has changed, because the decision for the step depends on it. The first status
        also reports that the object is not Ready.
        """
        generation, now = seen.metadata.generation, self._now()

        def changed(old: Status) -> Status:
            known = find(old.conditions, READY) is not None
            conditions = old.conditions if known else merge(old.conditions, BEGUN, generation, now)
            return replace(old, conditions=conditions, **assigned(status))

        written = await self._patch(seen, changed, tries=1)
        if written is None:
            raise errors.Conflict(409, "Conflict", f"{seen.key} was replaced or changed meanwhile")
        return written

    async def pause(self, seen: T, more: Sequence[Finding] = ()) -> None:
        """Report that the object is paused, also if that blocks its deletion; `more` are conditions of its kind."""
        findings = (*(DELETION_PAUSED if seen.deleting else PAUSED), *more)
        before = find(seen.status.conditions, READY)
        known = before is not None and before.message == findings[0].message
        if await self._set_conditions(seen, findings) is not None and seen.deleting and not known:
            self._recorder.record(self._kind, seen, events.DELETION_PAUSED, findings[0].message)

    async def resume_deletion(self, seen: T) -> None:
        """Report that an object that is being deleted is no longer paused. A status that is rejected blocks nothing."""
        if _is_paused(seen.status):
            with suppress(CRDOutdated, StatusRejected):
                await self._set_conditions(seen, RESUMED_DELETION)

    async def _set_conditions(self, seen: T, findings: Sequence[Finding]) -> T | None:
        generation, now = seen.metadata.generation, self._now()
        return await self._patch(
            seen, lambda old: replace(old, conditions=merge(old.conditions, findings, generation, now))
        )

    async def _patch(self, seen: T, change: Callable[[Status], Status], tries: int = TRIES) -> T | None:
        """The object with its new status; `None` if it was deleted or replaced, or a newer generation was reported."""
        live = seen
        for _ in range(tries):
            before = live.status
            after = change(before)
            difference = merge_patch(_manifest(before), _manifest(after))
            if not difference:
                return live
            patch = {
                "metadata": {"uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version},
                "status": difference,
            }
            try:
                request = self._client.merge(self._kind, seen.key, patch, "status")
                written = await self._cache.write(seen.key, self._writer, request)
            except errors.NotFound:
                return None
            except errors.UnknownField as error:
                self._schema.outdated(error.fields)
                raise CRDOutdated(error.fields) from None
            except errors.Invalid as error:
                raise StatusRejected(error) from None
            except errors.Conflict:
                live = await self._client.get(self._kind, seen.key)
                self._cache.record_write(live, "")  # a change by another client, which this write would hide
                replaced = live.metadata.uid != seen.metadata.uid
                if replaced or live.status.observed_generation > seen.metadata.generation:
                    return None
            else:
                self._announce(seen, before, after)
                return written
        raise errors.Conflict(409, "Conflict", f"the status of {seen.key} changed while it was written, {tries} times")

    def _announce(self, seen: T, before: Status, after: Status) -> None:
        """Log each condition whose status or reason changed, and record the events of the object.

        Conditions with the same reason and message are in one line: `Ready`, for example, repeats the cause. A new one
        that is Unknown is not a change. There is an event when the object becomes Ready or Stalled, is paused or is
        resumed.
        """
        self._announce_pause(seen, _is_paused(before), _is_paused(after))
        lines: dict[tuple[str, str], list[str]] = {}
        for new in after.conditions:
            old = find(before.conditions, new.type)
            if not _is_change(old, new):
                continue
            lines.setdefault((new.reason, new.message), []).append(f"{new.type} is {new.status}")
            if new.type in (READY, STALLED) and new.status == "True":
                event = events.READY if new.type == READY else EventReason(new.reason, "Warning")
                self._recorder.record(self._kind, seen, event, new.message, logged=True)
        for (reason, message), changes in lines.items():
            log.info("%s: %s", ", ".join(changes), message or reason, extra={"reason": reason})

    def _announce_pause(self, seen: T, before: bool, after: bool) -> None:
        if after and not before:
            note = "Reconciliation is paused by annotation coder.com/paused"
            self._recorder.record(self._kind, seen, events.PAUSED, note, logged=True)
        if before and not after:
            self._recorder.record(self._kind, seen, events.RESUMED, "Reconciliation is resumed", logged=True)


def _is_paused(status: Status) -> bool:
    ready = find(status.conditions, READY)
    return ready is not None and ready.reason == reasons.PAUSED


def _is_change(old: Condition | None, new: Condition) -> bool:
    """Whether a condition is logged.

    | before                | now                            | logged |
    |-----------------------|--------------------------------|--------|
    | same status, reason   | any                            | no     |
    | other status, reason  | any                            | yes    |
    | none                  | `Ready`                        | yes    |
    | none                  | Unknown, or `Stalled` is False | no     |
    | none                  | any other                      | yes    |
    """
    if old is not None:
        return (old.status, old.reason) != (new.status, new.reason)
    return new.type == READY or (new.status != "Unknown" and (new.type, new.status) != (STALLED, "False"))


def _is_concluded(seen: CoderObject) -> bool:
    """Whether the object is Ready or Stalled at this generation."""
    found = [find(seen.status.conditions, type_) for type_ in (READY, STALLED)]
    current = ("True", seen.metadata.generation)
    return any(each is not None and (each.status, each.observed_generation) == current for each in found)


def _manifest(status: Status) -> Manifest:
    manifest: Manifest = msgspec.to_builtins(status, str_keys=True)
    return manifest
