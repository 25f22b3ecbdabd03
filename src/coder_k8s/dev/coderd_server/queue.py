"""The provisioner jobs of the simulator: who may take them, and which of them fail by time.

A daemon takes the oldest job of its organization that its tags cover, jobs of people before prebuilt workspaces. A job
that nobody takes for 30 minutes fails, and so does one whose daemon is gone for 5 minutes. Like coderd, the simulator
looks for such jobs once per minute and fails at most ten of them at a time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from coder_k8s.dev.coderd_server.tags import complete, covers

PREBUILDS = "c42fdf75-3097-471c-8c33-fb52454d81c0"
"""The user of prebuilt workspaces."""
REAP_EVERY = timedelta(minutes=1)
PENDING = timedelta(minutes=30)
HUNG = timedelta(minutes=5)
REAPED_AT_ONCE = 10
NO_TEMPLATE = {
    "template_version_name": "",
    "template_id": "00000000-0000-0000-0000-000000000000",
    "template_name": "",
    "template_display_name": "",
    "template_icon": "",
}


@dataclass(frozen=True)
class Job:
    """A provisioner job. Its daemon updates it all the time, until it is `lost`."""

    id: str
    created_at: datetime
    tags: dict[str, str]
    organization: str
    initiator: str
    type: str = "workspace_build"
    file: str = field(default_factory=lambda: str(uuid4()))
    input: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=lambda: dict(NO_TEMPLATE))
    worker: str = ""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    canceled_at: datetime | None = None
    lost_at: datetime | None = None
    error: str = ""
    error_code: str = ""
    logs: Sequence[Mapping[str, Any]] = ()
    seconds: float = 0.02
    """How long the daemons of tests run it."""

    @property
    def status(self) -> str:
        if self.error:
            return "failed"
        if self.completed_at is not None:
            return "succeeded" if self.canceled_at is None else "canceled"
        if self.canceled_at is not None:
            return "canceling"
        return "pending" if self.started_at is None else "running"

    @property
    def doomed_at(self) -> datetime | None:
        """When the job fails unless something happens to it."""
        if self.completed_at is not None:
            return None
        if self.started_at is None:
            return self.created_at + PENDING
        return None if self.lost_at is None else self.lost_at + HUNG


class Queue:
    """The jobs of one coderd. Tests add, finish and cancel them; daemons take them."""

    def __init__(self, now: Callable[[], datetime], default_organization: Callable[[], str], initiator: str) -> None:
        self.now = now
        self._default_organization = default_organization
        self._initiator = initiator
        self._jobs: dict[str, Job] = {}
        self._reaped_at = now()

    @property
    def jobs(self) -> list[Job]:
        """All jobs, in the order of coderd's list: the newest first."""
        return sorted(self._current(), key=lambda job: job.created_at, reverse=True)

    def job(self, job: str) -> Job:
        """Return a job by ID."""
        self._reap()
        return self._jobs[job]

    def add_job(
        self, tags: Mapping[str, str] | None = None, organization: str = "", initiator: str = "", **fields: Any
    ) -> str:
        """Add a pending job and return its ID; the fields are those of `Job`."""
        by = initiator or self._initiator
        kept = complete(tags, user=by)
        added = Job(str(uuid4()), self.now(), kept, organization or self._default_organization(), by)
        self.put_job(replace(added, **fields))
        return added.id

    def put_job(self, job: Job) -> None:
        """Add or replace a job."""
        self._jobs[job.id] = job

    def change_job(self, job: str, **fields: Any) -> None:
        """Set fields of a job."""
        self.put_job(replace(self.job(job), **fields))

    def pending(self) -> list[Job]:
        """Return the pending jobs, the next one first."""
        waiting = [job for job in self._current() if job.status == "pending"]
        return sorted(waiting, key=lambda job: (job.initiator == PREBUILDS, job.created_at))

    def take_job(self, worker: str, tags: Mapping[str, str], organization: str) -> Job | None:
        """Assign the next job that these tags cover to a daemon."""
        for job in self.pending():
            if job.organization == organization and covers(tags, job.tags):
                self.change_job(job.id, worker=worker, started_at=self.now())
                return self.job(job.id)
        return None

    def finish_job(self, job: str, error: str = "", error_code: str = "") -> None:
        """Complete a job, unless coderd has failed it."""
        if self.job(job).completed_at is None:
            self.change_job(job, completed_at=self.now(), error=error, error_code=error_code)

    def cancel_job(self, job: str) -> None:
        """Cancel a job: at once if it is pending, otherwise its daemon has to complete it."""
        done = self.now() if self.job(job).started_at is None else None
        self.change_job(job, canceled_at=self.now(), completed_at=done)

    def lose_worker(self, worker: str) -> None:
        """Stop the updates of a job, because its daemon was killed."""
        if (current := self.current(worker)) is not None:
            self.change_job(current.id, lost_at=self.now())

    def current(self, worker: str) -> Job | None:
        """Return the job that a daemon runs."""
        return next((job for job in self._current() if job.worker == worker and job.completed_at is None), None)

    def previous(self, worker: str) -> Job | None:
        """Return the job that a daemon completed last."""
        mine = [job for job in self._current() if job.worker == worker]
        done = [(job.completed_at, job) for job in mine if job.completed_at is not None]
        return max(done, key=lambda each: each[0])[1] if done else None

    def _current(self) -> Collection[Job]:
        self._reap()
        return self._jobs.values()

    def _reap(self) -> None:
        """Fail jobs as coderd does, at each full minute since the last time."""
        while self._reaped_at + REAP_EVERY <= self.now():
            self._reaped_at += REAP_EVERY
            doomed = [job for job in self._jobs.values() if (job.doomed_at or self._reaped_at) < self._reaped_at]
            for job in doomed[:REAPED_AT_ONCE]:
                what, limit = ("pending", PENDING) if job.started_at is None else ("hung", HUNG)
                error = (
                    f"Coder: Build has been detected as {what} for {limit.total_seconds() / 60:.0f} minutes "
                    "and has been terminated by the reaper."
                )
                started = job.started_at or self._reaped_at
                self.put_job(replace(job, started_at=started, completed_at=self._reaped_at, error=error))
            if not doomed:
                self._skip_idle_minutes()

    def _skip_idle_minutes(self) -> None:
        """Continue at the minute before the next job fails, because a simulated clock can advance by years."""
        ends = [job.doomed_at for job in self._jobs.values() if job.doomed_at is not None]
        idle = min([self.now(), *ends]) - self._reaped_at
        self._reaped_at += max(idle // REAP_EVERY, 0) * REAP_EVERY
