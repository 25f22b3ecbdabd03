"""When the controllers of a test have nothing left to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coder_k8s.controllers.runtime import Runtime
from tests.support import eventually


async def idle(runtime: Runtime) -> None:
    """Wait until no key waits for a worker, no worker has one, and every event is written."""

    def rests() -> bool:
        gauges = (runtime.metrics.active_workers, runtime.metrics.queue_depth)
        return runtime.recorder.resting and not any(
            sample.value for gauge in gauges for metric in gauge.collect() for sample in metric.samples
        )

    await eventually(rests)


@asynccontextmanager
async def one_more_pass(runtime: Runtime) -> AsyncIterator[None]:
    """Wait until the operator has taken notice of what happens in this block, and rests again."""
    await idle(runtime)
    before = passes(runtime)
    yield
    await eventually(lambda: passes(runtime) > before)
    await idle(runtime)


def passes(runtime: Runtime) -> float:
    """How many there were."""
    [metric] = runtime.metrics.reconciles.collect()
    return sum(sample.value for sample in metric.samples if sample.name.endswith("_total"))
