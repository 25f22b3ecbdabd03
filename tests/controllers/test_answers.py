"""The cache of coderd's answers."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from coder_k8s.coderd.errors import CoderdError, RateLimited, Unavailable
from coder_k8s.controllers.answers import UNUSED, AnswerCache, Entry, Recheck, Throttled
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.objects import Key

KEY = Key("golden", "sydney")
MINUTE = timedelta(minutes=1)


class Time:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def answers(time: Time) -> AnswerCache[str]:
    return AnswerCache(time, Backoff(2.0, 120.0, lambda: 1.0))


def test_an_answer_is_valid_for_its_subject(answers: AnswerCache[str]) -> None:
    assert answers.keep(KEY, "this", "yes", 60) == "yes"
    assert answers.get(KEY, "this") == "yes"
    assert answers.get(KEY, "that") is None
    assert answers.get(Key("golden", "perth"), "this") is None


def test_an_answer_is_valid_to_its_last_moment(answers: AnswerCache[str], time: Time) -> None:
    answers.keep(KEY, "", "yes", 60)
    time.advance(59.999)
    assert answers.get(KEY, "") == "yes"
    assert answers.left(KEY) == pytest.approx(0.001)
    time.advance(0.001)
    assert answers.get(KEY, "") is None
    assert answers.left(KEY) == 0


@pytest.mark.parametrize("recheck", Recheck)
def test_an_error_is_valid_for_its_subject(answers: AnswerCache[str], recheck: Recheck) -> None:
    assert answers.fail(KEY, "this", "no", recheck) == "no"
    assert answers.get(KEY, "this") == "no"
    assert answers.get(KEY, "that") is None


def test_entry_does_not_show_a_token() -> None:
    assert "SECRET" not in repr(Entry(about="SECRET", value="SECRET"))


def test_age_of_an_unknown_answer_exceeds_every_limit(answers: AnswerCache[str]) -> None:
    assert answers.age(KEY) > timedelta(days=365)


def test_forgotten_answer(answers: AnswerCache[str]) -> None:
    answers.forget(KEY)
    answers.fail(KEY, "", "no", Recheck.BACKOFF)
    answers.forget(KEY)
    assert (answers.get(KEY, ""), answers.left(KEY), len(answers)) == (None, 0, 0)
    answers.fail(KEY, "", "no", Recheck.BACKOFF)
    assert answers.left(KEY) == 2


@pytest.mark.parametrize(
    ("recheck", "retry_after", "expected"),
    [
        (Recheck.STEADY, 0, [110] * 9),
        (Recheck.RETRY, 0, [30] * 9),
        (Recheck.RETRY, 60, [60] * 9),
        (Recheck.RETRY, 3600, [600] * 9),
        (Recheck.BACKOFF, 0, [2, 4, 8, 16, 32, 64, 120, 120, 120]),
    ],
)
def test_how_long_an_error_is_valid(
    answers: AnswerCache[str], time: Time, recheck: Recheck, retry_after: float, expected: list[float]
) -> None:
    """For any subject; a success resets the back-off."""
    for _ in range(2):
        waits = []
        for number, _ in enumerate(expected):
            answers.fail(KEY, number, "no", recheck, retry_after)
            waits.append(answers.left(KEY))
            time.advance(answers.left(KEY))
        assert waits == expected
        answers.keep(KEY, "", "yes", 60)


def test_the_steady_interval_is_that_of_the_cache(time: Time) -> None:
    answers: AnswerCache[str] = AnswerCache(time, steady=600)
    answers.fail(KEY, "", "no", Recheck.STEADY)
    assert answers.left(KEY) == 600


def test_memory_is_bounded(answers: AnswerCache[str], time: Time) -> None:
    """A back-off stays for a while after it ends, so that it can increase; unused entries are removed."""
    for number in range(100):
        answers.keep(number, "", "yes", 60)
        time.advance(60)
    assert len(answers) <= UNUSED / MINUTE + 2
    answers.fail(KEY, "", "no", Recheck.BACKOFF)
    time.advance(UNUSED.total_seconds())
    answers.fail(KEY, "", "no", Recheck.BACKOFF)
    assert answers.left(KEY) == 4


class Server:
    """Responds when the test releases it, and counts requests."""

    def __init__(self) -> None:
        self.requests = 0
        self.error: CoderdError | None = None
        self.proceed = asyncio.Event()
        self.proceed.set()

    async def ask(self) -> int:
        self.requests += 1
        number = self.requests
        await asyncio.sleep(0)
        await self.proceed.wait()
        if self.error is not None:
            raise self.error
        return number


async def test_a_shared_question_has_one_request(answers: AnswerCache[str], time: Time) -> None:
    server = Server()
    assert await asyncio.gather(*(answers.fetch("q", server.ask, MINUTE) for _ in range(9))) == [1] * 9
    time.advance(59)
    assert (await answers.fetch("q", server.ask, MINUTE), answers.age("q")) == (1, timedelta(seconds=59))
    assert await answers.fetch("other", server.ask, MINUTE) == 2
    assert await answers.fetch("q", server.ask, timedelta(seconds=59)) == 3


@pytest.mark.parametrize(
    ("error", "retry", "valid"),
    [
        (Unavailable("down"), 0, 0),
        (Unavailable("down"), 30, 30),
        (RateLimited("too often", 60), 0, 0),
        (RateLimited("too often", 60), 30, 60),
        (RateLimited("too often", 10), 30, 30),
        (RateLimited("too often", 7200), 30, 600),
    ],
    ids=repr,
)
async def test_an_error_is_shared(
    answers: AnswerCache[str], time: Time, error: CoderdError, retry: float, valid: float
) -> None:
    """With the callers that wait for the request, and for a time with later ones."""
    server = Server()
    server.error = error

    async def fetch() -> int:
        return await answers.fetch("q", server.ask, MINUTE, retry=lambda _: retry)

    assert await asyncio.gather(*(fetch() for _ in range(9)), return_exceptions=True) == [error] * 9
    assert server.requests == 1
    server.error = None
    if valid:
        time.advance(valid - 0.001)
        with pytest.raises(CoderdError):
            await fetch()
        time.advance(0.001)
    assert await fetch() == 2


async def test_the_request_of_a_task_that_is_cancelled_is_sent_again(answers: AnswerCache[str]) -> None:
    server = Server()
    server.proceed.clear()
    first, second = (asyncio.create_task(answers.fetch("q", server.ask, MINUTE)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    server.proceed.set()
    assert await second == 2
    assert first.cancelled()


async def test_a_request_in_flight_is_not_removed(answers: AnswerCache[str], time: Time) -> None:
    server = Server()
    server.proceed.clear()
    first = asyncio.create_task(answers.fetch("q", server.ask, MINUTE))
    await asyncio.sleep(0)
    time.advance(UNUSED.total_seconds() * 2)
    second = asyncio.create_task(answers.fetch("q", server.ask, timedelta(days=1)))
    await asyncio.sleep(0)
    server.proceed.set()
    assert (await first, await second, server.requests) == (1, 1, 1)


async def test_errors_in_a_row_delay_the_next_request(answers: AnswerCache[str], time: Time) -> None:
    server = Server()
    server.error = Unavailable("down")

    async def fails() -> int:
        with pytest.raises(Unavailable):
            await answers.fetch("q", server.ask, MINUTE, retry=Backoff(20.0, 300.0, lambda: 1.0).delay)
        return server.requests

    assert await fails() == 1
    for number, delay in enumerate((20, 40, 80, 160, 300, 300), start=1):
        time.advance(delay - 0.001)
        assert await fails() == number
        time.advance(0.001)
        assert await fails() == number + 1


async def test_a_request_that_is_not_admitted(answers: AnswerCache[str], time: Time) -> None:
    """An older answer is better than none."""
    server = Server()
    with pytest.raises(Throttled):
        await answers.fetch("q", server.ask, MINUTE, admits=lambda: False)
    assert await answers.fetch("q", server.ask, MINUTE, admits=lambda: True) == 1
    time.advance(300)
    assert await answers.fetch("q", server.ask, MINUTE, admits=lambda: False) == 1
    assert (answers.age("q"), answers.known("q"), answers.known("r")) == (timedelta(minutes=5), 1, None)
    assert await answers.fetch("q", server.ask, MINUTE, admits=lambda: True) == 2
    assert server.requests == 2


async def test_an_answer_in_use_stays(answers: AnswerCache[str], time: Time) -> None:
    server = Server()
    for _ in range(20):
        assert await answers.fetch("q", server.ask, timedelta(days=365)) == 1
        time.advance(300)


async def test_an_answer_is_as_old_as_its_request(answers: AnswerCache[str], time: Time) -> None:
    """A slow coderd listed what it responds with long before."""

    async def request() -> str:
        time.advance(20)
        return "slow"

    assert await answers.fetch("question", request, MINUTE) == "slow"
    assert answers.age("question") == timedelta(seconds=20)


async def test_a_slow_request_is_shared_although_its_answer_is_old(answers: AnswerCache[str], time: Time) -> None:
    sent, release = [], asyncio.Event()

    async def request() -> str:
        sent.append(time())
        await release.wait()
        return "slow"

    tasks = [asyncio.create_task(answers.fetch("question", request, timedelta(seconds=10))) for _ in range(3)]
    await asyncio.sleep(0)
    time.advance(20)
    release.set()
    assert await asyncio.gather(*tasks) == ["slow"] * 3
    assert len(sent) == 1


async def test_a_first_error_is_tolerated(answers: AnswerCache[str], time: Time) -> None:
    """The known answer is used instead, unless it is too old, or the error lasts."""
    failing = [False]

    async def request() -> str:
        if failing[0]:
            raise Unavailable("HTTP 502")
        return "known"

    async def fetch(tolerated: timedelta = 3 * MINUTE) -> str:
        return await answers.fetch("question", request, MINUTE, retry=lambda _: 20, tolerated=tolerated)

    assert await fetch() == "known"
    failing[0] = True
    time.advance(60)
    assert await fetch() == "known"
    time.advance(10)
    assert await fetch() == "known", "until the next attempt"
    with pytest.raises(Unavailable):
        await fetch(timedelta())
    time.advance(10)
    with pytest.raises(Unavailable):
        await fetch()
