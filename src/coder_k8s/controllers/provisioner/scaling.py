"""Sets the number of pods of an autoscaled provisioner: reads the queue, decides, protects busy pods, reports.

A removal needs two decisions: one from the last answers of coderd, and the same from a new list of jobs. The deletion
costs of busy pods come from the cache. If a pod has to be protected first, the removal waits for the next reconcile, so
that the ReplicaSet controller sees the cost before the number.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from coder_k8s.api import PROVISIONER, CoderControlPlane, CoderProvisioner, events
from coder_k8s.api.autoscaling import Autoscaling, AutoscalingStatus
from coder_k8s.api.provisioner import ProvisionerStatus
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.deployments import typed
from coder_k8s.controllers.images import is_updating, stops_provisioners
from coder_k8s.controllers.report import StatusReport
from coder_k8s.kube.objects import Key, Unstructured

from . import scaling_outcomes
from .autoscaling import Decision, Limit, Observed, decide
from .demand import demands, is_covered
from .floors import scheduled_floor
from .podstates import active, is_rolling
from .protector import PodProtector
from .scaling_memory import Memory
from .scaling_metrics import ScalingMetrics
from .scaling_view import OrganizationView, Queue

FRESH = timedelta(seconds=5)
"""Maximum age of the jobs for a removal of pods."""
ROTATION = timedelta(minutes=10)
"""How long pods may take to be replaced during a rotation, without their builds."""
SETTLE = 1.0
"""Seconds between the protection of a pod and a removal that relies on it."""
RETRY = 10.0
"""Seconds until the next decision after an error, or a change."""


class Subject(NamedTuple):
    """The provisioner that a decision is about; `current` is the number of replicas of its Deployment, if it exists."""

    provisioner: CoderProvisioner
    plane: CoderControlPlane
    spec: Autoscaling
    current: int | None
    memory: Memory


class Plan(NamedTuple):
    """The number of pods for the Deployment, and the decision behind it, if there is one."""

    replicas: int
    seen: Observed | None = None
    decision: Decision | None = None
    settling: bool = False
    """Whether a removal waits because a pod was just protected."""

    @property
    def is_uncertain(self) -> bool:
        """Whether a removal waits because a build may run in any of the pods."""
        demand = self.seen.demand if self.seen else None
        held = self.decision is not None and self.decision.limited_by is Limit.UNKNOWN_PODS
        return held and demand is not None and demand.uncertain


class Autoscaler:
    """Decides about one provisioner at a time."""

    def __init__(self, context: Context[CoderProvisioner], metrics: ScalingMetrics) -> None:
        self._view = OrganizationView(context)
        self._pods = PodProtector(context.children)
        self._recorder = context.recorder
        self._now = context.now
        self._metrics = metrics
        self._memories: dict[Key, Memory] = {}

    def forget(self, key: Key) -> None:
        """Drop what is held in memory about a provisioner that is deleted, or no longer autoscaled."""
        if self._memories.pop(key, None) is not None:
            self._metrics.forget(key)

    async def plan(
        self,
        provisioner: CoderProvisioner,
        plane: CoderControlPlane,
        coderd: Coderd | None,
        live: Unstructured | None,
        report: StatusReport[ProvisionerStatus],
    ) -> Plan:
        """Decide about the number of pods, and protect busy ones. Without `coderd`, the jobs cannot be read."""
        spec = provisioner.spec.autoscaling
        stopped = stops_provisioners(plane)
        if spec is None:
            await self._stop(provisioner, report)
            return Plan(0 if stopped else provisioner.spec.replicas)
        if stopped:
            report.add_outcome(scaling_outcomes.able(provisioner, spec, Limit.UPDATE))
            self._report_status(provisioner, Plan(0), report)
            return Plan(0)
        memory = self._memories.setdefault(provisioner.key, Memory())
        self._report_ignored(provisioner, memory)
        current = typed(live).spec.replicas if live is not None else None
        subject = Subject(provisioner, plane, spec, current, memory)
        try:
            plan, queue = await self._decide(subject, coderd)
        except coderd_errors.CoderdError as error:
            plan = self._hold(subject)
            report.add_outcome(scaling_outcomes.unreadable(provisioner, error))
            report.requeue_after(RETRY)
        else:
            memory.succeed()
            if plan.decision is not None:
                self._report_decision(subject, plan.decision, queue, report)
            report.requeue_after(SETTLE if plan.settling else max(SETTLE, queue.next_read))
        self._report_status(provisioner, plan, report)
        return plan

    async def applied(self, provisioner: CoderProvisioner, plan: Plan, report: StatusReport[ProvisionerStatus]) -> None:
        """Record that the Deployment has the number of pods of a plan."""
        await self._pods.ensure_budget(provisioner, report)
        seen, decision, status = plan.seen, plan.decision, report.status.autoscaling
        if seen is None or decision is None or status is None or decision.desired == seen.current:
            return
        pods = decision.desired - seen.current
        self._memories[provisioner.key].history = decision.history.change(pods, seen.now)
        event = events.SCALED_UP if pods > 0 else events.SCALED_DOWN
        self._recorder.record(PROVISIONER, provisioner, event, scaling_outcomes.describe_change(decision, seen))
        self._metrics.count_change(provisioner.key, pods, scaling_outcomes.cause(decision, seen))
        when = seen.now.replace(microsecond=0)
        report.status.autoscaling = msgspec.structs.replace(status, last_scale_time=when)
        report.requeue_after(RETRY)

    def report_not_entitled(self, provisioner: CoderProvisioner, report: StatusReport[ProvisionerStatus]) -> None:
        """Report that nothing changes because of the license."""
        if provisioner.spec.autoscaling is not None:
            report.add_outcome(scaling_outcomes.NOT_ENTITLED)

    async def _decide(self, subject: Subject, coderd: Coderd | None) -> tuple[Plan, Queue]:
        """Decide; if there are to be fewer pods, again from a new list of jobs, and only if all costs are known."""
        queue = await self._view.read(subject.provisioner, coderd)
        if subject.current is None:
            return Plan(self._start(subject)), queue
        plan = await self._attempt(subject, subject.current, queue)
        if plan.is_uncertain:  # a daemon may have connected since all of them were listed
            queue = await self._view.read(subject.provisioner, coderd, fresh_daemons=True)
            plan = await self._attempt(subject, subject.current, queue)
        if plan.replicas < subject.current:
            queue = await self._view.read(subject.provisioner, coderd, fresh=True)
            plan = await self._attempt(subject, subject.current, queue)
            if plan.replicas < subject.current and self._now() - queue.listed > FRESH:
                plan = _held(plan, subject.current)
        if plan.decision is not None:
            subject.memory.history = plan.decision.history
        return plan, queue

    async def _attempt(self, subject: Subject, current: int, queue: Queue) -> Plan:
        """Decide from a list of jobs, and protect the pods that are busy in it."""
        seen = self._observe(subject, current, queue)
        decision = decide(subject.spec, seen, subject.memory.history)
        busy = seen.demand.busy if seen.demand else ()
        raised = await self._pods.protect(subject.provisioner, self._view.pods(subject.provisioner), busy)
        plan = Plan(decision.desired, seen, decision)
        return _held(plan, current)._replace(settling=True) if raised and decision.desired < current else plan

    def _observe(self, subject: Subject, current: int, queue: Queue) -> Observed:
        """Everything that a decision depends on, also reported as metrics."""
        provisioner, spec, memory, now = subject.provisioner, subject.spec, subject.memory, self._now()
        pods = self._view.pods(provisioner)
        memory.observe_missing(len(active(pods)) < current, now)
        members = self._view.members(provisioner, self._remembered)
        own = members[0]
        demand = demands(queue.jobs, queue.daemons, members, now)[own.name]
        names = {pod.metadata.name for pod in pods}
        memory.observe_idle([pod.name for pod in own.pods if pod.ready_since is not None], demand.busy, now)
        memory.observe_builds(queue.jobs, names, queue.listed)
        for waited in memory.observe_running(queue.jobs, names):
            self._metrics.observe_wait(provisioner.key, waited)
        self._metrics.count_lost(provisioner.key, memory.observe_lost(names, queue.listed))
        self._metrics.set_state(
            provisioner.key,
            maximum=spec.max_replicas,
            pending=len(demand.share.jobs),
            busy=len(demand.busy) + demand.unmapped,
            not_starting=sum(pod.is_stuck(now) for pod in own.pods),
        )
        last = provisioner.status.autoscaling
        return Observed(
            now=now,
            current=current,
            pods=own.pods,
            demand=demand,
            fallback=provisioner.spec.replicas,
            scheduled=scheduled_floor(spec.schedules, now),
            hold=_held_by(provisioner, subject.plane, pods, now),
            covered=is_covered(own, queue.daemons),
            last_scale=last.last_scale_time if last else None,
        )

    def _report_decision(
        self, subject: Subject, decision: Decision, queue: Queue, report: StatusReport[ProvisionerStatus]
    ) -> None:
        """Report a decision, with an event if builds begin to take longer than the grace period of pods."""
        provisioner = subject.provisioner
        warning = scaling_outcomes.grace_period_too_short(provisioner)
        before = scaling_outcomes.is_reported(provisioner, warning)
        grace = timedelta(seconds=provisioner.spec.termination_grace_period_seconds)
        outlive = subject.memory.outlive_pods(grace, before, queue.listed)
        outcomes = scaling_outcomes.outcomes(provisioner, subject.spec, decision, warning if outlive else None)
        if warning in outcomes and not before:
            self._recorder.record(PROVISIONER, provisioner, events.GRACE_PERIOD_TOO_SHORT, warning.message)
        for outcome in outcomes:
            report.add_outcome(outcome)

    def _hold(self, subject: Subject) -> Plan:
        """Decide without the jobs."""
        provisioner, spec, now = subject.provisioner, subject.spec, self._now()
        failures = subject.memory.fail(now)
        if subject.current is None:
            return Plan(self._start(subject))
        seen = Observed(
            now=now,
            current=subject.current,
            pods=(),
            demand=None,
            failures=failures,
            fallback=provisioner.spec.replicas,
            scheduled=scheduled_floor(spec.schedules, now),
        )
        decision = decide(spec, seen, subject.memory.history)
        subject.memory.history = decision.history
        return Plan(decision.desired, seen, decision)

    def _start(self, subject: Subject) -> int:
        """The number of pods of a new Deployment."""
        spec = subject.spec
        floor = max(spec.min_replicas, scheduled_floor(spec.schedules, self._now()))
        return min(max(subject.provisioner.spec.replicas, floor), spec.max_replicas)

    async def _stop(self, provisioner: CoderProvisioner, report: StatusReport[ProvisionerStatus]) -> None:
        """Remove what is left of autoscaling once it is no longer in the spec."""
        self.forget(provisioner.key)
        if provisioner.status.autoscaling is not None:
            report.status.autoscaling = None
        await self._pods.release(self._view.pods(provisioner))

    def _remembered(self, key: Key) -> Memory:
        return self._memories.get(key, Memory())

    def _report_ignored(self, provisioner: CoderProvisioner, memory: Memory) -> None:
        """Report a change of `spec.replicas`, which has no effect."""
        before, memory.replicas = memory.replicas, provisioner.spec.replicas
        if before not in (None, provisioner.spec.replicas):
            note = (
                f"Ignored the change of replicas from {before} to {provisioner.spec.replicas}: autoscaling sets the "
                "number of pods"
            )
            self._recorder.record(PROVISIONER, provisioner, events.REPLICAS_IGNORED, note)

    def _report_status(
        self, provisioner: CoderProvisioner, plan: Plan, report: StatusReport[ProvisionerStatus]
    ) -> None:
        before, demand = provisioner.status.autoscaling, plan.seen.demand if plan.seen else None
        waiting = demand.share.jobs if demand else ()
        self._metrics.set_desired(provisioner.key, plan.replicas)
        report.status.autoscaling = AutoscalingStatus(
            desired_replicas=plan.replicas,
            pending_jobs=len(waiting),
            oldest_pending=min((job.created_at for job in waiting), default=None),
            limited_by=str(plan.decision.limited_by) if plan.decision else "",
            last_scale_time=before.last_scale_time if before else None,
        )


def _held(plan: Plan, current: int) -> Plan:
    """A plan that removes no pods, because a busy one might be among them."""
    if plan.decision is None:
        return plan
    return plan._replace(replicas=current, decision=replace(plan.decision, desired=current, limited_by=Limit.BUSY))


def _held_by(
    provisioner: CoderProvisioner, plane: CoderControlPlane, pods: Iterable[Unstructured], now: datetime
) -> Limit:
    """Why no pods are removed now. A key that cannot be deleted in Coder does not count for ever."""
    if is_updating(plane):
        return Limit.UPDATE
    bound = timedelta(seconds=provisioner.spec.termination_grace_period_seconds) + ROTATION
    rotating = any(key.since is None or now - key.since < bound for key in provisioner.status.retiring_keys)
    return Limit.ROTATION if rotating or is_rolling(pods) else Limit.NONE
