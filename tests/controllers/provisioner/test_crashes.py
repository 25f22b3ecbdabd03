"""After a crash at any request, the next operator completes the work and leaves nothing behind."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from coder_k8s.api import PROVISIONER
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from tests.support.clock import SystemClock
from tests.support.crash_injector import ProvisionerCrashInjector
from tests.support.crash_scenarios import State, compare
from tests.support.crashes import CrashRun, trial
from tests.support.rotations import (
    ROTATIONS,
    Change,
    change_pods,
    change_rights,
    change_secret_name,
    change_url,
    rotation_namespace,
)

from .steady_state import state

__all__ = ["trial"]

Scene = CrashRun | ProvisionerCrashInjector
Act = Callable[[Any, int], Awaitable[None]]

pytestmark = pytest.mark.slow

SLICE = 2
"""Number of crashes per cause in every test run."""


async def create(scene: Scene, turn: int) -> None:
    await scene.site.make(f"demo-{turn}")


async def delete(scene: Scene, turn: int) -> None:
    scene.pods.allow_key_loss()
    await scene.site.delete(PROVISIONER, scene.site.name)


async def delete_key(scene: Scene, turn: int) -> None:
    scene.pods.allow_key_loss()
    await ROTATIONS["key deleted"](scene.site, turn)


async def let_interval_elapse(trial: CrashRun, turn: int) -> None:
    trial.site.clock.advance(hours=49)


def of_site(change: Change) -> Act:
    async def act(scene: Scene, turn: int) -> None:
        await change(scene.site, turn)

    return act


CAUSES: dict[str, Act] = {
    "created": create,
    **{name: of_site(change) for name, change in ROTATIONS.items()},
    "key deleted": delete_key,
    "interval": let_interval_elapse,
    "url": of_site(change_url),
    "secret moved": of_site(change_secret_name),
    "pods": of_site(change_pods),
    "rights": of_site(change_rights),
    "deleted": delete,
}
WAYS = {"organization": 2, "control plane": 2, "pods": 2, "rights": 3}
"""Number of steady states that a cause alternates between, if not one."""
ROTATING = {*ROTATIONS, "interval"}
EVERY_KIND_OF_REQUEST = ("created", "tags", "secret moved", "rights", "deleted")
"""Causes that together send every kind of request."""
KEEPING = {"url", "secret moved", "pods", "rights"}
"""Causes that must not replace the key."""


async def crash(
    trial: CrashRun, cause: str, turn: int, at: int, *, before: bool, expected: State | None = None
) -> list[str]:
    """Crash the operator at a request after a cause; returns the requests up to that one."""
    trial.crash_point.crash_at(0)
    await prepare(trial, cause, turn)
    assert await trial.wait_steady()
    old = [found.key.id for found in trial.site.found()]
    trial.crash_point.crash_at(at, before=before)
    await CAUSES[cause](trial, turn)
    replaced = old[0] if cause in ROTATING else ""
    crashed = not await trial.wait_steady(replaced)
    seen = list(trial.crash_point.seen)
    where = f"after a crash {'before' if before else 'after'} {seen[-1]}" if crashed else "without a crash"
    if crashed:
        await trial.restart()
        try:
            assert await trial.wait_steady(replaced)
        except AssertionError as flaw:
            raise AssertionError(f"{where}: {flaw}") from None
    if cause in KEEPING:
        assert [found.key.id for found in trial.site.found()] == old
    await trial.assert_no_writes()
    if expected is not None:
        compare(await state(trial.site), expected, where)
    return seen


class Undisturbed(NamedTuple):
    """The effects of a cause without a crash: possible steady states, and the number of requests."""

    states: dict[int, State]
    requests: int

    def state(self, turn: int) -> State:
        return self.states[turn % len(self.states)]


async def watch(trial: CrashRun, cause: str) -> Undisturbed:
    states, requests = {}, 0
    for turn in range(1, WAYS.get(cause, 1) + 1):
        seen = await crash(trial, cause, turn, at=0, before=False)
        assert any(not request.startswith("GET ") for request in seen), "nothing was written"
        states[turn % WAYS.get(cause, 1)] = await state(trial.site)
        requests = max(requests, len(seen))
    return Undisturbed(states, requests)


async def prepare(scene: Scene, cause: str, turn: int) -> None:
    """Create a provisioner, or none if the cause creates it."""
    exists = await scene.site.provisioner() is not None
    if exists and cause == "created":
        await delete(scene, turn)
    if not exists and cause != "created":
        await create(scene, turn)


async def test_nothing_is_sent_after_a_crash(trial: CrashRun) -> None:
    await prepare(trial, "created", 1)
    assert await trial.wait_steady()
    trial.crash_point.crash_on("POST http", before=True)
    await create(trial, 1)
    await trial.crash_point.crashed.wait()
    asked = [coderd.state.requests.total() for coderd in trial.site.coderds.values()]
    left = await trial.site.provisioner()
    await trial.operator.kill()
    assert [coderd.state.requests.total() for coderd in trial.site.coderds.values()] == asked
    assert await trial.site.provisioner() == left
    assert not trial.site.found()


@pytest.mark.parametrize("cause", EVERY_KIND_OF_REQUEST)
async def test_a_crash_is_survived(trial: CrashRun, cause: str) -> None:
    """A sample of the crashes, seeded with the name of the cause; the campaign has every crash of every cause."""
    undisturbed = await watch(trial, cause)
    every = [(at, before) for at in range(1, undisturbed.requests + 1) for before in (True, False)]
    chosen = Random(cause).sample(every, min(SLICE, len(every)))  # noqa: S311 - the same in every run
    for turn, (at, before) in enumerate(chosen, start=len(undisturbed.states) + 1):
        await crash(trial, cause, turn, at, before=before, expected=undisturbed.state(turn))


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cause", CAUSES)
async def test_every_crash_is_survived(trial: CrashRun, cause: str) -> None:
    """Before and after every request of every cause."""
    undisturbed = await watch(trial, cause)
    ways = len(undisturbed.states)
    turn, crashes = ways, 0
    for at in count(1):
        seen = []
        for before, _ in product((True, False), range(ways)):
            turn += 1
            expected = undisturbed.state(turn)
            seen.append(len(await crash(trial, cause, turn, at, before=before, expected=expected)))
        crashes += sum(number == at for number in seen)
        if max(seen) < at:
            break
    print(f"{cause}: {crashes} crashes")  # noqa: T201


@pytest.fixture
async def execution(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, tmp_path: Path
) -> AsyncIterator[ProvisionerCrashInjector]:
    async with rotation_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, SystemClock()) as place:
        await place.forget_entitlements()
        async with ProvisionerCrashInjector(place, cluster, tmp_path).ready() as execution:
            execution.start()
            yield execution


async def kill(
    execution: ProvisionerCrashInjector, cause: str, turn: int, kind: str, *, before: bool, expected: State
) -> bool:
    """Kill the process at the first request of a kind that follows from a cause, and let the next one finish.

    Whether there was such a request: what coderd said a moment ago need not be asked again.
    """
    await prepare(execution, cause, turn)
    await execution.wait_steady()
    execution.crash_on(kind.__eq__, before=before)
    await CAUSES[cause](execution, turn)
    if not await execution.done():
        return False
    execution.start()
    try:
        await execution.wait_steady()
        compare(await soon(execution), expected, "children")
    except AssertionError as flaw:
        raise AssertionError(f"killed {'before' if before else 'after'} {kind}: {flaw}") from None
    return True


async def soon(execution: ProvisionerCrashInjector) -> State:
    """The state without conditions: some change only with time, which a test cannot advance for a process."""
    return {**await state(execution.site), "conditions": {}}


async def test_sigkill_is_survived(execution: ProvisionerCrashInjector) -> None:
    await create(execution, 0)
    await execution.wait_steady()
    expected = await soon(execution)  # tags are not part of any child
    created, written = "POST /api/v2/organizations/*/provisionerkeys", "PATCH secrets/*"
    assert await kill(execution, "created", 1, created, before=False, expected=expected)
    assert await kill(execution, "tags", 2, written, before=False, expected=expected)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cause", EVERY_KIND_OF_REQUEST)
async def test_sigkill_at_every_kind_of_request_is_survived(execution: ProvisionerCrashInjector, cause: str) -> None:
    ways = WAYS.get(cause, 1)
    states, kinds = {}, set()
    for turn in range(1, ways + 1):
        await prepare(execution, cause, turn)
        await execution.wait_steady()
        execution.seen.clear()
        await CAUSES[cause](execution, turn)
        await execution.wait_steady()
        kinds |= set(execution.seen)
        states[turn % ways] = await soon(execution)
    survived = set()
    attempts = product(sorted(kinds), (True, False), range(ways))
    for turn, (kind, before, _) in enumerate(attempts, start=ways + 1):
        if await kill(execution, cause, turn, kind, before=before, expected=states[turn % ways]):
            survived.add(kind)
    print(f"{cause}: survived at", *sorted(survived), sep="\n  ")  # noqa: T201
    assert {kind for kind in kinds if not kind.startswith(("GET ", "POST events"))} <= survived


async def meddle(trial: CrashRun, random: Random, turn: int) -> str:
    """Change the provisioner or its children in any state; returns the change."""
    cause = random.choice(sorted(ROTATING | {"url", "secret moved"}))
    if cause == "interval" and await trial.site.differences():
        trial.pods.allow_key_loss()  # the clock advances by more than any grace period
    if cause == "key deleted":
        trial.pods.allow_key_loss()
        plane, key = random.choice(trial.site.found())
        trial.site.coderds[plane].state.delete_key(key.name, key.organization)
    else:
        with suppress(errors.NotFound):  # the Secret may be missing already
            await CAUSES[cause](trial, turn)
    return cause


async def meddle_and_crash(trial: CrashRun, random: Random, turn: int) -> None:
    """Two or three changes, with a crash during the reconcile of each."""
    story = []
    for step in range(random.randint(2, 3)):
        at, before = random.randint(1, 25), random.random() < 0.5
        trial.crash_point.crash_at(at, before=before)
        story.append((await meddle(trial, random, 3 * turn + step), at, before))
        try:
            await trial.wait_steady()
        except AssertionError as flaw:
            raise AssertionError(f"{story}: {flaw}") from None
        await trial.restart()
    try:
        assert await trial.wait_steady()
        await trial.assert_no_writes()
    except AssertionError as flaw:
        raise AssertionError(f"{story}: {flaw}") from None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(1, 9))])
async def test_changes_between_crashes_are_survived(trial: CrashRun, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - the same in every run
    await trial.site.make()
    assert await trial.wait_steady()
    for turn in range(20 if seed else 3):
        await meddle_and_crash(trial, random, turn)
