"""Reads coderd's health check, and reports it in the condition `Healthy`, the status, events and metrics."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, CoderProvisioner, events, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.api.health import MIN_INTERVAL, HealthStatus
from coder_k8s.api.shared import seconds
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.health import HealthReport, HealthSettings
from coder_k8s.controllers.answers import AnswerCache
from coder_k8s.controllers.controlplane.tokens import secret_reference
from coder_k8s.controllers.report import Outcome, StatusReport
from coder_k8s.kube.conditions import find
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.objects import Key

from .codes import CODES, SEVERITIES, Severity
from .metrics import HealthMetrics
from .outcomes import HEALTHY, judge_error
from .runs import Result, Runs, accepts, observe
from .scaled import autoscaled_to_zero
from .text import clean
from .verdict import Environment, Verdict, describe, judge

WAITING = "Waiting for operator access and a ready pod"
STEADY = 600.0
"""Seconds until the next request after an error that only a user can fix."""
SHORT = 64
"""Characters of a time or a version."""
VERDICTS = {
    str(reason): reason
    for reason in (reasons.ALL_CHECKS_PASSED, reasons.UNKNOWN_CODE, *(code.reason for code in CODES.values()))
}
"""The reasons of conditions that a report stands for."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the step needs to know about a control plane besides its spec and status."""

    ready: int
    """Ready pods."""
    upgrading: bool = False
    provisioners: Sequence[CoderProvisioner] = ()
    """The provisioners of the control plane."""


class Answer(NamedTuple):
    """A condition, with the field of the status that belongs to it."""

    outcome: Outcome
    health: HealthStatus | None


