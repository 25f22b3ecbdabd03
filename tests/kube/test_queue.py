"""Each key is processed once, by one worker at a time, and no change is lost."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.queue import MAX_HIGH_PRIORITY_STREAK, WorkQueue
from tests.support.clock import FakeClock

RUNNER = asyncio.Runner(loop_factory=asyncio.new_event_loop)


@pytest.fixture(scope="module", autouse=True)
def close_runner() -> Iterator[None]:
    yield
    RUNNER.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue(clock, Backoff(1.0, 60.0, jitter=lambda: 1.0))


def take(queue: WorkQueue[str]) -> str | None:
    """Return the next key if a worker need not wait for it."""

    async def get() -> str | None:
        worker = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        worker.cancel()
        await asyncio.wait([worker])
        return None if worker.cancelled() else worker.result()

    return RUNNER.run(get())


def drain(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while (key := take(queue)) is not None:
        taken.append(key)
        queue.done(key)
    return taken


def test_a_key_that_is_added_twice_is_queued_once(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert drain(queue) == ["a", "b"]


def test_a_key_that_is_added_while_it_is_processed_waits_until_it_is_done(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert take(queue) == "a"
    queue.add("a")
    assert take(queue) is None
    queue.done("a")
    assert drain(queue) == ["a"]


async def test_a_delay_of_zero_is_a_timer_too() -> None:
    """On uvloop, the handle of such a timer is another one."""
    queue = WorkQueue[str]()
    queue.add_after("a", 0)
    queue.add_after("a", 1)
    assert not queue.idle
    assert queue.next_due("a") == 0
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    assert queue.next_due("a") is None


def test_idle_means_no_key_waits_is_with_a_worker_or_is_due(queue: WorkQueue[str], clock: FakeClock) -> None:
    idle = {"empty": queue.idle}
    queue.add("a")
    idle["waiting"] = queue.idle
    assert take(queue) == "a"
    idle["with a worker"] = queue.idle
    queue.done("a")
    queue.add_after("a", 10)
    idle["scheduled"] = queue.idle
    clock.now += 10
    idle["timer expired, not called yet"] = queue.idle
    clock.advance(0)
    assert drain(queue) == ["a"]
    idle["done"] = queue.idle
    assert [name for name, value in idle.items() if value] == ["empty", "scheduled", "done"]


def test_next_due_is_the_time_until_the_timer_of_the_key(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("a", 10)
    clock.advance(4)
    assert (queue.next_due("a"), queue.next_due("b")) == (6, None)
    queue.add_after("a", 2)
    assert queue.next_due("a") == 2
    clock.advance(2)
    assert queue.next_due("a") is None


async def test_a_waiting_worker_gets_an_added_key(queue: WorkQueue[str]) -> None:
    worker = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not worker.done()
    queue.add("a")
    assert await worker == "a"


async def test_a_cancelled_worker_loses_no_key(queue: WorkQueue[str]) -> None:
    worker = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker
    assert await queue.get() == "a"


def test_high_priority_first(queue: WorkQueue[str]) -> None:
    for key in ("one", "two", "three"):
        queue.add(key, high_priority=False)
    queue.add("fresh")
    queue.add("three")
    assert drain(queue) == ["fresh", "three", "one", "two"]


def test_low_priority_does_not_starve(queue: WorkQueue[str]) -> None:
    queue.add("slow", high_priority=False)
    queue.add("slower", high_priority=False)
    for number in range(3 * MAX_HIGH_PRIORITY_STREAK):
        queue.add(f"high_priority-{number}")
    order = drain(queue)
    assert (order.index("slow"), order.index("slower")) == (MAX_HIGH_PRIORITY_STREAK, 2 * MAX_HIGH_PRIORITY_STREAK + 1)


def test_keys_of_low_priority_leave_workers_for_high_priority(clock: FakeClock) -> None:
    queue = WorkQueue[str](clock, low_priority_limit=2)
    for key in ("one", "two", "three", "four"):
        queue.add(key, high_priority=False)
    assert [take(queue), take(queue), take(queue)] == ["one", "two", None]
    queue.add("fresh")
    queue.add("four")
    assert [take(queue), take(queue), take(queue)] == ["fresh", "four", None]
    queue.done("fresh")
    assert take(queue) is None
    queue.done("one")
    assert [take(queue), take(queue)] == ["three", None]


def test_high_priority_does_not_wait_for_the_turn_of_low_priority_at_its_limit(clock: FakeClock) -> None:
    queue = WorkQueue[str](clock, low_priority_limit=1)
    queue.add("slow", high_priority=False)
    assert take(queue) == "slow"
    queue.add("slower", high_priority=False)
    high = [f"high-{number}" for number in range(MAX_HIGH_PRIORITY_STREAK + 2)]
    for key in high:
        queue.add(key)
    assert [take(queue) for _ in high] == high
    queue.done("slow")
    queue.add("fresh")
    assert [take(queue), take(queue)] == ["slower", "fresh"]


async def test_a_waiting_worker_gets_a_key_of_low_priority_when_another_is_done() -> None:
    queue = WorkQueue[str](low_priority_limit=1)
    queue.add("one", high_priority=False)
    queue.add("two", high_priority=False)
    assert await queue.get() == "one"
    worker = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not worker.done()
    queue.done("one")
    assert await asyncio.wait_for(worker, 5) == "two"


def test_a_key_of_low_priority_that_changed_meanwhile_can_be_taken_again(clock: FakeClock) -> None:
    queue = WorkQueue[str](clock, low_priority_limit=1)
    queue.add("one", high_priority=False)
    assert take(queue) == "one"
    queue.add("one", high_priority=False)
    queue.done("one")
    assert [take(queue), take(queue)] == ["one", None]


@pytest.mark.parametrize(
    ("lanes", "order"),
    [
        ([True], ["busy", "other"]),
        ([False], ["other", "busy"]),
        ([True, False], ["busy", "other"]),
        ([False, True], ["busy", "other"]),
        ([False, False], ["other", "busy"]),
    ],
)
def test_a_key_that_is_added_while_processed_keeps_the_highest_priority(
    queue: WorkQueue[str], lanes: list[bool], order: list[str]
) -> None:
    queue.add("busy")
    assert take(queue) == "busy"
    queue.add("other", high_priority=False)
    for high_priority in lanes:
        queue.add("busy", high_priority=high_priority)
    queue.done("busy")
    assert drain(queue) == order


def test_a_delayed_key_has_low_priority(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("due", 10)
    clock.advance(10)
    queue.add("fresh")
    assert drain(queue) == ["fresh", "due"]


def test_default_back_off(clock: FakeClock) -> None:
    queue = WorkQueue[str](clock)
    waits = [queue.retry("a") for _ in range(20)]
    assert 0 < waits[0] <= 0.05
    assert 150 <= waits[-1] <= 300


def test_back_off_grows_up_to_a_cap(queue: WorkQueue[str], clock: FakeClock) -> None:
    waits = []
    for _ in range(9):
        waits.append(queue.retry("a"))
        clock.advance(waits[-1] - 0.01)
        assert take(queue) is None
        clock.advance(0.01)
        assert drain(queue) == ["a"]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    queue.forget("a")
    assert queue.retry("a") == 1


def test_back_off_has_jitter() -> None:
    assert Backoff(1.0, 60.0, jitter=lambda: 0.0).delay(4) == 4.0
    assert Backoff(1.0, 60.0, jitter=lambda: 0.999).delay(4) == pytest.approx(8.0, abs=0.01)
    assert Backoff(1.0, 60.0, jitter=lambda: 1.0).delay(10_000) == 60.0


def test_the_shortest_delay_wins(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("a", 30)
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    clock.advance(10)
    assert drain(queue) == ["a"]
    clock.advance(60)
    assert drain(queue) == []


def test_get_cancels_the_timer(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add_after("a", 30)
    queue.add("a")
    assert drain(queue) == ["a"]
    clock.advance(60)
    assert drain(queue) == []


def test_last_wait(queue: WorkQueue[str], clock: FakeClock) -> None:
    assert queue.last_wait == 0
    clock.advance(5)
    queue.add("a")
    clock.advance(3)
    take(queue)
    assert queue.last_wait == 3


KEYS = st.sampled_from("abcd")
LIMIT = 2


class Work(RuleBasedStateMachine):
    """One worker per key, and every request is followed by a reconcile that starts after it.

    Only keys of low priority wait for a worker, while LIMIT of them are processed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        backoff = Backoff(1.0, 8.0, jitter=lambda: 0.5)
        self.queue = WorkQueue[str](self.clock, backoff, low_priority_limit=LIMIT)
        self.working: set[str] = set()
        self.working_low: set[str] = set()
        self.requested_high: set[str] = set()
        self.requested: set[str] = set()
        self.delayed: set[str] = set()

    @rule(key=KEYS, high_priority=st.booleans())
    def change(self, key: str, high_priority: bool) -> None:
        self.queue.add(key, high_priority=high_priority)
        self.requested.add(key)
        if high_priority:
            self.requested_high.add(key)

    @rule(key=KEYS, delay=st.integers(0, 20))
    def requeue_after(self, key: str, delay: int) -> None:
        self.queue.add_after(key, delay)
        self.delayed.add(key)

    @rule()
    def worker_gets_a_key(self) -> None:
        key = take(self.queue)
        if key is None:
            assert not self.requested_high - self.working, "a key of high priority was not given"
            assert len(self.working_low) == LIMIT or not self.requested - self.working, "a key was not given"
            return
        assert key not in self.working, "two workers have one key"
        assert key in self.requested | self.delayed, "no request for this reconcile"
        self.working.add(key)
        if key not in self.requested_high:
            self.working_low.add(key)
            assert len(self.working_low) <= LIMIT, "too many keys of low priority are processed"
        self.requested_high.discard(key)
        self.requested.discard(key)
        self.delayed.discard(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), fails=st.booleans())
    def worker_finishes(self, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        if fails:
            self.queue.retry(key)
            self.delayed.add(key)
        else:
            self.queue.forget(key)
        self.queue.done(key)
        self.working.discard(key)
        self.working_low.discard(key)

    @rule(seconds=st.integers(1, 10))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def every_queued_key_was_requested(self) -> None:
        assert len(self.queue) <= len(self.requested | self.delayed)

    def teardown(self) -> None:
        for key in self.working:
            self.queue.done(key)
        self.clock.advance(1000)
        assert set(drain(self.queue)) >= self.requested | self.delayed


TestWork = Work.TestCase
TestWork.settings = settings(max_examples=200, stateful_step_count=40)
