"""A model of the pods of a provisioner, and of the ReplicaSet controller that adds and removes them.

| behavior | value | source |
|---|---|---|
| a pod starts, usually on a node with the image | 2 to 20 s | assumption |
| 15 % of pods need a new node | 40 to 90 s | assumption |
| pods that are not ready are removed first, then those with a low deletion cost, then the newest | | \
https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-a-replicaset |
| a removed pod finishes its job, and is killed after its grace period | 600 s | \
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination |
"""

from dataclasses import dataclass, field
from random import Random

from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.controllers.provisioner.demand import Member
from coder_k8s.controllers.provisioner.victims import PodState

from .agenda import Agenda, moment
from .coderd import Coderd, Daemon, Tags

GRACE = 600.0
EXIT = 1.0
"""Seconds that an idle daemon takes to exit."""


@dataclass(eq=False)
class Pod:
    """A pod with one daemon."""

    name: str
    created: float
    ready: float | None = None
    deleted: float | None = None
    gone: float | None = None
    cost: int = 0
    idle_since: float | None = None
    daemon: Daemon | None = None

    @property
    def state(self) -> PodState:
        running = self.ready is not None
        return PodState(
            self.name,
            moment(self.created),
            moment(self.ready) if self.ready is not None else None,
            running=running,
            cost=self.cost,
            idle_since=moment(self.idle_since) if self.idle_since is not None else None,
        )


def startup_time(rng: Random) -> float:
    """How long a pod takes to start."""
    if rng.random() < 0.15:
        return rng.uniform(40.0, 90.0)
    return min(20.0, max(2.0, rng.lognormvariate(1.8, 0.5)))


@dataclass
class Deployment:
    """The Deployment of a provisioner, with one ReplicaSet."""

    name: str
    tags: Tags
    spec: Autoscaling
    agenda: Agenda
    coderd: Coderd
    rng: Random
    replicas: int = 0
    pods: list[Pod] = field(default_factory=list)
    """Every pod, also those that are gone."""
    changes: int = 0
    """How often the number of replicas changed."""

    @property
    def active(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.deleted is None]

    def member(self, *, scaled: bool = True) -> Member:
        """The provisioner, as the operator sees it."""
        states = [pod.state for pod in self.active]
        spec, ending = (
            self.spec if scaled else None,
            frozenset(pod.name for pod in self.pods if pod.deleted is not None),
        )
        return Member(self.name, self.tags, frozenset({self.name}), states, spec, ending=ending)

    def scale(self, replicas: int) -> None:
        self.changes += replicas != self.replicas
        self.replicas = replicas
        active = self.active
        for _ in range(replicas - len(active)):
            self._create()
        for pod in sorted(active, key=_rank)[: max(0, len(active) - replicas)]:
            self._delete(pod)

    def pod_seconds(self, until: float) -> float:
        return sum((until if pod.gone is None else pod.gone) - pod.created for pod in self.pods)

    def _create(self) -> None:
        pod = Pod(f"{self.name}-{len(self.pods)}", self.agenda.now)
        self.pods.append(pod)
        self.agenda.after(startup_time(self.rng), lambda: self._start(pod))

    def _start(self, pod: Pod) -> None:
        if pod.deleted is not None:
            return
        pod.ready = self.agenda.now
        pod.daemon = Daemon(pod.name, self.tags, self.name, lambda: self._exit_if_deleted(pod))
        self.coderd.connect(pod.daemon)

    def _delete(self, pod: Pod) -> None:
        """Send SIGTERM: the daemon takes no further job, finishes the one that runs, and exits."""
        pod.deleted = self.agenda.now
        if pod.daemon is None:
            pod.gone = self.agenda.now
            return
        pod.daemon.accepting = False
        self._exit_if_deleted(pod)
        self.agenda.after(GRACE, lambda: self._exit(pod))

    def _exit_if_deleted(self, pod: Pod) -> None:
        if pod.deleted is not None and pod.daemon is not None and pod.daemon.job is None:
            self.agenda.after(EXIT, lambda: self._exit(pod))

    def _exit(self, pod: Pod) -> None:
        if pod.gone is None and pod.daemon is not None:
            pod.gone = self.agenda.now
            self.coderd.disconnect(pod.daemon)


def _rank(pod: Pod) -> tuple[bool, int, float]:
    return pod.ready is not None, pod.cost, -pod.created
