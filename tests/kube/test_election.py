import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.kube import errors
from coder_k8s.kube.election import Election, ElectionOptions, LeadershipLost
from coder_k8s.kube.http import Http
from coder_k8s.kube.lease import LeaseSpec, can_acquire, claim, release
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, micro_timestamp
from tests.kube.lease_server import LeaseServer
from tests.support import eventually
from tests.support.metrics import sample_value

KEY = Key("ns", "lease")
NOW = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
BOB = LeaseSpec(
    holder_identity="bob", lease_duration_seconds=15, renew_time="2001-01-01T00:00:00.000000Z", lease_transitions=3
)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


Candidate = Callable[..., Election]


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()


@pytest.fixture
async def http(server: LeaseServer, tmp_path: Path) -> AsyncIterator[Http]:
    async with server.http(tmp_path) as http:
        yield http


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def candidate(http: Http, clock: Clock) -> Candidate:
    def make(identity: str = "alice", metrics: Metrics | None = None, **options: Any) -> Election:
        defaults: dict[str, Any] = {"clock": clock, "now": lambda: NOW, "retry_period": 0.01, "jitter": lambda: 0.0}
        timing = ElectionOptions(**(defaults | options))
        return Election(http, KEY, identity, field_manager="test", metrics=metrics or Metrics(), options=timing)

    return make


async def acquire(election: Election) -> None:
    assert await election.acquire(asyncio.Event())


async def until_cancelled() -> None:
    await asyncio.Event().wait()


async def lost(leading: Awaitable[None]) -> LeadershipLost:
    """Return the loss of leadership with which `lead` ended."""
    with pytest.raises(ExceptionGroup) as caught:
        await leading
    (loss,) = caught.value.exceptions
    assert isinstance(loss, LeadershipLost)
    return loss


def lease_with(spec: LeaseSpec) -> dict[str, Any]:
    return {"spec": msgspec.to_builtins(spec)}


@pytest.mark.parametrize(
    ("spec", "unchanged_for", "expected"),
    [
        (LeaseSpec(), 0, True),  # created by hand, never held
        (LeaseSpec(lease_duration_seconds=1), 0, True),  # released
        (LeaseSpec(lease_duration_seconds=15), 14.9, False),  # its holder was removed by hand and has not noticed yet
        (LeaseSpec(lease_duration_seconds=15), 15, True),
        (LeaseSpec(holder_identity="alice", lease_duration_seconds=15), 0, True),
        (LeaseSpec(holder_identity="bob", lease_duration_seconds=15), 14.9, False),
        (LeaseSpec(holder_identity="bob", lease_duration_seconds=15), 15, True),
        (LeaseSpec(holder_identity="bob", lease_duration_seconds=60), 59, False),  # its own duration counts
        (LeaseSpec(holder_identity="bob"), 9.9, False),
        (LeaseSpec(holder_identity="bob"), 10, True),
    ],
)
def test_can_acquire(spec: LeaseSpec, unchanged_for: float, expected: bool) -> None:
    assert can_acquire(spec, "alice", unchanged_for, default_seconds=10) is expected


def test_claim_and_release_count_transitions() -> None:
    at, soon = micro_timestamp(NOW), micro_timestamp(NOW + timedelta(seconds=2))
    first = claim(None, "alice", 15, NOW)
    assert first == LeaseSpec(holder_identity="alice", lease_duration_seconds=15, acquire_time=at, renew_time=at)
    later = claim(first, "alice", 20, NOW + timedelta(seconds=2))
    assert later == msgspec.structs.replace(first, lease_duration_seconds=20, renew_time=soon)
    taken = claim(later, "bob", 15, NOW + timedelta(seconds=2))
    assert taken == LeaseSpec(
        holder_identity="bob", lease_duration_seconds=15, acquire_time=soon, renew_time=soon, lease_transitions=1
    )
    released = release(taken, NOW)
    assert released == LeaseSpec(lease_duration_seconds=1, acquire_time=at, renew_time=at, lease_transitions=1)
    assert claim(released, "carol", 15, NOW).lease_transitions == 2


async def test_a_missing_lease_is_created_at_once(server: LeaseServer, candidate: Candidate) -> None:
    election = candidate()
    with pytest.raises(errors.NotLeading):
        election.check()
    await acquire(election)
    election.check()
    assert server.spec["holderIdentity"] == "alice"
    assert server.spec["leaseDurationSeconds"] == 15
    assert MICRO_TIME.fullmatch(server.spec["acquireTime"])
    assert MICRO_TIME.fullmatch(server.spec["renewTime"])


