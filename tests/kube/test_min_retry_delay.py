"""Retries have a minimum delay, also with `Retry-After: 0`."""

import asyncio
from itertools import pairwise

import pytest

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.controller import MIN_THROTTLED_DELAY, Controller
from coder_k8s.kube.http import MAX_ATTEMPTS, MIN_RETRY_DELAY, Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key
from tests.support.api import Api, loop_ms, plain_config, refuse

KEY = Key("default", "a")


async def test_the_delay_between_attempts_grows() -> None:
    async with Api(refuse(429, header="0")) as api, Http(plain_config(api.port), "test", Metrics()) as http:
        with pytest.raises(errors.Throttled):
            await Client(http, "test").get(CONFIG_MAP, KEY)
    times = [seen.at_ms for seen in api.requests]
    delays = [later - earlier for earlier, later in pairwise(times)]
    assert len(delays) == MAX_ATTEMPTS - 1
    assert all(delay >= MIN_RETRY_DELAY * 1000 * attempt for attempt, delay in enumerate(delays, 1))


async def test_a_throttled_reconcile_is_requeued_after_the_minimum_delay() -> None:
    started: asyncio.Queue[int] = asyncio.Queue()

    async def reconcile(_: Key) -> None:
        started.put_nowait(loop_ms())
        raise errors.Throttled(429, "TooManyRequests", "slow down", 0.0)

    stopping, controller = asyncio.Event(), Controller("demo", reconcile, metrics=Metrics(), workers=1)
    controller.queue.add(KEY)
    task = asyncio.create_task(controller.run(stopping))
    async with asyncio.timeout(30):
        first, second = await started.get(), await started.get()
    stopping.set()
    await task
    assert second - first >= MIN_THROTTLED_DELAY * 1000
