import asyncio

import pytest
from aiohttp import web

from coder_k8s.kube import errors
from coder_k8s.kube.batching import BATCH, MAX_PART, MAX_PAUSE, MIN_BATCH, Batching, Latency, Rate, pause
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from tests.support import eventually
from tests.support.api import Api, refuse, reply

BUSY = MIN_BATCH / MAX_PAUSE
"""Messages per second from which the event loop pauses, if requests take long."""
SLOW = MAX_PAUSE / MAX_PART
"""Seconds of a request that do not limit the pause."""


@pytest.mark.parametrize(
    ("rate", "latency", "seconds"),
    [
        (0, SLOW, 0),
        (BUSY - 1, SLOW, 0),
        (BUSY + 1, SLOW, MAX_PAUSE),
        (BATCH / MAX_PAUSE, SLOW, MAX_PAUSE),
        (10 * BATCH / MAX_PAUSE, SLOW, MAX_PAUSE / 10),
        (BUSY + 1, SLOW / 2, 0),
        (2 * BUSY + 1, SLOW / 2, MAX_PAUSE / 2),
        (10 * BATCH / MAX_PAUSE, SLOW / 2, MAX_PAUSE / 10),
        (5000, 0, 0),
    ],
)
def test_the_pause_depends_on_the_rate_of_messages_and_the_latency(rate: float, latency: float, seconds: float) -> None:
    assert pause(rate, latency) == pytest.approx(seconds)


@pytest.mark.parametrize("round_trip", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("in_flight", [1, 2, 4, 8, 16, 64])
def test_pauses_cost_at_most_half_of_the_throughput(in_flight: int, round_trip: float) -> None:
    """Each pause delays the next requests, and so lowers the rate that the next pause is computed from."""
    duration = round_trip
    for _ in range(100):
        duration = round_trip + pause(in_flight / duration, round_trip)
    assert duration <= 2 * round_trip


def test_the_latency_follows_the_requests() -> None:
    latency = Latency()
    for number in range(50):
        latency.count(1000 + number, 0.01)
    assert latency.seconds == pytest.approx(0.01)
    assert latency.is_current(1049.5)
    assert not latency.is_current(1050.5)
    latency.count(1050.5, 0.02)
    assert latency.seconds > 0.01
    for _ in range(200):
        latency.count(1050.5, 0.02)
    assert latency.seconds == pytest.approx(0.02, rel=0.1)
    assert latency.is_current(1050.6)
    for _ in range(20):
        latency.count(1050.5, 0.01)
    assert latency.seconds == pytest.approx(0.01, rel=0.1)


def test_requests_that_wait_for_something_hardly_count() -> None:
    """A third of the requests of a new control plane are for a Role and a RoleBinding."""
    latency = Latency()
    for number in range(300):
        latency.count(1000, 0.1 if number % 6 in (1, 2) else 0.005)
    assert latency.seconds < 0.01
    assert not pause(24 * 13, latency.seconds), "24 control planes per second wait for their Roles, not for the CPU"


@pytest.mark.parametrize("rate", [20.0, 200.0, 5000.0])
def test_the_rate_is_measured(rate: float) -> None:
    measured = Rate()
    rates = [measured.count(1000 + number / rate) for number in range(int(rate * 2))]
    assert rates[-1] == pytest.approx(rate, rel=0.15)


def test_the_messages_for_one_control_plane_are_not_many_and_old_ones_do_not_count() -> None:
    measured = Rate()
    assert not any(pause(measured.count(1000), SLOW) for _ in range(13))
    assert any(pause(measured.count(1000.1), SLOW) for _ in range(100))
    assert not pause(measured.count(1002), SLOW)


async def test_many_messages_at_once_cause_one_pause() -> None:
    pauses: list[float] = []
    now = 1000.0
    batching = Batching(pauses.append, lambda: now)
    for batch in (1, 2):
        now += 2 * SLOW
        for _ in range(100):
            batching.count(now - SLOW)
        await eventually(lambda: len(pauses) == batch)  # noqa: B023 - awaited in the same iteration
    assert all(0 < seconds <= MAX_PAUSE for seconds in pauses)


async def test_the_latency_does_not_include_pauses() -> None:
    pauses: list[float] = []
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += 10 * SLOW

    batching = Batching(sleep, lambda: now)
    sent = now - SLOW / 4
    for batch in (1, 2):
        for _ in range(200):
            batching.count(sent)  # the second time before the pause
        await eventually(lambda: len(pauses) == batch)  # noqa: B023 - awaited in the same iteration
    assert pauses == [pytest.approx(MAX_PAUSE / 4)] * 2


class Recorder(Batching):
    """Records the messages, and whether they have a latency."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def count(self, sent: float | None = None) -> None:
        self.messages.append("part" if sent is None else "response")


async def test_responses_and_parts_of_a_watch_are_messages() -> None:
    batching = Recorder()

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path == "/denied":
            return await refuse(403, "Forbidden")(request)
        if request.path == "/get":
            return await reply({})(request)
        response = web.StreamResponse()
        await response.prepare(request)
        for number in (1, 2):
            await response.write(b"part\n")
            await eventually(lambda: batching.messages.count("part") == number)  # noqa: B023 - awaited in the same iteration
        return response

    async with Api(respond) as api, Http(api.config, "test", Metrics(), batching) as http:
        await http.send("GET", "/get", {}, {})
        with pytest.raises(errors.Forbidden):
            await http.send("GET", "/denied", {}, {})
        assert [part async for part in http.stream("/watch", {}, {}, 30)] == [b"part\n"] * 2
    assert batching.messages == ["response", "response", "part", "part"]


async def test_a_response_is_handled_before_a_watch_event_that_arrived_with_it() -> None:
    """The event is sent first, and both can be read when the event loop waits for messages the next time."""
    order: list[str] = []
    watching: list[web.StreamResponse] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path == "/write":
            await watching[0].write(b"event\n")
            return web.Response(body=b"{}")
        response = web.StreamResponse()
        await response.prepare(request)
        watching.append(response)
        await asyncio.Event().wait()
        return response

    async def follow() -> None:
        async for part in http.stream("/watch", {}, {}, 30):
            order.extend(part.decode().split())

    async with Api(respond) as api, Http(api.config, "test", Metrics()) as http:
        following = asyncio.create_task(follow())
        await eventually(lambda: watching)
        for number in range(1, 6):
            await http.send("POST", "/write", {}, {}, b"{}")
            order.append("response")
            await eventually(lambda: order.count("event") == number)  # noqa: B023 - awaited in the same iteration
        following.cancel()
    assert order == ["response", "event"] * 5
