"""The time limit of a cleanup counts only while an operator runs."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderWorkspaceProxy
from coder_k8s.api.workspaceproxy import WorkspaceProxySpec
from coder_k8s.controllers.cleanup import Cleanup
from coder_k8s.controllers.labels import PAUSED
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import ObjectMeta
from tests.support.clock import Clock
from tests.support.controlplanes import database

from .combined import CombinedNamespace, all_three

__all__ = ["all_three", "database"]

DELETED = datetime(2026, 3, 1, tzinfo=UTC)
NO_CLIENT = cast("Client", None)
"""Not used for the age of a deletion."""


def deleted(uid: str, at: datetime | None = DELETED) -> CoderWorkspaceProxy:
    metadata = ObjectMeta(name="sydney", uid=uid, deletion_timestamp=at)
    return CoderWorkspaceProxy(metadata=metadata, spec=WorkspaceProxySpec())


@pytest.fixture
def clock() -> Clock:
    return Clock(DELETED)


def after(clock: Clock, minutes: float) -> None:
    clock.time = DELETED + timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("first", "now", "age"),
    [(0, 0, 0), (0, 4, 4), (1, 4, 3), (6, 6, 0), (6, 8, 2), (-1, 2, 2)],
    ids=["at once", "since the deletion", "a minute late", "was down", "was down, later", "its clock is behind"],
)
def test_age_counts_from_the_first_attempt(clock: Clock, first: float, now: float, age: float) -> None:
    going = deleted("a")
    cleanup = Cleanup(NO_CLIENT, clock)
    after(clock, first)
    cleanup.age(going)
    after(clock, now)
    assert cleanup.age(going) == timedelta(minutes=age)


def test_an_object_that_is_not_deleted_has_no_age(clock: Clock) -> None:
    staying = deleted("a", at=None)
    cleanup = Cleanup(NO_CLIENT, clock)
    cleanup.age(staying)
    after(clock, 9)
    assert cleanup.age(staying) == timedelta()


def test_attempts_are_counted_by_uid_and_forgotten_with_the_object(clock: Clock) -> None:
    cleanup = Cleanup(NO_CLIENT, clock)
    cleanup.age(deleted("a"))
    after(clock, 2)
    assert cleanup.age(deleted("b")) == timedelta()
    after(clock, 3)
    assert cleanup.age(deleted("b")) == timedelta(minutes=1)
    cleanup.forget(deleted("b").key)
    assert cleanup.age(deleted("b")) == timedelta()


@pytest.mark.parametrize("starting", [False, True], ids=["coderd runs", "coderd is starting"])
async def test_an_operator_that_was_down_leaves_nothing(all_three: CombinedNamespace, starting: bool) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        await all_three.become_ready(operator)
        token = await all_three.token()
    await all_three.delete_all()
    all_three.clock.time = datetime.now(UTC) + timedelta(minutes=6)
    all_three.state.set(failing=starting)
    async with all_three.operator() as operator:
        if starting:
            await all_three.note("WorkspaceProxyNotDeregistered", "sydney")
            await all_three.stay_idle(operator)
            assert await all_three.find(CONTROL_PLANE, "demo") is not None
            assert await all_three.find(PROVISIONER, "build") is not None
            all_three.state.set(failing=False)
        await all_three.all_gone()
    await all_three.assert_nothing_left(token)


async def test_an_object_that_was_paused_gets_more_than_one_attempt(all_three: CombinedNamespace) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        await all_three.set_annotations(PROVISIONER, "build", {PAUSED: "true"})
        await all_three.delete(PROVISIONER, "build")
        all_three.state.set(failing=True)
        all_three.clock.time = datetime.now(UTC) + timedelta(minutes=6)
        await all_three.set_annotations(PROVISIONER, "build", {PAUSED: None})
        await all_three.stay_idle(operator)
        assert await all_three.find(PROVISIONER, "build") is not None
        all_three.state.set(failing=False)
        await all_three.gone(PROVISIONER, "build")
    assert not all_three.state.keys
