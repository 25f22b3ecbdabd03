"""What sets the number of replicas in a simulation: the operator, and three alternatives.

The alternatives get the same demand as the operator as their metric (running jobs plus assigned jobs, at one per pod),
so that only the control differs. No part of Coder or Kubernetes provides this metric to them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from coder_k8s.api.autoscaling import ScaleUpRules, ScalingBehavior, ScalingPolicy
from coder_k8s.controllers.provisioner.autoscaling import Demand, Observed, decide
from coder_k8s.controllers.provisioner.behavior import History, limit, stabilize
from coder_k8s.controllers.provisioner.demand import demands, is_covered
from coder_k8s.controllers.provisioner.floors import scheduled_floor

from .agenda import Agenda, moment
from .cluster import Deployment
from .coderd import Coderd

BUSY_COST = 10


@dataclass
class World:
    """Everything that a scaler can see and change."""

    agenda: Agenda
    coderd: Coderd
    deployments: Mapping[str, Deployment]

    def demands(self) -> dict[str, Demand]:
        jobs, daemons = self.coderd.view()
        members = [each.member() for each in self.deployments.values()]
        return demands(jobs, daemons, members, moment(self.agenda.now))


class Scaler(Protocol):
    """Sets replicas from now on."""

    def start(self, world: World) -> None: ...


@dataclass
class Static:
    """A fixed number of replicas."""

    replicas: Mapping[str, int]

    def start(self, world: World) -> None:
        for name, deployment in world.deployments.items():
            deployment.scale(self.replicas[name])


HPA_BEHAVIOR = ScalingBehavior(
    scale_up=ScaleUpRules(
        policies=[
            ScalingPolicy(type="Percent", value=100, period_seconds=15),
            ScalingPolicy(type="Pods", value=4, period_seconds=15),
        ]
    )
)


@dataclass
class HorizontalPodAutoscaler:
    """A HorizontalPodAutoscaler with an external metric of type AverageValue, target 1.

    It runs every 15 seconds and ignores a ratio within 10 % of the target. By default it adds the larger of 4 pods and
    100 % per 15 seconds, and removes pods after a window of 300 seconds. Its minimum is 1, unless a cluster enables
    scaling to zero. Pods to remove are chosen by the ReplicaSet controller.
    https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details
    https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#default-behavior
    """

    sync: float = 15.0
    tolerance: float = 0.1
    history: dict[str, History] = field(default_factory=dict)

    def start(self, world: World) -> None:
        for deployment in world.deployments.values():
            deployment.scale(max(1, deployment.spec.min_replicas))
        world.agenda.every(self.sync, lambda: self.reconcile(world), first=self.sync)

    def reconcile(self, world: World) -> None:
        found = world.demands()
        for deployment in world.deployments.values():
            if deployment.replicas:
                self.scale(deployment, metric(found[deployment.name]), world.agenda.now)

    def scale(self, deployment: Deployment, value: int, now: float) -> None:
        current, spec, at = deployment.replicas, deployment.spec, moment(now)
        history = self.history.get(deployment.name) or History.started(current, at)
        history = history.recommend(self.recommend(current, value), HPA_BEHAVIOR, at)
        stable = stabilize(current, history.recommendations[-1].replicas, HPA_BEHAVIOR, history, at)
        target = min(max(stable, 1, spec.min_replicas), spec.max_replicas)
        desired = limit(current, target, HPA_BEHAVIOR, history, at)
        self.history[deployment.name] = history.change(desired - current, at)
        if desired != current:
            deployment.scale(desired)

    def recommend(self, current: int, value: int) -> int:
        """The replicas for a metric; unchanged within the tolerance."""
        return current if abs(value / current - 1) <= self.tolerance else math.ceil(value)


@dataclass
class Keda:
    """KEDA with an external scaler: a HorizontalPodAutoscaler from one replica on, and its own loop from and to zero.

    KEDA checks every 30 seconds (`pollingInterval`) whether the metric is above 0, and then scales from zero to one. It
    scales from one to zero when the metric was 0 for 300 seconds (`cooldownPeriod`).
    https://keda.sh/docs/2.18/reference/scaledobject-spec/#pollinginterval
    https://keda.sh/docs/2.18/reference/scaledobject-spec/#cooldownperiod
    https://keda.sh/docs/2.18/concepts/scaling-deployments/
    """

    polling: float = 30.0
    cooldown: float = 300.0
    hpa: HorizontalPodAutoscaler = field(default_factory=HorizontalPodAutoscaler)
    active: dict[str, float] = field(default_factory=dict)
    """When the metric was last above 0."""

    def start(self, world: World) -> None:
        for deployment in world.deployments.values():
            deployment.scale(deployment.spec.min_replicas)
        world.agenda.every(self.hpa.sync, lambda: self.hpa.reconcile(world), first=self.hpa.sync)
        world.agenda.every(self.polling, lambda: self.reconcile(world), first=self.polling)

    def reconcile(self, world: World) -> None:
        found, now = world.demands(), world.agenda.now
        for deployment in world.deployments.values():
            if metric(found[deployment.name]):
                self.active[deployment.name] = now
                if deployment.replicas == 0:
                    deployment.scale(1)
            elif (
                deployment.replicas == 1
                and not deployment.spec.min_replicas
                and now - self.active.get(deployment.name, 0.0) >= self.cooldown
            ):
                deployment.scale(0)


@dataclass
class Operator:
    """The operator: it reads the queue every 10 seconds while jobs wait or run, and otherwise every 30 seconds."""

    busy_poll: float = 10.0
    idle_poll: float = 30.0
    settle: float = 1.0
    """Seconds between a deletion cost and a removal that relies on it."""
    history: dict[str, History] = field(default_factory=dict)
    last_scale: dict[str, float] = field(default_factory=dict)

    def start(self, world: World) -> None:
        for deployment in world.deployments.values():
            deployment.scale(max(deployment.spec.min_replicas, 1))
            self.last_scale[deployment.name] = world.agenda.now
        world.agenda.after(self.busy_poll, lambda: self.reconcile(world))

    def reconcile(self, world: World) -> None:
        found = world.demands()
        patched = [
            self._protect(deployment, found[deployment.name], world) for deployment in world.deployments.values()
        ]
        jobs, daemons = world.coderd.view()
        for deployment, changed in zip(world.deployments.values(), patched, strict=True):
            self._scale(deployment, found[deployment.name], world, is_covered(deployment.member(), daemons), changed)
        poll = self.settle if any(patched) else self.busy_poll if jobs else self.idle_poll
        world.agenda.after(poll, lambda: self.reconcile(world))

    def _protect(self, deployment: Deployment, demand: Demand, world: World) -> bool:
        """Set the deletion costs; whether one changed."""
        changed = False
        for pod in deployment.active:
            cost = BUSY_COST if pod.name in demand.busy else 0
            changed |= cost > pod.cost
            pod.cost = cost
            if cost or pod.ready is None:
                pod.idle_since = None
            else:
                pod.idle_since = world.agenda.now if pod.idle_since is None else pod.idle_since
        return changed

    def _scale(self, deployment: Deployment, demand: Demand, world: World, covered: bool, patched: bool) -> None:
        name, now = deployment.name, world.agenda.now
        seen = Observed(
            now=moment(now),
            current=deployment.replicas,
            pods=[pod.state for pod in deployment.active],
            demand=demand,
            scheduled=scheduled_floor(deployment.spec.schedules, moment(now)),
            covered=covered,
            last_scale=moment(self.last_scale[name]),
        )
        decision = decide(deployment.spec, seen, self.history.get(name))
        self.history[name] = decision.history
        if decision.desired == deployment.replicas or (patched and decision.desired < deployment.replicas):
            return
        self.history[name] = decision.history.change(decision.desired - deployment.replicas, moment(now))
        self.last_scale[name] = now
        deployment.scale(decision.desired)


def metric(demand: Demand) -> int:
    """The demand as the alternatives get it."""
    return len(demand.busy) + len(demand.share.jobs)
