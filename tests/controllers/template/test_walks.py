"""Whatever the order of changes is, Coder ends up with what the spec describes."""

import pytest

from tests.support.templates import TemplateNamespace

from .walk import Walk


async def take(place: TemplateNamespace, seed: str, steps: int, *, licensed: bool) -> None:
    walk = Walk(place, seed, licensed=licensed)
    async with place.operator() as operator:
        await walk.begin(operator)
        for _ in range(steps):
            await walk.step(operator)


@pytest.mark.parametrize("place", ["2.30.0"], indirect=True)
async def test_some_changes(place: TemplateNamespace) -> None:
    await take(place, "some", 10, licensed=True)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("place", ["2.30.0", "2.36.1"], indirect=True)
@pytest.mark.parametrize("licensed", [True, False])
@pytest.mark.parametrize("seed", range(3))
async def test_100_changes(place: TemplateNamespace, seed: int, licensed: bool) -> None:
    await take(place, f"walk {seed}", 100, licensed=licensed)