async def test_one_of_many_candidates_acquires_it(server: LeaseServer, candidate: Candidate) -> None:
    elections = [candidate(f"candidate-{number}") for number in range(8)]
    stopping = asyncio.Event()
    attempts = [asyncio.create_task(election.acquire(stopping)) for election in elections]
    await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
    await eventually(lambda: server.watchers >= 1)
    stopping.set()
    assert sorted(await asyncio.gather(*attempts)) == [False] * 7 + [True]
    (winner,) = (election for election in elections if election.leading)
    assert server.spec["holderIdentity"] == winner.identity


@pytest.mark.parametrize("renewed", ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
async def test_expiration_depends_on_observation_not_on_the_renew_time(
    renewed: str, server: LeaseServer, candidate: Candidate, clock: Clock
) -> None:
    reads = 0

    def count(_: object) -> None:
        nonlocal reads
        reads += 1

    await server.edit(lease_with(msgspec.structs.replace(BOB, renew_time=renewed)))
    server.before_response = count
    acquiring = asyncio.create_task(acquire(candidate()))
    await eventually(lambda: reads > 3)
    clock.time += 14.9
    seen = reads
    await eventually(lambda: reads > seen + 3)
    assert server.writes == []
    clock.time += 0.2
    await acquiring
    assert server.spec["holderIdentity"] == "alice"
    assert server.spec["leaseTransitions"] == 4


@pytest.mark.parametrize("restored", [False, True])
async def test_a_renewed_lease_is_not_acquired(
    server: LeaseServer, candidate: Candidate, clock: Clock, restored: bool
) -> None:
    reads = asyncio.Semaphore(0)
    server.before_response = lambda request: reads.release() if "lease" in request.match_info.values() else None
    await server.edit(lease_with(BOB))
    stopping = asyncio.Event()
    acquiring = asyncio.create_task(candidate().acquire(stopping))
    for second in range(5):
        await asyncio.wait_for(reads.acquire(), 10)
        if restored and second == 1:
            server.restore()
        await server.edit(lease_with(msgspec.structs.replace(BOB, renew_time=f"2001-01-01T00:00:0{second}.000000Z")))
        await reads.acquire()
        await reads.acquire()  # the second one started after the edit
        clock.time += 14
    stopping.set()
    assert not await acquiring
    assert server.writes == []


async def test_the_right_to_write_expires(candidate: Candidate, clock: Clock) -> None:
    election = candidate(retry_period=60.0)
    await acquire(election)
    clock.time += 9.9
    election.check()
    clock.time += 0.2
    with pytest.raises(errors.NotLeading):
        election.check()


async def test_the_right_to_write_counts_from_the_start_of_the_renewal(
    server: LeaseServer, candidate: Candidate, clock: Clock
) -> None:
    election = candidate()
    await acquire(election)
    leading = asyncio.create_task(election.lead(until_cancelled))
    responded = asyncio.Event()

    def delay(request: object) -> None:
        if not responded.is_set():
            clock.time += 6
            responded.set()

    server.before_response = delay
    await responded.wait()
    writes = len(server.writes)
    server.reject = lambda _: 500
    await eventually(lambda: len(server.writes) == writes)
    clock.time += 4.1  # 10.1 s after the start of the renewal, 4.1 s after its response
    assert not election.leading
    await lost(leading)


async def test_a_holder_that_was_suspended_past_the_deadline_writes_nothing(
    server: LeaseServer, candidate: Candidate, clock: Clock
) -> None:
    election = candidate(retry_period=0.2)
    await acquire(election)
    leading = asyncio.create_task(election.lead(until_cancelled))
    await eventually(lambda: len(server.writes) >= 3)
    writes = len(server.writes)
    clock.time += 11
    assert "could not renew" in str(await lost(leading))
    assert len(server.writes) == writes
    assert server.spec["holderIdentity"] == "alice", "it did not write a release either"


async def test_a_server_that_hangs_does_not_delay_the_loss(server: LeaseServer, candidate: Candidate) -> None:
    loop = asyncio.get_running_loop()
    election = candidate(clock=loop.time, lease_duration=2, renew_deadline=1.0, retry_period=0.1)
    await acquire(election)
    server.hang = lambda _: True
    started = loop.time()
    await lost(election.lead(until_cancelled))
    assert loop.time() - started < 1.5


async def test_a_failed_renewal_is_retried(server: LeaseServer, candidate: Candidate) -> None:
    election = candidate()
    await acquire(election)
    statuses = iter([500, 409, 429, 503])
    server.reject = lambda request: next(statuses, 0) if request.method == "PUT" else 0
    done = asyncio.Event()
    leading = asyncio.create_task(election.lead(lambda: _wait(done)))
    await eventually(lambda: len(server.writes) >= 4)
    assert election.leading
    done.set()
    await leading


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


@pytest.mark.parametrize("holder", ["bob", ""])
async def test_a_lease_with_another_holder_is_lost(holder: str, server: LeaseServer, candidate: Candidate) -> None:
    election = candidate()
    await acquire(election)
    leading = asyncio.create_task(election.lead(until_cancelled))
    taken = msgspec.structs.replace(BOB, holder_identity=holder)
    await server.edit(lease_with(taken))
    state = f"held by {holder}" if holder else "has no holder"
    assert state in str(await lost(leading))
    assert not election.leading
    assert server.spec == msgspec.to_builtins(taken), "it is not released"


async def test_a_deleted_lease_stays_with_its_holder(server: LeaseServer, candidate: Candidate) -> None:
    leader, standby = candidate("alice", retry_period=0.05), candidate("bob")
    await acquire(leader)
    before = server.spec
    stopping, done = asyncio.Event(), asyncio.Event()
    acquiring = asyncio.create_task(standby.acquire(stopping))
    await eventually(lambda: standby._observed is not None)
    await server.edit(None)
    leading = asyncio.create_task(leader.lead(lambda: _wait(done)))
    await eventually(lambda: server.lease is not None)
    assert server.spec == before
    stopping.set()
    assert not await acquiring
    done.set()
    await leading


async def test_an_edit_of_annotations_is_kept(server: LeaseServer, candidate: Candidate) -> None:
    election = candidate()
    await acquire(election)
    done = asyncio.Event()
    leading = asyncio.create_task(election.lead(lambda: _wait(done)))
    lease = msgspec.json.decode(msgspec.json.encode(server.lease))
    lease["metadata"]["annotations"] = {"note": "hello"}
    await server.edit(lease)
    writes = len(server.writes)
    await eventually(lambda: len(server.writes) > writes + 1)
    done.set()
    await leading
    assert server.lease is not None
    assert server.lease["metadata"]["annotations"] == {"note": "hello"}


async def test_the_lease_is_released_after_the_last_write(
    http: Http, server: LeaseServer, candidate: Candidate
) -> None:
    election = candidate(retry_period=60.0)
    await acquire(election)
    order: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        election.check()
        order.append("work " + server.spec["holderIdentity"])

    await election.lead(work)
    assert order == ["work alice"]
    assert server.spec.get("holderIdentity", "") == ""
    assert server.spec["leaseDurationSeconds"] == 1
    with pytest.raises(errors.NotLeading):
        election.check()


async def test_work_that_fails_ends_leadership(server: LeaseServer, candidate: Candidate) -> None:
    election = candidate()
    await acquire(election)

    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        await election.lead(work)
    assert caught.group_contains(ZeroDivisionError)
    assert server.spec.get("holderIdentity", "") == ""


async def test_a_cancelled_renewal_does_not_prevent_the_release(server: LeaseServer, candidate: Candidate) -> None:
    election = candidate()
    await acquire(election)
    lease = msgspec.json.decode(msgspec.json.encode(server.lease))
    await server.edit(lease)  # the same spec at an unknown version

    async def work() -> None:
        return

    await election.lead(work)
    assert server.spec.get("holderIdentity", "") == ""


async def test_a_standby_observes_a_release_at_once(server: LeaseServer, candidate: Candidate) -> None:
    leader, standby = candidate("alice"), candidate("bob", retry_period=60.0)
    await acquire(leader)
    acquiring = asyncio.create_task(acquire(standby))
    await eventually(lambda: server.watchers and standby._observed)

    async def work() -> None:
        return

    await leader.lead(work)
    async with asyncio.timeout(1):
        await acquiring
    assert server.spec["leaseTransitions"] == 1


async def test_without_a_watch_a_standby_polls(server: LeaseServer, candidate: Candidate, clock: Clock) -> None:
    server.reject = lambda request: 403 if "name" not in request.match_info and request.method == "GET" else 0
    await server.edit(lease_with(BOB))
    standby = candidate()
    acquiring = asyncio.create_task(acquire(standby))
    await eventually(lambda: standby._observed)
    await server.edit(lease_with(release(BOB, NOW)))
    async with asyncio.timeout(1):
        await acquiring
    assert server.watchers == 0


async def test_a_standby_without_permission_keeps_retrying(server: LeaseServer, candidate: Candidate) -> None:
    attempts = 0

    def reject(_: object) -> int:
        nonlocal attempts
        attempts += 1
        return 403 if attempts < 6 else 0

    server.reject = reject
    await acquire(candidate())
    assert server.spec["holderIdentity"] == "alice"


async def test_the_leader_metric(candidate: Candidate, clock: Clock) -> None:
    metrics = Metrics()
    election = candidate(metrics=metrics, retry_period=60.0)

    def value() -> float | None:
        return sample_value(metrics.registry, "leader_election_master_status", name="lease")

    assert value() == 0
    await acquire(election)
    assert value() == 1
    clock.time += 11
    assert value() == 0, "also before the process notices it"
