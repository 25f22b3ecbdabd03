"""Whatever request an operator dies at, the next one finishes the work: no proxy is lost, none is left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.workspaceproxy import setup
from coder_k8s.kube.client import Client
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.metrics import Metrics
from tests.support import eventually
from tests.support.crashes import Fate, MortalConnections, MortalHttp

from .world import NAME, World

MOST = 14
"""More requests than a registration takes."""


@asynccontextmanager
async def mortal(place: World, fate: Fate) -> AsyncIterator[Controller]:
    """An operator that ends without a word when it has met its fate."""
    metrics = Metrics()
    async with (
        MortalHttp(place.kubeconfig, metrics, fate) as http,
        MortalConnections(place.routes, fate) as coderd,
        asyncio.TaskGroup() as group,
    ):
        client = Client(http, "coder-k8s")
        runtime = Runtime(
            client=client,
            coderd=coderd,
            recorder=Recorder(client, "coder-k8s", "test", metrics),
            metrics=metrics,
            namespaces=[place.namespace],
            now=place.clock,
        )
        controller = setup.build(runtime)
        tasks: list[asyncio.Task[None]] = [group.create_task(each.run()) for each in runtime.informers.values()]
        for informer in runtime.informers.values():
            await informer.synced.wait()
        tasks.append(group.create_task(controller.run(asyncio.Event())))
        try:
            yield controller
        finally:
            fate.dead.set()
            for task in tasks:
                task.cancel()


async def live(place: World, at: int, before: bool, done: Callable[[], object]) -> list[str]:
    """Let an operator work until it dies or has nothing left to do; the requests that it made."""
    fate = Fate()
    fate.decide(at, before=before)
    async with mortal(place, fate) as controller:
        queue = controller.queue
        await eventually(lambda: fate.dead.is_set() or (done() and not len(queue) and not queue._busy))
    return fate.seen


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_crash_anywhere_in_a_registration(place: World, before: bool) -> None:
    """The request is not sent, or its answer is never read. At most one token is made anew."""
    for at in range(1, MOST):
        changes = place.changes()
        await place.make(NAME)
        seen = await live(place, at, before, lambda: place.proxies)
        async with place.operator() as operator:
            proxy = await place.ready(operator)
            [made] = place.proxies.values()
            assert await place.token() == made.token
            assert (proxy.status.proxy_id, proxy.status.retiring_proxies) == (made.id, [])
            assert place.changes() - changes <= 1
            await place.delete(WORKSPACE_PROXY, NAME)
            await place.gone(WORKSPACE_PROXY, NAME)
        assert place.proxies == {}
        await tidy(place)
        if len(seen) < at:
            return
    raise AssertionError(f"a registration takes more requests than {MOST}")


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_crash_anywhere_in_a_deletion(place: World, before: bool) -> None:
    for at in range(1, 4):
        async with place.operator() as operator:
            await place.make(NAME)
            await place.ready(operator)
        await place.delete(WORKSPACE_PROXY, NAME)
        await live(place, at, before, lambda: not place.proxies)
        async with place.operator():
            await place.gone(WORKSPACE_PROXY, NAME)
        assert place.proxies == {}
        await tidy(place)


async def tidy(place: World) -> None:
    """Play the garbage collector."""
    for kind in setup.CHILDREN:
        async for page in place.client.list(kind, place.namespace, labels="app.kubernetes.io/managed-by=coder-k8s"):
            for item in page.items:
                await place.client.delete(kind, kind.type.decode(item), unchanged=False)
