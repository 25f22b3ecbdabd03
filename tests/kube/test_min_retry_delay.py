"""A server that throttles and says `Retry-After: 0` is not asked again at once."""

import asyncio
import time
from itertools import pairwise

import pytest

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.controller import THROTTLED_WAIT, Controller
from coder_k8s.kube.http import MIN_RETRY_DELAY, TRIES, Http
from coder_k8s.kube.kinds import CONFIG_MAP
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key
from tests.support.api import Api, plain_config, refuse

KEY = Key("default", "a")


async def test_a_request_is_sent_again_ever_more_slowly() -> None:
    async with Api(refuse(429, header="0")) as api, Http(plain_config(api.port), "test", Metrics()) as http:
        with pytest.raises(errors.Throttled):
            await Client(http, "test").get(CONFIG_MAP, KEY)
    moments = [seen.at for seen in api.requests]
    waits = [later - earlier for earlier, later in pairwise(moments)]
    assert len(waits) == TRIES - 1
    assert all(wait >= MIN_RETRY_DELAY * tries for tries, wait in enumerate(waits, 1))


async def test_a_reconcile_is_made_again_after_the_least_wait() -> None:
    begun: asyncio.Queue[float] = asyncio.Queue()

    async def reconcile(_: Key) -> None:
        begun.put_nowait(time.monotonic())
        raise errors.Throttled(429, "TooManyRequests", "slow down", 0.0)

    stopping, controller = asyncio.Event(), Controller("demo", reconcile, metrics=Metrics(), workers=1)
    controller.queue.add(KEY)
    task = asyncio.create_task(controller.run(stopping))
    async with asyncio.timeout(30):
        first, second = await begun.get(), await begun.get()
    stopping.set()
    await task
    assert second - first >= THROTTLED_WAIT