class HealthWatcher:
    """Reads the result of coderd's health check at the interval of the spec."""

    def __init__(self, recorder: Recorder, metrics: HealthMetrics, now: Callable[[], datetime]) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._answers = AnswerCache[Answer](now, steady=STEADY)
        self._runs: dict[Key, Runs] = {}
        self._failures: dict[Key, int] = {}
        """Errors in a row that may pass by themselves."""

    def forget(self, key: Key) -> None:
        self._answers.forget(key)
        self._metrics.forget(key)
        self._runs.pop(key, None)
        self._failures.pop(key, None)

    def retain(
        self,
        plane: CoderControlPlane,
        reason: reasons.Reason,
        message: str,
        report: StatusReport[ControlPlaneStatus],
    ) -> None:
        """Keep the condition while coderd is not checked."""
        self.forget(plane.key)
        if is_enabled(plane):
            report.retain(HEALTHY, reason, message)

    async def check(
        self,
        plane: CoderControlPlane,
        coderd: Coderd | None,
        surroundings: Surroundings,
        report: StatusReport[ControlPlaneStatus],
    ) -> None:
        """Report the condition, which `Ready` does not depend on."""
        if not is_enabled(plane):
            self.forget(plane.key)
            report.status.health = None
        elif surroundings.upgrading:
            self.retain(plane, reasons.UPGRADING, "Coder is being upgraded; the status is the last known one", report)
        elif coderd is None or not surroundings.ready:
            self.forget(plane.key)
            report.add(HEALTHY, None, reasons.PENDING, WAITING, satisfied=True)
        else:
            answer = await self._answer(plane, coderd, surroundings)
            report.add_outcome(answer.outcome._replace(satisfied=True))
            report.status.health = answer.health
            report.requeue_after(self._answers.left(plane.key))

    async def _answer(self, plane: CoderControlPlane, coderd: Coderd, surroundings: Surroundings) -> Answer:
        ignore = frozenset(plane.spec.health.ignore)
        about = (plane.metadata.uid, plane.spec.health.interval, ignore, coderd.identity)
        if (known := self._answers.get(plane.key, about)) is not None:
            return known
        try:
            found = await coderd.health()
            environment = Environment(ignore, autoscaled_to_zero(surroundings.provisioners, self._time(found)))
            verdict = judge(found, HealthSettings(), environment)
            if verdict.severity != Severity.OK:  # otherwise no setting changes the verdict
                verdict = judge(found, await _settings(coderd), environment)
        except coderd_errors.CoderdError as error:
            names = {"secret": secret_reference(plane).name, "image": plane.spec.image}
            outcome, recheck, retry_after = judge_error(error, **names)
            answer = Answer(self._keep_once(plane, error) or outcome, plane.status.health)
            return self._answers.fail(plane.key, about, answer, recheck, retry_after)
        self._failures.pop(plane.key, None)
        answer = self._judge(plane, found, verdict, surroundings.ready)
        return self._answers.keep(plane.key, about, answer, interval(plane))

    def _keep_once(self, plane: CoderControlPlane, error: coderd_errors.CoderdError) -> Outcome | None:
        """The last condition, at the first of several errors in a row: a run of the check may take too long once."""
        if not isinstance(error, coderd_errors.Unavailable):
            return None
        self._failures[plane.key] = self._failures.get(plane.key, 0) + 1
        return _last_verdict(plane) if self._failures[plane.key] == 1 else None

    def _judge(self, plane: CoderControlPlane, found: HealthReport, verdict: Verdict, replicas: int) -> Answer:
        """The condition after a report, and the status, metrics and events."""
        checked = self._time(found)
        run, result = checked.isoformat(), Result(verdict.severity, verdict.codes)
        version = clean(found.coder_version or "")[:SHORT]
        known, before = _known(plane.status.health), plane.status.health
        runs = self._runs[plane.key] = observe(self._runs.get(plane.key, Runs()), run, result)
        self._metrics.check(plane.key, checked)
        last = _last_verdict(plane)
        if not accepts(runs, known, replicas):
            waiting = (
                f"Coder reports {', '.join(verdict.codes) or 'an error'}; waiting for the result of its next check"
            )
            return Answer(last or Outcome(HEALTHY, None, reasons.PENDING, waiting), before)
        self._metrics.set(plane.key, verdict)
        outcome = Outcome(HEALTHY, verdict.severity < Severity.ERROR, verdict.reason, verdict.message)
        self._record(plane, known or Result(Severity.OK), verdict)
        if before is not None and result == known and before.version == version:
            if verdict.codes and last is not None and (last.reason, last.status) == (outcome.reason, outcome.status):
                outcome = last  # texts of coderd differ between runs
            return Answer(outcome, before)
        health = HealthStatus(
            checked=checked.replace(microsecond=0),
            severity=verdict.severity.word,
            codes=list(verdict.codes),
            version=version,
        )
        return Answer(outcome, health)

    def _time(self, found: HealthReport) -> datetime:
        """When coderd ran the check, which identifies the run; now if it is not known."""
        return parse_time((found.time or "")[:SHORT]) or self._now()

    def _record(self, plane: CoderControlPlane, known: Result, verdict: Verdict) -> None:
        """Record the events of a change: one for an error, one for each new code of a warning."""
        new = [each for each in verdict.problems if each.code not in known.codes]
        if verdict.severity == Severity.ERROR and (
            known.severity < Severity.ERROR or any(each.severity == Severity.ERROR for each in new)
        ):
            self._recorder.record(CONTROL_PLANE, plane, events.HEALTH_CHECK_FAILED, verdict.message)
        for code, each in {each.code: each for each in new if each.severity == Severity.WARNING}.items():
            if code:
                self._recorder.record(CONTROL_PLANE, plane, events.HEALTH_CHECK_WARNING, describe(each))
        if known.severity == Severity.ERROR > verdict.severity:
            message = f"Coder's health check finds no error any more, after {', '.join(known.codes) or 'an error'}"
            self._recorder.record(CONTROL_PLANE, plane, events.HEALTH_CHECK_RECOVERED, message)


async def _settings(coderd: Coderd) -> HealthSettings:
    """The settings; none in a version of coderd without them."""
    try:
        return await coderd.health_settings()
    except coderd_errors.NotSupported:
        return HealthSettings()


def interval(plane: CoderControlPlane) -> float:
    """Seconds between two requests; an object that was stored before the limit existed may have less."""
    return max(MIN_INTERVAL, seconds(plane.spec.health.interval))


def is_enabled(plane: CoderControlPlane) -> bool:
    return seconds(plane.spec.health.interval) > 0


def parse_time(text: str) -> datetime | None:
    """The time of a run; `None` if it is not one."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _known(health: HealthStatus | None) -> Result | None:
    """The result in the status."""
    if health is None or health.severity not in SEVERITIES:
        return None
    return Result(SEVERITIES[health.severity], tuple(health.codes))


def _last_verdict(plane: CoderControlPlane) -> Outcome | None:
    """The condition, if it is that of a report."""
    found = find(plane.status.conditions, HEALTHY)
    if found is None or found.reason not in VERDICTS or found.is_true is None:
        return None
    return Outcome(HEALTHY, found.is_true, VERDICTS[found.reason], found.message)
