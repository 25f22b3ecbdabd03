"""The four outcomes of a reconcile, watches, and shutdown."""

import asyncio

import pytest

from coder_k8s.kube import errors
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Object
from tests.support.clock import FakeClock
from tests.support.reconciles import A, B, ObservedQueue, ScriptedReconcile, controller, obj, running, throttled, value


async def test_success_is_not_requeued() -> None:
    reconcile, metrics = ScriptedReconcile(None), Metrics()
    demo = controller(reconcile, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert await reconcile.next() == A
    assert reconcile.idle
    assert value(metrics, "controller_runtime_reconcile_total", result="success") == 1


async def test_reconciles_without_io_do_not_block_other_tasks() -> None:
    reconcile, turns = ScriptedReconcile(), 0
    demo = controller(reconcile)
    for number in range(100):
        demo.queue.add(Key("ns", str(number)))
    async with running(demo):
        while len(demo.queue):
            turns += 1
            await asyncio.sleep(0)
    assert turns > 100 / 2 / 2, "at least one for every two reconciles of each of the two workers"


async def test_requeue_after() -> None:
    reconcile, metrics = ScriptedReconcile(0.001, None), Metrics()
    demo = controller(reconcile, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert [await reconcile.next(), await reconcile.next()] == [A, A]
    assert value(metrics, "controller_runtime_reconcile_total", result="requeue_after") == 1


async def test_a_failure_is_retried_until_it_succeeds() -> None:
    reconcile, metrics = ScriptedReconcile(errors.Unreachable("gone"), ValueError("defect"), None), Metrics()
    demo = controller(reconcile, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert [await reconcile.next() for _ in range(3)] == [A, A, A]
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
    clock, reconcile = FakeClock(), ScriptedReconcile(*outcomes)
    queue = ObservedQueue(clock, Backoff(10, 60, jitter=lambda: 1.0))
    demo = Controller("demo", reconcile, metrics=Metrics(), queue=queue, workers=1)
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


async def test_throttled_is_not_counted_as_an_error() -> None:
    reconcile, metrics = ScriptedReconcile(throttled(0), None), Metrics()
    demo = controller(reconcile, metrics)
    demo.queue.add(A)
    async with running(demo):
        assert [await reconcile.next(), await reconcile.next()] == [A, A]
    assert value(metrics, "controller_runtime_reconcile_errors_total") == 0
    assert value(metrics, "controller_runtime_reconcile_total", result="requeue_after") == 1


async def test_a_reconcile_that_hangs_is_cancelled_and_retried() -> None:
    seen: asyncio.Queue[Key] = asyncio.Queue()

    async def hang(key: Key) -> None:
        seen.put_nowait(key)
        await asyncio.Event().wait()

    demo = controller(hang, timeout=0.01)
    demo.queue.add(A)
    async with running(demo):
        for _ in range(3):
            assert await asyncio.wait_for(seen.get(), 5) == A


async def test_one_worker_per_key() -> None:
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


@pytest.mark.parametrize("workers", [1, 2, 5])
async def test_reconciles_of_low_priority_that_hang_leave_workers_for_the_changes_of_users(workers: int) -> None:
    entered: asyncio.Queue[Key] = asyncio.Queue()
    leave = asyncio.Event()

    async def work(key: Key) -> None:
        entered.put_nowait(key)
        if key.namespace == "slow":
            await leave.wait()

    demo = Controller("demo", work, metrics=Metrics(), workers=workers)
    slow = [Key("slow", str(number)) for number in range(workers)]
    for key in slow:
        demo.queue.add(key, high_priority=False)
    async with running(demo):
        hanging = [await entered.get() for _ in range((workers + 1) // 2)]
        demo.queue.add(A)
        if workers == 1:
            leave.set()
        assert await asyncio.wait_for(entered.get(), 5) == A
        leave.set()
        assert hanging + [await entered.get() for _ in range(workers - len(hanging))] == slow


async def test_stopping_finishes_in_flight_reconciles_and_starts_no_others() -> None:
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


async def test_a_change_of_owner_reconciles_both_owners() -> None:
    reconcile = ScriptedReconcile()
    demo, children = controller(reconcile), Cache[Object]()
    demo.watch(children, lambda child: [Key("ns", child.controller.name)] if child.controller else [])
    async with running(demo):
        children.update("", obj("child", 1, owner="a"))
        assert await reconcile.next() == A
        children.update("", obj("child", 2, owner="b"))
        assert {await reconcile.next(), await reconcile.next()} == {A, B}
        children.delete("", obj("child", 3))
        assert await reconcile.next() == B


async def test_a_write_reconciles_in_other_controllers_only() -> None:
    cache = Cache[Object]()
    own, others = ScriptedReconcile(), ScriptedReconcile()
    demo, other = controller(own), Controller("other", others, metrics=Metrics(), workers=1)
    demo.watch(cache)
    other.watch(cache)
    async with running(demo), running(other):
        cache.record_write(obj("a", 1), "demo")
        assert await others.next() == A
        cache.update("", obj("b", 2))
        assert await own.next() == B


async def test_priority_of_changes() -> None:
    demo, objects, children = controller(ScriptedReconcile()), Cache[Object](), Cache[Object]()
    demo.watch(objects)
    demo.watch(children, lambda child: [Key("ns", child.controller.name)] if child.controller else [])
    objects.replace("", [obj("listed", 1)], "1")
    children.update("", obj("child", 2, owner="owner"))
    objects.update("", obj("changed", 3))
    assert [await demo.queue.get() for _ in range(3)] == [Key("ns", name) for name in ("changed", "listed", "owner")]
