"""A controller with scripted reconciles."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from coder_k8s.kube import errors
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Object, ObjectMeta, OwnerReference
from coder_k8s.kube.queue import WorkQueue
from tests.support.clock import FakeClock
from tests.support.metrics import sample_value

A, B = Key("ns", "a"), Key("ns", "b")


class ScriptedReconcile:
    """A reconcile function with scripted outcomes that records each key."""

    def __init__(self, *outcomes: float | Exception | None) -> None:
        self._outcomes = list(outcomes)
        self._seen: asyncio.Queue[Key] = asyncio.Queue()

    async def __call__(self, key: Key) -> float | None:
        outcome = self._outcomes.pop(0) if self._outcomes else None
        self._seen.put_nowait(key)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def next(self) -> Key:
        return await asyncio.wait_for(self._seen.get(), 5)

    @property
    def idle(self) -> bool:
        return self._seen.empty()


class ObservedQueue(WorkQueue[Key]):
    """A queue that records when a worker is done with a key."""

    def __init__(self, clock: FakeClock, backoff: Backoff) -> None:
        super().__init__(clock, backoff)
        self.finished: asyncio.Queue[Key] = asyncio.Queue()

    def done(self, key: Key) -> None:
        super().done(key)
        self.finished.put_nowait(key)


def controller(
    reconcile: Callable[[Key], Awaitable[float | None]], metrics: Metrics | None = None, **options: float
) -> Controller:
    queue = WorkQueue[Key](backoff=Backoff(0.001, 0.01))
    return Controller("demo", reconcile, metrics=metrics or Metrics(), queue=queue, workers=2, **options)


@asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[asyncio.Event]:
    stopping = asyncio.Event()
    task = asyncio.create_task(controller.run(stopping))
    try:
        yield stopping
    finally:
        stopping.set()
        await asyncio.wait_for(task, 5)


def obj(name: str, version: int, owner: str = "") -> Object:
    owners = [OwnerReference(api_version="v1", kind="X", name=owner, uid=owner, controller=True)] if owner else []
    return Object(
        metadata=ObjectMeta(name=name, namespace="ns", resource_version=str(version), owner_references=owners)
    )


def value(metrics: Metrics, metric: str, **labels: str) -> float:
    return sample_value(metrics.registry, metric, controller="demo", **labels) or 0.0


def throttled(after: float) -> Exception:
    return errors.Throttled(429, "", "slow down", after)
