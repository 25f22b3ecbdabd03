"""Workers that reconcile keys: one place, four outcomes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache, Change
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Object
from coder_k8s.kube.queue import WorkQueue

T = TypeVar("T", bound=Object)

log = logging.getLogger(__name__)

MIN_THROTTLED_DELAY = 0.5
"""The least wait for a server that is throttling, also if it says 0."""

Reconcile = Callable[[Key], Awaitable[float | None]]


class Controller:
    """Calls `reconcile` for every key that something happened to.

    | reconcile           | next reconcile without a change        | failures counted |
    |---------------------|----------------------------------------|------------------|
    | returns None        | never                                  | reset            |
    | returns seconds     | after that time                        | reset            |
    | raises `Throttled`  | after `Retry-After`, 0.5 s or more     | unchanged        |
    | raises another      | after a delay that doubles each time   | one more         |
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        metrics: Metrics,
        queue: WorkQueue[Key] | None = None,
        workers: int,
        timeout: float = 300.0,
    ) -> None:
        self.name = name
        self.queue = WorkQueue() if queue is None else queue  # an empty queue is false
        self.reconcile = reconcile
        self._workers = workers
        self._timeout = timeout
        self._idle: set[asyncio.Task[None]] = set()
        self._measure(metrics)

    def watch(self, cache: Cache[T], keys: Callable[[T], Iterable[Key]] | None = None) -> None:
        """Reconcile what a change concerns: the object itself, or the keys that it leads to.

        Changes of the reconciled kind itself are what a user did just now and go first; everything else follows.
        """

        def listener(change: Change[T]) -> None:
            if change.writer == self.name:
                return
            if keys is None:
                self._add(change.key, fast=not change.from_list)
                return
            for state in (change.old, change.new):
                for key in keys(state) if state is not None else ():
                    self._add(key, fast=False)

        cache.listen(listener)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until told to stop; then finish what is under way."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(stopping), name=f"{self.name} worker {number}")
            await stopping.wait()
            for worker in self._idle:
                worker.cancel()

    async def _work(self, stopping: asyncio.Event) -> None:
        worker = asyncio.current_task()
        assert worker is not None  # noqa: S101 - a coroutine always runs in a task
        while not stopping.is_set():
            self._idle.add(worker)
            key = await self.queue.get()
            self._idle.discard(worker)
            self._waited.observe(self.queue.waited)
            with self._active.track_inprogress():
                await self._pass(key)
            await asyncio.sleep(0)  # a pass that had nothing to wait for gave no turn to watches, probes and the Lease

    async def _pass(self, key: Key) -> None:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                again = await self.reconcile(key)
        except errors.Throttled as refusal:
            self._outcome("requeue_after")
            self.queue.add_after(key, max(refusal.after, MIN_THROTTLED_DELAY))
            log.info("%s", refusal, extra=self._about(key))
        except Exception as trouble:
            self._errors.inc()
            self._retries.inc()
            self._outcome("error")
            self._explain(key, trouble, self.queue.retry(key))
        else:
            self.queue.forget(key)
            if again is not None:
                self.queue.add_after(key, again)
            self._outcome("success" if again is None else "requeue_after")
        finally:
            self.queue.done(key)
            spent = time.perf_counter() - started
            self._seconds.observe(spent)
            self._worked.observe(spent)

    def _add(self, key: Key, *, fast: bool) -> None:
        self._adds.inc()
        self.queue.add(key, fast=fast)

    def _about(self, key: Key) -> dict[str, str]:
        return {"controller": self.name, "namespace": key.namespace, "object": key.name}

    def _explain(self, key: Key, trouble: Exception, delay: float) -> None:
        """What is known to happen is told in a line; only a defect of ours deserves a traceback."""
        about = self._about(key) | {"retry_in": f"{delay:.2f}s"}
        if isinstance(trouble, errors.Conflict | errors.NotLeading):
            log.debug("%s", trouble, extra=about)
        elif isinstance(trouble, errors.KubeError):
            log.warning("%s", trouble, extra=about)
        elif isinstance(trouble, TimeoutError):
            log.warning("reconcile took longer than %.0f s", self._timeout, extra=about)
        else:
            log.error("reconcile failed", exc_info=trouble, extra=about)

    def _outcome(self, result: str) -> None:
        self._results[result].inc()

    def _measure(self, metrics: Metrics) -> None:
        """Bind the metrics once, so that every series exists from the start."""
        queue = {"name": self.name, "controller": self.name}
        self._results = {
            result: metrics.reconciles.labels(self.name, result) for result in ("success", "requeue_after", "error")
        }
        self._errors = metrics.reconcile_errors.labels(self.name)
        self._seconds = metrics.reconcile_seconds.labels(self.name)
        self._active = metrics.active_workers.labels(self.name)
        self._adds = metrics.queue_adds.labels(**queue)
        self._retries = metrics.queue_retries.labels(**queue)
        self._waited = metrics.queue_seconds.labels(**queue)
        self._worked = metrics.work_seconds.labels(**queue)
        metrics.terminal_errors.labels(self.name)
        metrics.max_workers.labels(self.name).set(self._workers)
        metrics.queue_depth.labels(**queue).set_function(lambda: len(self.queue))
