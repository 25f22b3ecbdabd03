"""Whatever the order of changes is, Coder ends up with what the spec describes."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import pytest

from coder_k8s.coderd.errors import Unavailable
from tests.support.interceptor import Interceptor, Request
from tests.support.templates import TemplateNamespace

from .walk import Walk

T = TypeVar("T")


class Faults(Interceptor):
    """Loses some requests to coderd, or their responses."""

    def __init__(self, seed: str, share: float) -> None:
        super().__init__()
        self._random = Random(seed)  # noqa: S311 - the same in every run
        self._share = share

    async def intercept(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        lost = not request.is_kubernetes and self._random.random() < self._share
        if lost and self._random.random() < 0.5:
            raise Unavailable("the request is lost")
        answer = await super().intercept(request, send)
        if lost:
            raise Unavailable("the response is lost")
        return answer


async def take(place: TemplateNamespace, seed: str, steps: int, *, licensed: bool, faults: float = 0) -> None:
    walk = Walk(place, seed, licensed=licensed, reliable=not faults)
    async with place.operator(interceptor=Faults(seed, faults)) as operator:
        await walk.begin(operator)
        for _ in range(steps):
            await walk.step(operator)


@pytest.mark.parametrize("place", ["2.30.0"], indirect=True)
async def test_some_changes(place: TemplateNamespace) -> None:
    await take(place, "some", 10, licensed=True)


async def test_some_changes_with_lost_requests(place: TemplateNamespace) -> None:
    await take(place, "some", 10, licensed=True, faults=0.1)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("place", ["2.30.0", "2.36.1"], indirect=True)
@pytest.mark.parametrize("licensed", [True, False])
@pytest.mark.parametrize("seed", range(3))
async def test_100_changes(place: TemplateNamespace, seed: int, licensed: bool) -> None:
    await take(place, f"walk {seed}", 100, licensed=licensed)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("place", ["2.30.0", "2.36.1"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
async def test_100_changes_with_lost_requests(place: TemplateNamespace, seed: int) -> None:
    await take(place, f"lost {seed}", 100, licensed=True, faults=0.1)
