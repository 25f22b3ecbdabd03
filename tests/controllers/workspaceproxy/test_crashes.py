"""Whatever request an operator dies at, the next one finishes the work: no proxy is lost, none is left behind."""

from collections.abc import Callable

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.controllers.workspaceproxy import setup
from tests.support import eventually
from tests.support.crashes import Fate, mortal

from .world import NAME, World

MOST = 14
"""More requests than a registration takes."""


async def live(place: World, at: int, before: bool, done: Callable[[], object]) -> list[str]:
    """Let an operator work until it dies or has nothing left to do; the requests that it made."""
    fate = Fate()
    fate.decide(at, before=before)
    async with mortal(place.kubeconfig, place.namespace, place.routes, place.clock, fate, setup.build) as controller:
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
