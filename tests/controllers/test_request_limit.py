"""The number of requests per minute to one coderd."""

from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.controllers.request_limit import TOTAL, Consumer, RequestLimiter
from tests.support.clock import Clock

HEALTH, AUTOSCALING = Consumer.HEALTH, Consumer.AUTOSCALING


def admitted(limiter: RequestLimiter, consumer: Consumer, server: str = "a") -> int:
    """How many of many requests at once are admitted."""
    return sum(limiter.admits(server, consumer) for _ in range(500))


def test_each_consumer_has_a_limit() -> None:
    clock = Clock()
    limiter = RequestLimiter(clock)
    assert admitted(limiter, HEALTH) == 60
    assert limiter.wait("a", HEALTH) == 60
    assert limiter.wait("a", AUTOSCALING) == 0
    assert admitted(limiter, AUTOSCALING) == 60
    assert admitted(limiter, HEALTH, "b") == 60, "each server has its own limit"
    clock.advance(seconds=59)
    assert (admitted(limiter, HEALTH), limiter.wait("a", HEALTH)) == (0, 1)
    clock.advance(seconds=1)
    assert limiter.wait("a", HEALTH) == 0
    assert admitted(limiter, AUTOSCALING) == 100
    assert admitted(limiter, HEALTH) == 20, "autoscaling leaves some of them"


def test_servers_are_forgotten() -> None:
    clock = Clock()
    limiter = RequestLimiter(clock)
    for number in range(50):
        limiter.admits(f"server-{number}", HEALTH)
        clock.advance(minutes=1)
    limiter.wait("other", HEALTH)
    assert limiter._sent == {}


@given(st.lists(st.tuples(st.sampled_from(Consumer), st.floats(0, 5), st.integers(1, 40)), max_size=80))
def test_no_minute_has_more(steps: list[tuple[Consumer, float, int]]) -> None:
    clock = Clock()
    limiter = RequestLimiter(clock)
    sent: list[tuple[float, Consumer]] = []
    for consumer, seconds, number in steps:
        clock.advance(seconds=seconds)
        at = clock().timestamp()
        for _ in range(number):
            before = limiter.wait("a", consumer)
            accepted = limiter.admits("a", consumer)
            assert accepted == (before == 0)
            sent += [(at, consumer)] * accepted
    for start, _ in sent:
        minute = [by for at, by in sent if start <= at < start + 60]
        assert len(minute) <= TOTAL
        assert all(minute.count(each) <= each.value for each in Consumer)
