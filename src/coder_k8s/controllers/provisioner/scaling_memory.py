"""What the operator remembers about an autoscaled provisioner between two reconciles.

None of it survives a restart: windows start full, and waits are counted for jobs that start afterwards.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from coder_k8s.coderd.types import ProvisionerJob

from .behavior import History
from .build_times import KEPT, outlive_pods

FAILURE_INTERVAL = timedelta(seconds=10)
"""Reconciles within this time see the same error."""


class Memory(msgspec.Struct):
    """The state of one provisioner."""

    history: History | None = None
    replicas: int | None = None
    """`spec.replicas` when it was last seen."""
    failures: int = 0
    """Times that the jobs could not be read, in a row."""
    failed_at: datetime | None = None
    idle_since: dict[str, datetime] = msgspec.field(default_factory=dict)
    """By pod, when its daemon was first seen without a job."""
    missing_since: datetime | None = None
    """Since when there are fewer pods than replicas."""
    running: dict[str, str] | None = None
    """The pods of jobs that run, by ID; None before the first answer of coderd."""
    suspects: dict[str, datetime] = msgspec.field(default_factory=dict)
    """Jobs whose pod is gone, by ID, with the time of the answer that listed them."""
    started: dict[str, datetime] = msgspec.field(default_factory=dict)
    """When the jobs that run were started, by ID."""
    builds: deque[timedelta] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT))
    """How long the last jobs ran."""

    def fail(self, now: datetime) -> int:
        """Count an error; returns how many there were in a row."""
        if self.failed_at is None or now - self.failed_at >= FAILURE_INTERVAL:
            self.failures, self.failed_at = self.failures + 1, now
        return self.failures

    def succeed(self) -> None:
        self.failures, self.failed_at = 0, None

    def observe_idle(self, ready: Iterable[str], busy: Collection[str], now: datetime) -> None:
        """Remember since when each ready pod has no job."""
        self.idle_since = {name: self.idle_since.get(name, now) for name in ready if name not in busy}

    def observe_missing(self, missing: bool, now: datetime) -> None:
        """Remember since when pods are missing."""
        self.missing_since = (self.missing_since or now) if missing else None

    def observe_running(self, jobs: Sequence[ProvisionerJob], pods: Collection[str]) -> list[timedelta]:
        """Remember the pods of running jobs; returns how long the new ones waited."""
        known = self.running
        running = {job.id: job for job in jobs if not job.waits and job.worker_name in pods}
        waited = [
            job.started_at - job.created_at
            for job in running.values()
            if known is not None and job.id not in known and job.started_at is not None
        ]
        listed = {job.id for job in jobs}
        left = {each: pod for each, pod in (known or {}).items() if each in listed}
        self.running = left | {each: job.worker_name for each, job in running.items()}
        return waited

    def observe_builds(self, jobs: Sequence[ProvisionerJob], pods: Collection[str], answered: datetime) -> None:
        """Remember how long jobs ran: those that the last answer had and this one has not have ended."""
        listed = {job.id for job in jobs}
        ended = [started for each, started in self.started.items() if each not in listed]
        self.builds.extend(answered - started for started in ended)
        self.started = {each: started for each, started in self.started.items() if each in listed} | {
            job.id: job.started_at for job in jobs if job.started_at is not None and job.worker_name in pods
        }

    def outlive_pods(self, grace: timedelta, before: bool, answered: datetime) -> bool:
        """Whether builds take longer than the grace period. Those that still run count once they do."""
        running = (answered - started for started in self.started.values())
        return outlive_pods([*self.builds, *(each for each in running if each > grace)], grace, before)

    def observe_lost(self, pods: Collection[str], answered: datetime) -> int:
        """How many jobs are lost: coderd lists them as running although their pod is gone, in two answers.

        In one answer, the job may have ended just before its pod was gone.
        """
        gone = {each for each, pod in (self.running or {}).items() if pod not in pods}
        lost = {each for each in gone if each in self.suspects and self.suspects[each] < answered}
        self.suspects = {each: self.suspects.get(each, answered) for each in gone - lost}
        self.running = {each: pod for each, pod in (self.running or {}).items() if each not in lost}
        return len(lost)
