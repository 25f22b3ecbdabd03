"""One place, four outcomes; and a stop that waits for what is under way."""

import asyncio

import pytest

from coder_k8s.kube import errors
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Object
from tests.support.clock import FakeClock
from tests.support.reconciles import A, B, ObservedQueue, Passes, controller, obj, running, throttled, value


async def test_done_is_not_looked_at_again() -> None:
    passes, metrics = Passes(None), Metrics()
    demo = controller(passes, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert await passes.next() == A
    assert passes.idle
    assert value(metrics, "controller_runtime_reconcile_total", result="success") == 1


async def test_passes_that_wait_for_nothing_leave_turns_to_others() -> None:
    passes, turns = Passes(), 0
    demo = controller(passes)
    for number in range(100):
        demo.queue.add(Key("ns", str(number)))
    async with running(demo):
        while len(demo.queue):
            turns += 1
            await asyncio.sleep(0)
    assert turns > 100 / 2 / 2, "at least one for every two passes of each of the two workers"


async def test_looks_again_when_asked() -> None:
    passes, metrics = Passes(0.001, None), Metrics()
    demo = controller(passes, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert [await passes.next(), await passes.next()] == [A, A]
    assert value(metrics, "controller_runtime_reconcile_total", result="requeue_after") == 1


async def test_a_failure_is_tried_again_until_it_succeeds() -> None:
    passes, metrics = Passes(errors.Unreachable("gone"), ValueError("defect"), None), Metrics()
    demo = controller(passes, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert [await passes.next() for _ in range(3)] == [A, A, A]
    assert value(metrics, "controller_runtime_reconcile_errors_total") == 2
    assert value(metrics, "workqueue_retries_total", name="demo") == 2


@pytest.mark.parametrize(
    ("outcomes", "due"),
    [
        pytest.param([None], [], id="done"),
        pytest.param([7.0], [7], id="requeued"),
        pytest.param([throttled(3)], [3], id="Retry-After, less than the backoff"),
        pytest.param([throttled(90)], [90], id="Retry-After, more than the backoff"),
        pytest.param([throttled(0)], [0.5], id="Retry-After of zero"),
        pytest.param([ValueError()] * 3, [10, 10 + 20, 10 + 20 + 40], id="failures"),
        pytest.param([ValueError(), throttled(3), ValueError()], [10, 13, 13 + 20], id="throttled between failures"),
        pytest.param([ValueError(), 1.0, ValueError()], [10, 11, 11 + 10], id="success between failures"),
    ],
)
async def test_when_the_next_reconcile_is_due(outcomes: list[float | Exception | None], due: list[float]) -> None:
    clock, passes = FakeClock(), Passes(*outcomes)
    queue = ObservedQueue(clock, Backoff(10, 60, jitter=lambda: 1.0))
    demo = Controller("demo", passes, metrics=Metrics(), queue=queue, workers=1)
    found = []
    queue.add(A)
    async with running(demo):
        for _ in outcomes:
            await asyncio.wait_for(queue.finished.get(), 5)
            if clock.timers:
                [timer] = clock.timers
                found.append(timer.when())
                clock.advance(timer.when() - clock.time())
    assert found == due


async def test_being_throttled_is_no_error() -> None:
    passes, metrics = Passes(throttled(0), None), Metrics()
    demo = controller(passes, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert [await passes.next(), await passes.next()] == [A, A]
    assert value(metrics, "controller_runtime_reconcile_errors_total") == 0
    assert value(metrics, "controller_runtime_reconcile_total", result="requeue_after") == 1


async def test_a_pass_that_hangs_is_ended_and_tried_again() -> None:
    seen: asyncio.Queue[Key] = asyncio.Queue()

    async def hang(key: Key) -> None:
        seen.put_nowait(key)
        await asyncio.Event().wait()

    demo = controller(hang, timeout=0.01)
    demo.queue.add(A)
    async with running(demo):
        for _ in range(3):
            assert await asyncio.wait_for(seen.get(), 5) == A


async def test_one_key_has_one_worker_and_two_keys_have_two() -> None:
    entered: asyncio.Queue[Key] = asyncio.Queue()
    leave = asyncio.Event()

    async def work(key: Key) -> None:
        entered.put_nowait(key)
        await leave.wait()

    demo = controller(work)
    async with running(demo):
        demo.queue.add(A)
        assert await entered.get() == A
        demo.queue.add(A)
        demo.queue.add(B)
        assert await entered.get() == B
        assert entered.empty()
        leave.set()
        assert await entered.get() == A


async def test_stopping_finishes_what_is_under_way_and_begins_nothing_new() -> None:
    entered, finish = asyncio.Event(), asyncio.Event()
    finished: list[Key] = []

    async def work(key: Key) -> None:
        entered.set()
        await finish.wait()
        finished.append(key)

    demo = Controller("demo", work, metrics=Metrics(), workers=1)
    demo.queue.add(A)
    demo.queue.add(B)
    stopping = asyncio.Event()
    task = asyncio.create_task(demo.run(stopping))
    await entered.wait()
    stopping.set()
    finish.set()
    await asyncio.wait_for(task, 5)
    assert finished == [A]


async def test_a_child_wakes_its_owner_the_old_one_too() -> None:
    passes = Passes()
    demo, children = controller(passes), Cache[Object]()
    demo.watch(children, lambda child: [Key("ns", child.controller.name)] if child.controller else [])
    async with running(demo):
        children.update("", obj("child", 1, owner="a"))
        assert await passes.next() == A
        children.update("", obj("child", 2, owner="b"))
        assert {await passes.next(), await passes.next()} == {A, B}
        children.delete("", obj("child", 3))
        assert await passes.next() == B


async def test_a_write_wakes_every_controller_but_its_own() -> None:
    cache = Cache[Object]()
    ours, theirs = Passes(), Passes()
    demo, other = controller(ours), Controller("other", theirs, metrics=Metrics(), workers=1)
    demo.watch(cache)
    other.watch(cache)
    async with running(demo), running(other):
        cache.record_write(obj("a", 1), "demo")
        assert await theirs.next() == A
        cache.update("", obj("b", 2))
        assert await ours.next() == B


async def test_changes_of_the_object_itself_go_before_the_rest() -> None:
    demo, objects, children = controller(Passes()), Cache[Object](), Cache[Object]()
    demo.watch(objects)
    demo.watch(children, lambda child: [Key("ns", child.controller.name)] if child.controller else [])
    objects.replace("", [obj("listed", 1)], "1")
    children.update("", obj("child", 2, owner="owner"))
    objects.update("", obj("changed", 3))
    assert [await demo.queue.get() for _ in range(3)] == [Key("ns", name) for name in ("changed", "listed", "owner")]
