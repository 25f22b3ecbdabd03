"""Logs and metrics of a controller."""

import asyncio
import logging

import pytest

from coder_k8s.kube import errors
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Object
from tests.support.clock import FakeClock
from tests.support.log_lines import log_lines
from tests.support.metrics import sample_value
from tests.support.reconciles import A, ObservedQueue, ScriptedReconcile, controller, obj, running, throttled

DEMO = {"controller": "demo", "namespace": "ns", "object": "a"}
RETRY = {"retry_in": "0.00s"}


@pytest.mark.parametrize(
    ("error", "level", "message", "about", "traceback"),
    [
        (throttled(0), "info", "slow down", DEMO, False),
        (errors.Conflict(409, "Conflict", "changed"), "debug", "changed", DEMO | RETRY, False),
        (errors.NotLeading("not the leader"), "debug", "not the leader", DEMO | RETRY, False),
        (errors.Unreachable("no route"), "warning", "no route", DEMO | RETRY, False),
        (errors.Forbidden(403, "Forbidden", "no"), "warning", "no", DEMO | RETRY, False),
        (TimeoutError(), "warning", "reconcile took longer than 300 s", DEMO | RETRY, False),
        (KeyError("defect"), "error", "reconcile failed", DEMO | RETRY, True),
    ],
)
async def test_logs(error: Exception, level: str, message: str, about: dict[str, str], traceback: bool) -> None:
    """Expected errors are one line; only unexpected ones have a traceback."""
    queue = ObservedQueue(FakeClock(), Backoff(0.001, 0.001))
    demo = Controller("demo", ScriptedReconcile(error), metrics=Metrics(), workers=1, queue=queue)
    queue.add(A)
    with log_lines(logging.DEBUG) as lines:
        async with running(demo):
            await asyncio.wait_for(queue.finished.get(), 5)
    (line,) = lines
    assert (line["logger"], line["level"], line["msg"]) == ("coder_k8s.kube.controller", level, message)
    assert {name: line.get(name) for name in (*DEMO, *RETRY)} == dict.fromkeys(RETRY) | about
    assert line["duration"].endswith("s")
    assert ("stack" in line) == traceback


async def test_metrics() -> None:
    metrics, working, leave = Metrics(), asyncio.Event(), asyncio.Event()

    async def work(key: Key) -> None:
        working.set()
        await leave.wait()

    def named(metric: str) -> float | None:
        return sample_value(metrics.registry, metric, controller="demo")

    def of_queue(metric: str) -> float | None:
        return sample_value(metrics.registry, metric, controller="demo", name="demo")

    demo, cache = controller(work, metrics), Cache[Object]()
    demo.watch(cache)
    cache.update("", obj("a", 1))
    assert (of_queue("workqueue_depth"), of_queue("workqueue_adds_total")) == (1, 1)
    assert of_queue("workqueue_retries_total") == 0
    for metric in ("reconcile_errors_total", "terminal_reconcile_errors_total", "active_workers"):
        assert named(f"controller_runtime_{metric}") == 0
    assert named("controller_runtime_max_concurrent_reconciles") == 2
    for result in ("success", "requeue_after", "error"):
        assert (
            sample_value(metrics.registry, "controller_runtime_reconcile_total", controller="demo", result=result) == 0
        )
    async with running(demo):
        await working.wait()
        assert (named("controller_runtime_active_workers"), of_queue("workqueue_depth")) == (1, 0)
        leave.set()
    assert named("controller_runtime_active_workers") == 0
    assert named("controller_runtime_reconcile_time_seconds_count") == 1
    assert 0 <= (named("controller_runtime_reconcile_time_seconds_sum") or 0) < 5
    for metric in ("work", "queue"):
        assert of_queue(f"workqueue_{metric}_duration_seconds_count") == 1
        assert 0 <= (of_queue(f"workqueue_{metric}_duration_seconds_sum") or 0) < 5
