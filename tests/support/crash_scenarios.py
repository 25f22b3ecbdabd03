"""Crashes an operator at every request between two states of an object, in both directions."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from coder_k8s.api import CoderObject
from coder_k8s.coderd.connections import Endpoint
from tests.support import eventually
from tests.support.crash_injector import CrashInjector
from tests.support.crashes import MAX_RECONCILES, CrashPoint
from tests.support.namespaces import Namespace

TIMEOUT = 60.0

State = dict[str, Any]
Step = Callable[[Any], Awaitable[None]]


class Event(NamedTuple):
    """A step to another state, and the step back."""

    there: Step
    back: Step


class CrashScenario(ABC):
    """One object, operators that crash, and the state that must not depend on the crashes."""

    time_dependent: frozenset[str] = frozenset()
    """Conditions that change with time, which a test cannot advance in another process."""

    def __init__(self, place: Namespace[Any], routes: Mapping[Endpoint, Endpoint]) -> None:
        self.place = place
        self.routes = routes

    @abstractmethod
    async def state(self) -> State:
        """Everything that the operator controls in Kubernetes and in coderd, and nothing else."""

    @abstractmethod
    async def subject(self) -> CoderObject | None:
        """The object, or None."""

    @abstractmethod
    async def sync(self) -> bool:
        """Simulate the pods and controllers of Kubernetes; return whether anything changed."""

    @abstractmethod
    def advance_clock(self) -> None:
        """Advance the clock to the next reconcile."""

    async def observed(self) -> bool:
        """Whether the status is about the current generation."""
        subject = await self.subject()
        return subject is None or (
            not subject.deleting and subject.status.observed_generation == subject.metadata.generation
        )

    async def differences(self) -> str:
        """The reason why the state is not steady; empty if it is."""
        subject = await self.subject()
        if subject is None:
            return ""
        conditions = subject.status.conditions
        is_steady = any(each.status == "True" for each in conditions if each.type in ("Ready", "Stalled"))
        return "" if is_steady and await self.observed() else str(conditions)

    async def run_operator(
        self, at: int = 0, *, before: bool = False, among: Callable[[str], bool] | None = None
    ) -> list[str] | None:
        """Run an operator until the state is steady, and return its requests; return None if it crashed."""
        crash_point = CrashPoint()
        crash_point.crash_at(at, before=before, among=among)
        operator = self.place.operator(interceptor=crash_point, connect_to=self.routes)
        await operator.start()
        try:
            for _ in range(MAX_RECONCILES):
                if not await operator.wait_idle():
                    return None
                if not await self.sync() and not await self.differences():
                    return crash_point.seen
                self.advance_clock()
                operator.enqueue(self.place.key)
        finally:
            await operator.kill()
        raise AssertionError(await self.differences())

    async def take(self, step: Step) -> list[str]:
        """Take a step, run an operator that does not crash, and return its requests."""
        await step(self)
        seen = await self.run_operator()
        assert seen is not None
        return seen


async def crash(scenario: CrashScenario, step: Step, at: int, *, before: bool, expected: State) -> bool:
    """Crash at a request that follows a step, and check that the next operator reaches the expected state.

    Return whether there was such a request.
    """
    await step(scenario)
    seen = await scenario.run_operator(at, before=before)
    if seen is None:
        assert await scenario.run_operator() is not None
    compare(await scenario.state(), expected, f"{'before' if before else 'after'} request {at}")
    return seen is None


async def crash_everywhere(scenario: CrashScenario, event: Event, size: int | None = None) -> int:
    """Crash before and after every request of both steps, or at a sample of them; return the number of crashes."""
    there, end = await scenario.take(event.there), await scenario.state()
    back, begin = await scenario.take(event.back), await scenario.state()
    assert all(any(not request.startswith("GET ") for request in way) for way in (there, back)), "nothing was written"
    points = [(at, before) for at in range(1, max(len(there), len(back)) + 1) for before in (True, False)]
    if size is not None:
        points = Random(0).sample(points, size)  # noqa: S311 - deterministic
    crashes = 0
    for at, before in points:
        crashes += await crash(scenario, event.there, at, before=before, expected=end)
        crashes += await crash(scenario, event.back, at, before=before, expected=begin)
    print(f"{crashes} crashes; {len(there)} requests there, {len(back)} back")  # noqa: T201 - for `make campaign`
    return crashes


async def kill_at(scenario: CrashScenario, injector: CrashInjector, step: Step, at: int, expected: State) -> bool:
    """Kill the process after a request that follows a step, and check that the next one reaches the expected state.

    Return whether there was such a request.
    """

    async def is_steady() -> bool:
        injector.killed()
        if await scenario.sync() or not await scenario.observed():
            return False
        compare(
            _without_time_dependent(scenario, await scenario.state()),
            _without_time_dependent(scenario, expected),
            f"killed after request {at}",
        )
        return True

    async def over() -> bool:
        return injector.killed() or await is_steady()

    await step(scenario)
    injector.crash_on(lambda _: len(injector.seen) == at, before=False)
    injector.start()
    await eventually(over, TIMEOUT)
    killed = injector.killed()
    if killed:
        injector.start()
        await eventually(is_steady, TIMEOUT)
    injector.stop()
    return killed


async def kill_everywhere(
    scenario: CrashScenario, injector: CrashInjector, event: Event, most: int | None = None
) -> int:
    """Kill the process after every request of both steps, or after the first few; return the number of kills."""
    await scenario.take(event.there)
    end = await scenario.state()
    await scenario.take(event.back)
    begin = await scenario.state()
    at = kills = 0
    while at != most:
        at += 1
        there = await kill_at(scenario, injector, event.there, at, end)
        back = await kill_at(scenario, injector, event.back, at, begin)
        if not (there or back):
            break
        kills += there + back
    return kills


def _without_time_dependent(scenario: CrashScenario, state: State) -> State:
    """The state without time-dependent conditions."""
    conditions = {name: value for name, value in state["conditions"].items() if name not in scenario.time_dependent}
    return {**state, "conditions": conditions}


def compare(found: State, expected: State, where: str) -> None:
    lines, wanted = found["children"], expected["children"]
    assert (lines - wanted, wanted - lines) == (set(), set()), where
    assert found == expected, where
