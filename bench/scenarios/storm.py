"""Storm: all Secrets change, all Deployments report continuously, and a user changes control planes."""

import asyncio
import base64
import time
from collections.abc import Sequence
from random import Random

import msgspec

from bench import samples
from bench.cluster import ALONE, MANY, BenchCluster, bench_cluster, each, leads, planes, steady_state
from bench.report import Section, Verdict, table
from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube.cache import Change
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key, Manifest, Unstructured
from tests.e2e.operator_process import OperatorProcess

SECONDS = 30.0
RATE = 20.0
"""Target of status changes per second of each Deployment; the API server may accept fewer."""
WRITERS = 8
PAUSE = 0.1
VARIABLE = "CODER_STORM"
"""What the user changes. Another image would be an update, which waits for its preflight."""
LIMIT = 1000.0


class Figures(msgspec.Struct, kw_only=True):
    number: int
    seconds: float
    reports: int
    """Status changes of Deployments."""
    secrets: int
    reconciles: int
    deepest: int
    """The maximum number of keys in the queue."""
    user: list[float]
    """Milliseconds from a user's change of a control plane until its Deployment has it."""
    round_trips: list[float]
    """Milliseconds of the write alone."""

    @property
    def deduplication(self) -> float:
        """Reconciles per change."""
        return self.reconciles / (self.reports + self.secrets + len(self.user))


async def run(number: int, seconds: float = SECONDS, seed: int = 1) -> Figures:
    async with bench_cluster() as here:
        await here.make(SECRET, [_secret(count, "before") for count in range(number)])
        with here.operator() as operator:
            await leads(operator)
            wanted = [
                {**plane, "spec": {**ALONE, "envFrom": [{"secretRef": {"name": f"settings-{count}"}}]}}
                for count, plane in enumerate(planes(number))
            ]
            await here.converge(wanted)
            await steady_state(operator, number)
            async with here.informer(DEPLOYMENT, MANAGED) as deployments:
                storm = Storm(here, operator, deployments, number, Random(seed))  # noqa: S311 - no secret
                return await storm.run(seconds)


class Storm:
    """Runs all changes concurrently."""

    def __init__(
        self,
        here: BenchCluster,
        operator: OperatorProcess,
        deployments: Informer[Unstructured],
        number: int,
        rng: Random,
    ) -> None:
        self._here = here
        self._operator = operator
        self._deployments = deployments
        self._number = number
        self._rng = rng
        self._served: dict[str, asyncio.Event] = {}
        self._found = Figures(
            number=number, seconds=0, reports=0, secrets=number, reconciles=0, deepest=0, user=[], round_trips=[]
        )
        deployments.listen(self._on_change)

    async def run(self, seconds: float) -> Figures:
        reconciles = await self._reconciles()
        began = time.monotonic()
        tasks = [asyncio.create_task(self._report()) for _ in range(WRITERS)]
        tasks += [asyncio.create_task(self._measure_depth()), asyncio.create_task(self._use())]
        await each(range(self._number), self._change_secret)
        await asyncio.wait(tasks, timeout=began + seconds - time.monotonic())
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.wait(tasks)
        self._found.seconds = time.monotonic() - began
        self._found.reconciles = await self._reconciles() - reconciles
        return self._found

    async def _change_secret(self, count: int) -> None:
        content = _secret(count, "after")
        await self._here.admin.merge(SECRET, Key(MANY, f"settings-{count}"), {"data": content["data"]})

    async def _report(self) -> None:
        """Report status changes at the target rate, or as fast as the API server allows."""
        pause = WRITERS / (RATE * self._number)
        while True:
            began = time.monotonic()
            key = Key(MANY, f"plane-{self._rng.randrange(self._number)}")
            counts = dict.fromkeys(("replicas", "readyReplicas"), self._rng.randrange(4))
            await self._here.admin.merge(DEPLOYMENT, key, {"status": counts}, "status")
            self._found.reports += 1
            await asyncio.sleep(max(0.0, pause - (time.monotonic() - began)))

    async def _measure_depth(self) -> None:
        while True:
            depth = await self._operator.metric("workqueue_depth", controller="codercontrolplane")
            self._found.deepest = max(self._found.deepest, int(depth))
            await asyncio.sleep(0.5)

    async def _use(self) -> None:
        """Change one control plane after the other as a user, and measure the latency."""
        while True:
            await asyncio.sleep(PAUSE)
            key, value = Key(MANY, f"plane-{self._rng.randrange(self._number)}"), str(self._rng.randrange(10**9))
            self._served[value] = served = asyncio.Event()
            began = time.monotonic()
            variable = {"name": VARIABLE, "value": value}
            await self._here.admin.merge(CONTROL_PLANE, key, {"spec": {"extraEnv": [variable]}})
            written = time.monotonic()
            await served.wait()
            self._found.round_trips.append((written - began) * 1000)
            self._found.user.append((time.monotonic() - began) * 1000)

    def _on_change(self, change: Change[Unstructured]) -> None:
        if change.new is not None:
            [container] = change.new.manifest["spec"]["template"]["spec"]["containers"]
            for entry in container["env"]:
                if entry["name"] == VARIABLE and (served := self._served.pop(entry["value"], None)) is not None:
                    served.set()

    async def _reconciles(self) -> int:
        return int(await self._operator.metric("controller_runtime_reconcile_total", controller="codercontrolplane"))


