"""Workers that reconcile the keys of a work queue."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from coder_k8s.kube import errors, log_context
from coder_k8s.kube.cache import Cache, Change
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Object
from coder_k8s.kube.queue import WorkQueue

T = TypeVar("T", bound=Object)

log = logging.getLogger(__name__)

MIN_THROTTLED_DELAY = 0.5
"""Minimum delay in seconds after `Throttled`, also with `Retry-After: 0`."""

Reconcile = Callable[[Key], Awaitable[float | None]]


class Controller:
    """Calls `reconcile` for the key of every changed object.

    | reconcile           | next reconcile without a change        | failures counted |
    |---------------------|----------------------------------------|------------------|
    | returns None        | never                                  | reset            |
    | returns seconds     | after that time                        | reset            |
    | raises `Throttled`  | after `Retry-After`, 0.5 s or more     | unchanged        |
    | raises another      | after a back-off that doubles          | one more         |

    Reconciles of low priority (see `watch`) occupy at most half of the workers, so a user's change need not wait for
    them.
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
        if queue is None:  # an empty queue is false
            queue = WorkQueue(low_priority_limit=(workers + 1) // 2)
        self.queue = queue
        self.reconcile = reconcile
        self._workers = workers
        self._timeout = timeout
        self._idle: set[asyncio.Task[None]] = set()
        self._bind_metrics(metrics)

    def watch(self, cache: Cache[T], keys: Callable[[T], Iterable[Key]] | None = None) -> None:
        """Reconcile the changed objects of a cache, or the keys that `keys` maps them to.

        A watch event of the reconciled kind has high priority, because it is usually a change by a user.
        """

        def listener(change: Change[T]) -> None:
            if change.writer == self.name:
                return
            if keys is None:
                self._add(change.key, high_priority=not change.from_list)
                return
            for state in (change.old, change.new):
                for key in keys(state) if state is not None else ():
                    self._add(key, high_priority=False)

        cache.listen(listener)

    async def run(self, stopping: asyncio.Event) -> None:
        """Reconcile until `stopping` is set, then finish in-flight reconciles."""
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
            self._queue_seconds.observe(self.queue.last_wait)
            self._active.inc()
            try:
                with log_context.reconciling(self.name, key):
                    await self._process(key)
            finally:
                self._active.dec()
            await asyncio.sleep(0)  # a reconcile without I/O must not block watches, probes and the Lease

    async def _process(self, key: Key) -> None:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                requeue_after = await self.reconcile(key)
        except errors.Throttled as error:
            self._outcome("requeue_after")
            self.queue.add_after(key, max(error.after, MIN_THROTTLED_DELAY))
            log.info("%s", error)
        except Exception as error:
            self._errors.inc()
            self._retries.inc()
            self._outcome("error")
            self._log_error(error, self.queue.retry(key))
        else:
            self.queue.forget(key)
            if requeue_after is not None:
                self.queue.add_after(key, requeue_after)
            self._outcome("success" if requeue_after is None else "requeue_after")
        finally:
            self.queue.done(key)
            duration = time.perf_counter() - started
            self._reconcile_seconds.observe(duration)
            self._work_seconds.observe(duration)

    def _add(self, key: Key, *, high_priority: bool) -> None:
        self._adds.inc()
        self.queue.add(key, high_priority=high_priority)

    def _log_error(self, error: Exception, delay: float) -> None:
        """Log an expected error as one line, and an unexpected one with its traceback."""
        fields = {"retry_in": f"{delay:.2f}s"}
        if isinstance(error, errors.Conflict | errors.NotLeading):
            log.debug("%s", error, extra=fields)
        elif isinstance(error, errors.KubeError):
            log.warning("%s", error, extra=fields)
        elif isinstance(error, TimeoutError):
            log.warning("reconcile took longer than %.0f s", self._timeout, extra=fields)
        else:
            log.error("reconcile failed", exc_info=error, extra=fields)

    def _outcome(self, result: str) -> None:
        self._results[result].inc()

    def _bind_metrics(self, metrics: Metrics) -> None:
        """Create the series of all metrics, so that they exist before the first reconcile."""
        queue = (self.name, self.name)
        self._results = {
            result: metrics.reconciles.labels(self.name, result) for result in ("success", "requeue_after", "error")
        }
        self._errors = metrics.reconcile_errors.labels(self.name)
        self._reconcile_seconds = metrics.reconcile_seconds.labels(self.name)
        self._active = metrics.active_workers.labels(self.name)
        self._adds = metrics.queue_adds.labels(*queue)
        self._retries = metrics.queue_retries.labels(*queue)
        self._queue_seconds = metrics.queue_seconds.labels(*queue)
        self._work_seconds = metrics.work_seconds.labels(*queue)
        metrics.terminal_errors.labels(self.name)
        metrics.max_workers.labels(self.name).set(self._workers)
        metrics.queue_depth.labels(*queue).set_function(lambda: len(self.queue))
