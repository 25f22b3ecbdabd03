"""Occurrences of cron expressions, also when the clock changes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.controllers.schedules import InvalidSchedule, parse

BERLIN = "Europe/Berlin"
EXPRESSIONS = ["50 8 * * 1-5", "30 2 * * *", "0 * * * *", "*/7 1-3 * * *", "0 0 1 * *", "15 2 * 3,10 SUN"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("expression", "zone", "now", "last", "following"),
    [
        # At the exact time, it has occurred.
        ("50 8 * * 1-5", "UTC", "2026-11-17T08:50:00Z", "2026-11-17T08:50:00Z", "2026-11-18T08:50:00Z"),
        ("50 8 * * 1-5", "UTC", "2026-11-17T08:49:59.999Z", "2026-11-16T08:50:00Z", "2026-11-17T08:50:00Z"),
        # Over the weekend.
        ("50 8 * * 1-5", BERLIN, "2026-11-15T12:00:00Z", "2026-11-13T07:50:00Z", "2026-11-16T07:50:00Z"),
        # 02:30 does not exist on 2026-03-29, and occurs twice on 2026-10-25.
        ("30 2 * * *", BERLIN, "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"),
        ("30 2 * * *", BERLIN, "2026-10-25T12:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ("30 2 * * *", BERLIN, "2026-10-25T01:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        # The hour that occurs twice counts twice with `*`.
        ("0 * * * *", BERLIN, "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
        ("0 0 29 2 *", "UTC", "2026-11-17T00:00:00Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
    ],
)
def test_occurrences(expression: str, zone: str, now: str, last: str, following: str) -> None:
    schedule = parse(expression, zone)
    assert (schedule.last(at(now)), schedule.next(at(now))) == (at(last), at(following))


@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]),
    now=st.timedeltas(timedelta(), timedelta(days=700)).map(lambda age: at("2026-01-01T00:00:00Z") + age),
)
def test_the_last_occurrence_is_the_one_before_the_next(expression: str, zone: str, now: datetime) -> None:
    schedule = parse(expression, zone)
    last, following = schedule.last(now), schedule.next(now)
    assert last is not None
    assert following is not None
    assert last <= now < following
    assert schedule.last(following) == following
    assert schedule.next(last) == following
    assert schedule.last(following - timedelta(seconds=1)) == last


@pytest.mark.parametrize(
    ("expression", "zone", "message"),
    [
        ("* * * *", "UTC", "must have 5 fields"),
        ("0 * * * * *", "UTC", "must have 5 fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 31 2 *", "UTC", "Bad day-of-month"),
        ("0 0 * * *", "Mars/Olympus", "'Mars/Olympus' is not a time zone"),
        ("0 0 * * *", "../../etc/passwd", "is not a time zone"),
        ("0 0 * * *", "Europe", "is not a time zone"),
        ("0 0 * * *", "", "is not a time zone"),
    ],
)
def test_what_is_not_valid_is_named(expression: str, zone: str, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        parse(expression, zone)
