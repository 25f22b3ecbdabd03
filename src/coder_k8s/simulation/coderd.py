"""A model of coderd: its job queue, daemons, reaper and lifecycle executor.

| behavior | value | source |
|---|---|---|
| a new job notifies one set of tags that has all of its tags | 0.05 to 0.3 s | coderd/provisionerdserver/acquirer.go |
| every set of tags is polled as well | every 30 s | same |
| a daemon that becomes idle or connects gets a job at once | | same |
| jobs of people before those of prebuilds, then the oldest | | coderd/database/queries/provisionerjobs.sql |
| a daemon counts as connected until its last heartbeat is 90 s old | every 60 s | coderd/provisionerdserver |
| a job that waits for 30 minutes, or whose daemon was killed 5 minutes ago, fails | every 60 s, 10 at a time | \
coderd/jobreaper |
| scheduled starts and stops create a job only if a daemon with its tags was seen within 90 s | every 60 s | \
coderd/autobuild/lifecycle_executor.go |

The files are those of https://github.com/coder/coder at v2.36.1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerJob
from coder_k8s.controllers.provisioner.assignment import PREBUILDS
from coder_k8s.controllers.tags import covers

from .agenda import Agenda, moment

POLL = 30.0
HEARTBEAT = 60.0
STALE = 90.0
TICK = 60.0
PENDING_LIMIT = 1800.0
HUNG_LIMIT = 300.0
REAPED_PER_TICK = 10

Tags = Mapping[str, str]


@dataclass(eq=False)
class Job:
    """A job; `due` is when it is wanted, which is before it exists if coderd creates it on schedule."""

    number: int
    due: float
    duration: float
    tags: Tags
    prebuild: bool = False
    scheduled: bool = False
    created: float | None = None
    started: float | None = None
    finished: float | None = None
    failed: float | None = None
    """When the reaper failed it."""
    hung: float | None = None
    """When its daemon was killed."""
    worker: "Daemon | None" = None

    @property
    def wait(self) -> float | None:
        """Seconds until it started; None if it did not."""
        return None if self.started is None or self.created is None else self.started - self.created

    @property
    def waits(self) -> bool:
        return self.created is not None and self.started is None and self.failed is None


@dataclass(eq=False)
class Daemon:
    """A connected daemon, which runs one job at a time."""

    name: str
    tags: Tags
    key: str
    on_idle: Callable[[], None]
    """Called after each job."""
    seen: float = 0.0
    connected: bool = True
    accepting: bool = True
    job: Job | None = None

    @property
    def idle(self) -> bool:
        return self.connected and self.accepting and self.job is None


@dataclass
class Coderd:
    """The queue of one organization."""

    agenda: Agenda
    rng: Random
    jobs: list[Job] = field(default_factory=list)
    """Every job that was created."""
    due: list[Job] = field(default_factory=list)
    """Scheduled jobs that are not created yet."""
    daemons: list[Daemon] = field(default_factory=list)
    """Every daemon, also after it disconnected."""

    def __post_init__(self) -> None:
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._polled: set[frozenset[tuple[str, str]]] = set()
        self.agenda.every(TICK, self._reap, first=self.rng.uniform(0, TICK))
        self.agenda.every(TICK, self._execute_lifecycle, first=self.rng.uniform(0, TICK))

    def submit(self, job: Job) -> None:
        """Add a job at its time; coderd decides when a scheduled one is created."""
        add = (lambda: self.due.append(job)) if job.scheduled else (lambda: self._create(job))
        self.agenda.at(job.due, add)

    def connect(self, daemon: Daemon) -> None:
        daemon.seen = self.agenda.now
        self.daemons.append(daemon)
        self._beat(daemon)
        domain = frozenset(daemon.tags.items())
        if domain not in self._polled:
            self._polled.add(domain)
            self.agenda.every(POLL, lambda: self._poll(domain), first=POLL)
        self._acquire(daemon)

    def disconnect(self, daemon: Daemon) -> None:
        """A daemon exits. If it was killed with a job, the job hangs."""
        daemon.connected = daemon.accepting = False
        if daemon.job is not None:
            daemon.job.hung = self.agenda.now

    def view(self) -> tuple[list[ProvisionerJob], list[ProvisionerDaemon]]:
        """The jobs that wait or run, and the daemons, as the API returns them now."""
        jobs = [_job(each) for each in (*self._waiting, *self._running)]
        self.daemons = [each for each in self.daemons if each.connected or self._recent(each) or each.job]
        return jobs, [_daemon(each) for each in self.daemons if self._recent(each) or each.job]

    def _create(self, job: Job) -> None:
        job.created = self.agenda.now
        self.jobs.append(job)
        self._waiting.append(job)
        self.agenda.after(self.rng.uniform(0.05, 0.3), lambda: self._notify(job))

    def _notify(self, job: Job) -> None:
        """Wake up one set of tags; the rule for untagged jobs does not apply here, so that it may be a wrong one."""
        domains = sorted({tuple(sorted(each.tags.items())) for each in self.daemons if each.connected})
        able = [domain for domain in domains if job.tags.items() <= dict(domain).items()]
        if able:
            self._poll(frozenset(self.rng.choice(able)))

    def _poll(self, domain: frozenset[tuple[str, str]]) -> None:
        for daemon in [each for each in self.daemons if each.idle and frozenset(each.tags.items()) == domain]:
            self._acquire(daemon)

    def _acquire(self, daemon: Daemon) -> None:
        able = [job for job in self._waiting if covers(daemon.tags, job.tags)]
        if not able or not daemon.idle:
            return
        job = min(able, key=lambda each: (each.prebuild, each.created, each.number))
        self._waiting.remove(job)
        self._running.append(job)
        job.started, job.worker, daemon.job = self.agenda.now, daemon, job
        self.agenda.after(job.duration, lambda: self._complete(job, daemon))

    def _complete(self, job: Job, daemon: Daemon) -> None:
        if job.hung is not None:
            return
        job.finished, daemon.job = self.agenda.now, None
        self._running.remove(job)
        daemon.on_idle()
        self._acquire(daemon)

    def _beat(self, daemon: Daemon) -> None:
        if daemon.connected:
            daemon.seen = self.agenda.now
            self.agenda.after(HEARTBEAT, lambda: self._beat(daemon))

    def _recent(self, daemon: Daemon) -> bool:
        return self.agenda.now - daemon.seen < STALE

    def _reap(self) -> None:
        now = self.agenda.now
        old = [job for job in self._waiting if job.created is not None and now - job.created >= PENDING_LIMIT]
        hung = [job for job in self._running if job.hung is not None and now - job.hung >= HUNG_LIMIT]
        for job in (old + hung)[:REAPED_PER_TICK]:
            job.failed = now
            (self._waiting if job.started is None else self._running).remove(job)

    def _execute_lifecycle(self) -> None:
        seen = [daemon.tags for daemon in self.daemons if self._recent(daemon)]
        for job in [each for each in self.due if any(covers(tags, each.tags) for tags in seen)]:
            self.due.remove(job)
            self._create(job)


def _job(job: Job) -> ProvisionerJob:
    return ProvisionerJob(
        id=f"{job.number:06}",
        created_at=moment(job.created or 0.0),
        status="pending" if job.waits else "running",
        tags=dict(job.tags),
        started_at=None if job.started is None else moment(job.started),
        worker_id=job.worker.name if job.worker else None,
        worker_name=job.worker.name if job.worker else "",
        initiator_id=PREBUILDS if job.prebuild else "",
    )


def _daemon(daemon: Daemon) -> ProvisionerDaemon:
    return ProvisionerDaemon(
        id=daemon.name,
        name=daemon.name,
        key_id=daemon.key,
        created_at=moment(0.0),
        version="v2.36.1",
        api_version="1.0",
        tags=dict(daemon.tags),
        last_seen_at=moment(daemon.seen),
        status="busy" if daemon.job else "idle",
    )
