"""An object whose operator crashes anywhere on the way to another state and back, and must end where none crashed."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from coder_k8s.api import CoderControlPlane, CoderWorkspaceProxy
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.crash_injector import CrashInjector
from tests.support.crashes import CrashPoint, crashable

PATIENCE = 60.0
MAX_RECONCILES = 12
"""Passes that are more than enough for anything."""

State = dict[str, Any]
Step = Callable[[Any], Awaitable[None]]


class Event(NamedTuple):
    """What leads to another state, and what leads back."""

    there: Step
    back: Step


@dataclass(frozen=True)
class OperatorSetup:
    """Where operators work, on what, and how they are made."""

    kubeconfig: Path
    namespaces: Sequence[str]
    routes: Mapping[Endpoint, Endpoint]
    now: Callable[[], datetime]
    build: Callable[[Runtime], Controller]
    key: Key


class CrashScenario(ABC):
    """One object, operators that crash, and what must be the same in spite of them."""

    late: frozenset[str] = frozenset()
    """Conditions that only time changes, which nobody can advance for a process."""

    def __init__(self, setup: OperatorSetup) -> None:
        self.setup = setup

    @abstractmethod
    async def state(self) -> State:
        """All that the operator decides, in Kubernetes and in coderd, and nothing else."""

    @abstractmethod
    async def subject(self) -> CoderControlPlane | CoderWorkspaceProxy | None:
        """The object, if it is there."""

    @abstractmethod
    async def sync(self) -> bool:
        """Play the pods and the controllers of Kubernetes; whether there was something to do."""

    @abstractmethod
    def pass_time(self) -> None:
        """Let it be time for another look."""

    async def observed(self) -> bool:
        """Whether the operator has spoken about the object as it is."""
        subject = await self.subject()
        return subject is None or (
            not subject.deleting and subject.status.observed_generation == subject.metadata.generation
        )

    async def differences(self) -> str:
        """Why the object is not at rest."""
        subject = await self.subject()
        if subject is None:
            return ""
        conditions = subject.status.conditions
        at_rest = any(each.status == "True" for each in conditions if each.type in ("Ready", "Stalled"))
        return "" if at_rest and await self.observed() else str(conditions)

    async def live(self, at: int = 0, *, before: bool = False) -> list[str] | None:
        """Let an operator work until all is at rest, or it dies; the requests that it made if it lives."""
        crash_point, place = CrashPoint(), self.setup
        crash_point.crash_at(at, before=before)
        async with crashable(
            place.kubeconfig, place.namespaces, place.routes, place.now, crash_point, place.build
        ) as controller:
            queue = controller.queue
            for _ in range(MAX_RECONCILES):
                await eventually(lambda: crash_point.crashed.is_set() or not (len(queue) or queue._busy), PATIENCE)
                if crash_point.crashed.is_set():
                    return None
                if not await self.sync() and not await self.differences():
                    return crash_point.seen
                self.pass_time()
                queue.add(place.key)
        raise AssertionError(await self.differences())

    async def take(self, step: Step) -> list[str]:
        """Let something happen, and an operator deal with it undisturbed; the requests that it made."""
        await step(self)
        seen = await self.live()
        assert seen is not None
        return seen


async def crash(scenario: CrashScenario, step: Step, at: int, *, before: bool, expected: State) -> bool:
    """Crash at a request of what follows from a step, and see that the next operator finishes it.

    Whether there was such a request.
    """
    await step(scenario)
    seen = await scenario.live(at, before=before)
    if seen is None:
        assert await scenario.live() is not None
    compare(await scenario.state(), expected, f"{'before' if before else 'after'} request {at}")
    return seen is None


async def crash_everywhere(scenario: CrashScenario, event: Event, size: int | None = None) -> int:
    """Crash before and after every request on the way there and back, or at some of them; how often."""
    there, end = await scenario.take(event.there), await scenario.state()
    back, begin = await scenario.take(event.back), await scenario.state()
    assert all(any(not request.startswith("GET ") for request in way) for way in (there, back)), "nothing was written"
    moments = [(at, before) for at in range(1, max(len(there), len(back)) + 1) for before in (True, False)]
    if size is not None:
        moments = Random(0).sample(moments, size)  # noqa: S311 - the same in every run
    crashes = 0
    for at, before in moments:
        crashes += await crash(scenario, event.there, at, before=before, expected=end)
        crashes += await crash(scenario, event.back, at, before=before, expected=begin)
    return crashes


async def kill_at(scenario: CrashScenario, injector: CrashInjector, step: Step, at: int, expected: State) -> bool:
    """Kill the process right after a request of what follows from a step, and see that the next one finishes it.

    Whether there was such a request.
    """

    async def rests() -> bool:
        injector.killed()
        if await scenario.sync() or not await scenario.observed():
            return False
        compare(_soon(scenario, await scenario.state()), _soon(scenario, expected), f"killed after request {at}")
        return True

    async def over() -> bool:
        return injector.killed() or await rests()

    await step(scenario)
    injector.crash_on(lambda _: len(injector.seen) == at, before=False)
    injector.start()
    await eventually(over, PATIENCE)
    killed = injector.killed()
    if killed:
        injector.start()
        await eventually(rests, PATIENCE)
    injector.stop()
    return killed


async def kill_everywhere(
    scenario: CrashScenario, injector: CrashInjector, event: Event, most: int | None = None
) -> int:
    """Kill the process after every request on the way there and back, or after the first of them; how often."""
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


def _soon(scenario: CrashScenario, state: State) -> State:
    """What is true without any time passing."""
    conditions = {name: said for name, said in state["conditions"].items() if name not in scenario.late}
    return {**state, "conditions": conditions}


def compare(found: State, expected: State, where: str) -> None:
    lines, wanted = found["children"], expected["children"]
    assert (lines - wanted, wanted - lines) == (set(), set()), where
    assert found == expected, where
