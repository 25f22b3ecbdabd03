"""When a report changes the condition."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.controllers.controlplane.health.codes import Severity
from coder_k8s.controllers.controlplane.health.runs import KEPT, Result, Runs, accepts, observe

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GOOD = Result(Severity.OK)
WARN = Result(Severity.WARNING, ("EDB02",))
WARN_2 = Result(Severity.WARNING, ("ESTUN01",))
BAD = Result(Severity.ERROR, ("EWS01",))
BAD_2 = Result(Severity.ERROR, ("EDB01",))
POLL = timedelta(minutes=5)


class Condition:
    """The result that the condition shows, after each report."""

    def __init__(self, known: Result | None = None, replicas: int = 2) -> None:
        self.known = known
        self.replicas = replicas
        self.runs = Runs()
        self.changes: list[datetime] = []

    def see(self, run: str, result: Result, now: datetime = NOW) -> Result | None:
        self.runs = observe(self.runs, run, result)
        if accepts(self.runs, self.known, self.replicas) and self.known != result:
            self.known = result
            self.changes.append(now)
        return self.known


@pytest.mark.parametrize(
    ("known", "seen", "expected"),
    [
        (None, [("1", GOOD)], GOOD),
        (None, [("1", WARN)], WARN),
        (None, [("1", BAD)], None),
        (None, [("1", BAD), ("1", BAD)], None),
        (None, [("1", BAD), ("2", BAD)], BAD),
        (None, [("1", BAD), ("2", BAD_2)], BAD_2),
        (None, [("1", BAD), ("2", GOOD), ("3", BAD)], GOOD),
        (None, [("1", BAD), ("1", GOOD), ("1", BAD)], GOOD),
        (GOOD, [("1", BAD)], GOOD),
        (GOOD, [("1", BAD), ("1", BAD), ("1", BAD)], GOOD),
        (GOOD, [("1", BAD), ("2", BAD)], BAD),
        (GOOD, [("1", BAD), ("2", GOOD), ("3", BAD)], GOOD),
        (GOOD, [("1", BAD), ("2", WARN), ("3", BAD)], GOOD),
        (GOOD, [("1", BAD), ("2", GOOD), ("3", BAD), ("4", BAD)], BAD),
        (GOOD, [("0", GOOD), ("1", BAD), ("2", GOOD), ("3", BAD), ("4", BAD)], GOOD),
        (GOOD, [("0", GOOD), ("1", BAD), ("2", GOOD), *((str(run), BAD) for run in range(3, 7))], BAD),
        (GOOD, [("1", WARN)], GOOD),
        (GOOD, [("1", WARN), ("2", WARN)], WARN),
        (GOOD, [("1", WARN), ("2", BAD)], GOOD),
        (WARN, [("1", BAD), ("2", BAD)], BAD),
        (WARN, [("1", WARN_2)], WARN),
        (WARN, [("1", WARN_2), ("2", WARN_2)], WARN_2),
        (WARN, [("1", WARN_2), ("2", WARN)], WARN),
        (WARN, [("1", GOOD)], GOOD),
        (BAD, [("1", BAD)], BAD),
        (BAD, [("1", BAD_2)], BAD),
        (BAD, [("1", BAD_2), ("2", BAD_2)], BAD_2),
        (BAD, [("1", WARN)], WARN),
        (BAD, [("1", GOOD)], GOOD),
        (BAD, [("1", BAD), ("1", GOOD)], GOOD),
        (GOOD, [("", BAD), ("", BAD)], GOOD),
    ],
)
def test_reports(known: Result | None, seen: list[tuple[str, Result]], expected: Result | None) -> None:
    condition = Condition(known)
    for run, result in seen:
        condition.see(run, result)
    assert condition.known == expected


def test_replicas_that_disagree_do_not_change_the_condition() -> None:
    """Each has its own cache, and requests reach them in turns."""
    condition = Condition(GOOD)
    for number in range(200):
        now, run = NOW + number * POLL, number // 4
        condition.see(*((f"a{run}", GOOD) if number % 2 else (f"b{run}", BAD)), now)
    assert condition.known == GOOD
    assert condition.changes == []


def test_a_single_replica_cannot_disagree() -> None:
    condition = Condition(GOOD, replicas=1)
    for number in range(0, 30, 3):
        condition.see(f"{number}", GOOD)
        condition.see(f"{number + 1}", BAD)
        assert condition.known == GOOD
        condition.see(f"{number + 2}", BAD)
        assert condition.known == BAD


def test_many_equal_runs_end_a_disagreement() -> None:
    condition = Condition(GOOD)
    for number in range(20):
        condition.see(f"{number}", BAD if number % 2 else GOOD)
    assert condition.runs.needed(2) == 12
    for number in range(12):
        condition.see(f"calm {number}", GOOD)
    assert condition.runs.needed(2) == 2


def simulate(bad: list[bool], days: int, seed: int, fails_at: timedelta | None = None) -> Condition:
    """Requests reach a random replica; each runs its check again after ten minutes, when it is asked."""
    rng = Random(seed)  # noqa: S311 - reproducible
    condition, caches = Condition(GOOD, len(bad)), dict[int, tuple[datetime, Result]]()
    end = NOW + timedelta(days=days)
    now = NOW
    while now < end:
        which = rng.randrange(len(bad))
        ran, result = caches.get(which, (NOW - timedelta(days=1), GOOD))
        if now - ran >= timedelta(minutes=10):
            broken = bad[which] or (fails_at is not None and now >= NOW + fails_at)
            ran, result = caches[which] = now, BAD if broken else GOOD
        condition.see(f"{which} {ran}", result, now)
        now += POLL
    return condition


@pytest.mark.parametrize("bad", [[True, False], [True, False, False], [True, True, False]])
def test_one_broken_replica_rarely_changes_the_condition(bad: list[bool]) -> None:
    """Without the rule about replicas that disagree, the condition changes several times a day."""
    changes = sum(len(simulate(bad, 10, seed).changes) for seed in range(10))
    assert changes / 100 < 1, "changes per day"


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_an_error_of_all_replicas_is_reported(replicas: int) -> None:
    fails_at = timedelta(hours=5)
    waits = [simulate([False] * replicas, 1, seed, fails_at).changes[0] - NOW - fails_at for seed in range(50)]
    assert max(waits) <= timedelta(minutes=20 if replicas == 1 else 60)
    assert sorted(waits)[25] <= timedelta(minutes=20)


RESULTS = st.sampled_from([GOOD, WARN, WARN_2, BAD, BAD_2])
SEEN = st.lists(st.tuples(st.sampled_from("abcdefgh"), RESULTS, st.integers(0, 30)), max_size=40)


@given(st.one_of(st.none(), RESULTS), SEEN)
def test_an_error_needs_two_runs_and_no_error_one(known: Result | None, seen: list[tuple[str, Result, int]]) -> None:
    condition, now = Condition(known), NOW
    runs: list[str] = []
    for run, result, minutes in seen:
        now += timedelta(minutes=minutes)
        before = condition.known
        after = condition.see(run, result, now)
        if result.severity < Severity.ERROR and before is not None and before.severity == Severity.ERROR:
            assert after == result
        runs = [*runs, run] if result.severity == Severity.ERROR else []
        if (
            after is not None
            and after.severity == Severity.ERROR
            and (before is None or before.severity < after.severity)
        ):
            assert len(set(runs)) > 1
    assert len(condition.runs.as_severe) <= KEPT
    assert len(condition.runs.earlier) <= KEPT
