"""A cluster without time: a control plane, its Deployment and pods, and the schema of its database."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import partial

from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.controllers.controlplane.updates.machine import next_update
from coder_k8s.controllers.controlplane.updates.observations import Backup, Schema, Seen, Verdict, Verification
from coder_k8s.controllers.controlplane.updates.outcomes import PodPlan, Words, judge, pod_plan

SCHEMAS = {"coder:v1": 1, "coder:v2": 1, "coder:v3": 2, "coder:v4": 3, "coder:broken": 4}
"""The schema of each image; the last one crashes before it migrates."""
BROKEN = "coder:broken"
CRASHES = 3


class State(Enum):
    STARTING = auto()
    SERVING = auto()
    CRASHED = auto()
    STOPPING = auto()


@dataclass
class Pod:
    image: str
    state: State = State.STARTING
    crashes: int = 0


@dataclass
class World:
    """The operator takes one action at a time, and everything else happens in between."""

    image: str = "coder:v1"
    replicas: int = 2
    database: int = 0
    sql: bool = True
    """Whether the operator reads the database itself."""
    paused: bool = False
    invalid: bool = False
    """Whether the API server rejects a Deployment of the spec."""
    edits: int = 0
    update: UpdateStatus | None = None
    running: str = ""
    """`status.image`."""
    live_image: str = ""
    live_replicas: int = 0
    recreate: bool = False
    pods: list[Pod] = field(default_factory=list)
    job: str = ""
    """Image of the preflight Job; empty if there is none."""
    verdict: Verdict | None = None
    now: datetime = datetime(2026, 3, 1, tzinfo=UTC)
    window_open: bool = True
    steps: list[tuple[str, str]] = field(default_factory=list, repr=False)

    # The operator.

    def reconcile(self, *, crash: bool = False) -> bool:
        """Store the next step, or act; with `crash`, do not act after a step was stored. Whether anything changed."""
        if self.paused:
            return False
        before = self.update
        self.update = next_update(before, self.seen())
        if self.update is not None:
            judge(self.update, self.seen(), Words())
        if self.update != before:
            self._record(before)
            return True
        return not crash and self._act()

    def _record(self, before: UpdateStatus | None) -> None:
        step = self.update.step if self.update else ""
        self.steps.append((before.step if before else "", step))
        if self.update is not None and step == Step.SCALE_BACK:
            self.running = self.update.image

    def _act(self) -> bool:
        before = (self.live_image, self.live_replicas, self.recreate, self.job, self.running)
        preflight = self.update is not None and self.update.step == Step.PREFLIGHT
        if self.job and (not preflight or self.job != self.image):
            self.job, self.verdict = "", None
        if preflight and not self.job:
            self.job = self.image
        plan = pod_plan(self.update, self.replicas)
        if plan is not None and not plan.image:
            self._hold(plan)
        else:
            self._apply(plan or PodPlan(self.image), is_update=plan is not None)
        pending = self.update is not None and self.update.step in (Step.STOP, Step.MIGRATE, Step.VERIFY, Step.ROLLBACK)
        if self.rolled_out() and self.live_replicas and not pending:
            self.running = self.live_image
        return before != (self.live_image, self.live_replicas, self.recreate, self.job, self.running)

    def _apply(self, plan: PodPlan, *, is_update: bool) -> None:
        """Apply the spec with the image of a plan. If it is rejected, an update keeps the last accepted template."""
        replicas = self.replicas if plan.replicas is None else plan.replicas
        if not self.invalid:
            self.live_image, self.live_replicas, self.recreate = plan.image, replicas, plan.recreate
            return
        rolled_back = self.update is not None and self.update.step == Step.ROLLED_BACK
        if self.live_image and is_update and (rolled_back or plan.image == self.live_image):
            self.live_image, self.live_replicas = plan.image, replicas

    def edit(self, *, invalid: bool) -> None:
        """Change the spec, but not its image."""
        self.invalid, self.edits = invalid, self.edits + 1

    def _hold(self, plan: PodPlan) -> None:
        self.recreate = self.recreate or plan.recreate
        if plan.replicas is not None:
            self.live_replicas = plan.replicas
        elif self.running in ("", self.live_image):
            self.live_replicas = self.replicas

    def seen(self) -> Seen:
        new = [pod for pod in self.pods if pod.state != State.STOPPING]
        ready = self.rolled_out() and self.live_replicas == 1 and self.live_image == (self.update or self).image
        return Seen(
            now=self.now,
            image=self.image,
            replicas=self.replicas,
            inputs=str(self.edits),
            running=self.running,
            live_image=self.live_image,
            live_replicas=self.live_replicas,
            has_pods=bool(self.pods),
            verdict=self.verdict if self.job == self.image else None,  # each image has a Job of its own
            invalid="a field is invalid" if self.invalid else "",
            window_open=self.window_open,
            backup=Backup("none"),
            stopped=not self.pods and self.live_replicas == 0,
            ready=ready,
            crashing="it exits" if any(pod.crashes >= CRASHES for pod in new) else "",
            schema=self.database if self.sql else 0,
            verification=Verification(self.live_image),
            complete=self.rolled_out()
            and self.live_replicas == self.replicas
            and self.live_image == (self.update or self).image,
            fleet=True,
        )

    # Kubernetes and Coder.

    def rolled_out(self) -> bool:
        serving = [pod for pod in self.pods if pod.state == State.SERVING and pod.image == self.live_image]
        return len(serving) == len(self.pods) == self.live_replicas

    def control_deployment(self) -> bool:
        """Create or delete one pod, like the Deployment controller; a rolling update creates the new pod first."""
        if not self.live_image:
            return False
        old = [pod for pod in self.pods if pod.image != self.live_image]
        current = [pod for pod in self.pods if pod.image == self.live_image and pod.state != State.STOPPING]
        old_alive = [pod for pod in old if pod.state != State.STOPPING]
        if len(current) > self.live_replicas:
            self._stop(current[0])
            return True
        ready = [pod for pod in current if pod.state == State.SERVING]
        if old_alive and (self.recreate or len(ready) + len(old_alive) > self.live_replicas or not self.live_replicas):
            self._stop(old_alive[0])
            return True
        blocked = self.recreate and old
        if len(current) < self.live_replicas and not blocked and len(current) + len(old_alive) <= self.live_replicas:
            self.pods.append(Pod(self.live_image))
            return True
        return False

    def _stop(self, pod: Pod) -> None:
        if pod.state == State.SERVING:
            pod.state = State.STOPPING
        else:
            self.pods.remove(pod)

    def start_pod(self, number: int) -> bool:
        """Let a pod start: it migrates the database, serves or crashes."""
        waiting = [pod for pod in self.pods if pod.state in (State.STARTING, State.CRASHED)]
        if not waiting:
            return False
        pod = waiting[number % len(waiting)]
        schema = SCHEMAS[pod.image]
        if pod.image == BROKEN or schema < self.database:
            pod.state, pod.crashes = State.CRASHED, pod.crashes + 1
            return pod.crashes <= CRASHES
        self.database = schema
        pod.state = State.SERVING
        return True

    def end_pod(self, number: int) -> bool:
        """Let a pod that stops disappear."""
        stopping = [pod for pod in self.pods if pod.state == State.STOPPING]
        if stopping:
            self.pods.remove(stopping[number % len(stopping)])
        return bool(stopping)

    def run_job(self) -> bool:
        if not self.job or self.verdict is not None:
            return False
        schema = SCHEMAS[self.job]
        compared = Schema.SAME if schema == self.database else Schema.OLDER
        self.verdict = Verdict(self.job, Schema.NEWER if schema < self.database else compared)
        return True

    def wait(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)

    def settle(self) -> None:
        """Let everything happen until nothing changes."""
        for _ in range(500):
            changed = [move() for move in self.moves()]
            if not any(changed):
                return
        raise AssertionError(f"it never ends: {self}")

    def moves(self) -> list[Callable[[], bool]]:
        """Everything that can happen by itself; each returns whether anything changed."""
        starts, ends = partial(self.start_pod, 0), partial(self.end_pod, 0)
        return [self.reconcile, self.control_deployment, self.run_job, starts, ends]

    def served(self) -> Iterator[Pod]:
        return (pod for pod in self.pods if pod.state in (State.SERVING, State.STOPPING))
