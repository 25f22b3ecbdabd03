"""When the controllers of a test have nothing left to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coder_k8s.controllers.runtime import Runtime
from tests.support import eventually


async def idle(runtime: Runtime) -> None:
    """Wait until no key waits for a worker, no worker has one, and every event is written."""
    await eventually(lambda: runtime.recorder.idle and not busy(runtime))


def busy(runtime: Runtime, controller: str = "") -> bool:
    """Whether a key waits for a worker, or a worker has one; of one controller, or of any."""
    gauges = (runtime.metrics.active_workers, runtime.metrics.queue_depth)
    return any(
        sample.value
        for gauge in gauges
        for metric in gauge.collect()
        for sample in metric.samples
        if controller in ("", sample.labels["controller"])
    )


@asynccontextmanager
async def one_more_pass(runtime: Runtime) -> AsyncIterator[None]:
    """Wait until the operator has taken notice of what happens in this block, and rests again."""
    await idle(runtime)
    before = passes(runtime)
    yield
    await eventually(lambda: passes(runtime) > before)
    await idle(runtime)


def passes(runtime: Runtime, controller: str = "") -> float:
    """How many there were; of one controller, or of all."""
    [metric] = runtime.metrics.reconciles.collect()
    return sum(
        sample.value
        for sample in metric.samples
        if sample.name.endswith("_total") and controller in ("", sample.labels["controller"])
    )
