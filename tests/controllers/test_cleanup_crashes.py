"""A crash at any request of a deletion leaves nothing in Coder after the next operator ran."""

import pytest

from tests.support.controlplanes import database

from .combined import CombinedNamespace, all_three

__all__ = ["all_three", "database"]


async def crash(all_three: CombinedNamespace, at: int, *, before: bool) -> bool:
    """Crash at a request of the deletion, and let the next operator complete it; False if there was no such request."""
    async with all_three.operator() as operator:
        await all_three.apply()
        await operator.wait_idle()
    token = await all_three.token()
    await all_three.delete_all()
    crashed = await all_three.run_operator(at, before=before) is None
    async with all_three.operator():
        await all_three.all_gone()
    await all_three.assert_nothing_left(token)
    await all_three.collect()
    return crashed


@pytest.mark.parametrize(("at", "before"), [(2, False), (5, True)])
async def test_some_crashes_during_a_deletion(all_three: CombinedNamespace, at: int, before: bool) -> None:
    assert await crash(all_three, at, before=before)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_every_crash_during_a_deletion(all_three: CombinedNamespace) -> None:
    at = 1
    while await crash(all_three, at, before=True) and await crash(all_three, at, before=False):
        at += 1
    assert at > 5
    print(f"deletion of all three: {2 * at - 2} crashes")  # noqa: T201