def _secret(count: int, text: str) -> Manifest:
    value = base64.b64encode(text.encode()).decode()
    return {"metadata": {"namespace": MANY, "name": f"settings-{count}"}, "data": {"CODER_WORD": value}}


def section(runs: Sequence[Figures]) -> Section:
    header = [
        "control planes",
        "status changes per s",
        "reconciles per change",
        "maximum queue depth",
        "user p50, ms",
        "p99, ms",
        "changes",
    ]
    rows = [
        (
            run.number,
            f"{run.reports / run.seconds:.0f}",
            f"{run.deduplication:.2f}",
            run.deepest,
            f"{samples.percentile(run.user, 50):.0f}",
            f"{samples.percentile(run.user, 99):.0f}",
            len(run.user),
        )
        for run in runs
    ]
    text = (
        "Changes all Secrets that control planes reference at once. Then Deployments report status changes as fast as "
        f"the API server accepts them (target: {RATE:g} per second and Deployment). Meanwhile, a user changes one "
        "control plane after the other, and waits until its Deployment has the change.\n\n"
    )
    slowest = max(runs, key=lambda run: samples.percentile(run.user, 99))
    p99 = samples.percentile(slowest.user, 99)
    busiest = max(runs, key=lambda run: run.deduplication)
    deepest = max(runs, key=lambda run: run.deepest / run.number)
    verdicts = [
        Verdict(
            name="latency of a user's change in a storm, p99",
            target=f"< {LIMIT / 1000:g} s",
            found=f"{p99 / 1000:.2f} s (N = {slowest.number})",
            met=p99 < LIMIT,
            limit="the API server is slow for all clients: the user's own write takes "
            f"{samples.percentile(slowest.round_trips, 99):.0f} ms at p99, and the operator needs three or four more.",
        ),
        Verdict(
            name="reconciles per change in a storm",
            target="< 1",
            found=f"{busiest.deduplication:.2f} (N = {busiest.number})",
            met=busiest.deduplication < 1,
            limit="reconciles are as fast as changes, so changes are not merged in the queue.",
        ),
        Verdict(
            name="queue depth in a storm",
            target="≤ control planes",
            found=f"{deepest.deepest} (N = {deepest.number})",
            met=deepest.deepest <= deepest.number,
            limit="a key was in the queue twice.",
        ),
    ]
    return Section(title="Storm", text=text + table(header, rows), verdicts=verdicts)
