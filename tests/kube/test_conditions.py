import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.kube.conditions import Condition, Finding, find, merge

EARLIER = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def condition(name: str = "Ready", status: str = "True", **changes: object) -> Condition:
    known = {"reason": "Fine", "message": "all pods are ready", "lastTransitionTime": EARLIER, "observedGeneration": 1}
    return msgspec.convert({**known, "type": name, "status": status, **changes}, Condition)


READY = Finding("Ready", True, "Fine", "all pods are ready")


@pytest.mark.parametrize(
    ("finding", "generation", "expected"),
    [
        pytest.param(READY, 1, condition(), id="no change"),
        pytest.param(READY, 2, condition(observedGeneration=2), id="another generation"),
        pytest.param(READY._replace(reason="Better"), 1, condition(reason="Better"), id="another reason"),
        pytest.param(READY._replace(message="even so"), 1, condition(message="even so"), id="another message"),
        pytest.param(
            Finding("Ready", False, "Broken", "no"),
            1,
            condition(status="False", reason="Broken", message="no", lastTransitionTime=NOW),
            id="true to false",
        ),
        pytest.param(
            Finding("Ready", None, "Paused"),
            1,
            condition(status="Unknown", reason="Paused", message="", lastTransitionTime=NOW),
            id="true to unknown",
        ),
    ],
)
def test_transition_time_changes_only_with_the_status(finding: Finding, generation: int, expected: Condition) -> None:
    assert merge([condition()], [finding], generation, NOW) == [expected]


def test_other_conditions_stay_and_new_ones_are_appended() -> None:
    existing = [condition("Theirs"), condition("Ready"), condition("AlsoTheirs")]
    findings = [Finding("Stalled", False, "No"), READY, Finding("Reconciling", True, "Yes")]
    merged = merge(existing, findings, 1, NOW)
    assert merged[:3] == existing
    assert [new.type for new in merged[3:]] == ["Stalled", "Reconciling"]


def test_drop() -> None:
    existing = [condition("Exposed"), condition("Ready")]
    assert merge(existing, [READY], 1, NOW, drop={"Exposed", "Absent"}) == [condition("Ready")]


@pytest.fixture(params=["UTC", "Asia/Tokyo"])
def _time_zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """The time zone of the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


def test_a_condition_without_a_generation_keeps_none() -> None:
    """Another controller may omit it."""
    text = b'{"type":"Theirs","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}'
    assert msgspec.json.encode(msgspec.json.decode(text, type=Condition)) == text


@pytest.mark.usefixtures("_time_zone")
def test_wire_format() -> None:
    local = (NOW + timedelta(microseconds=123456)).astimezone(timezone(timedelta(hours=2)))
    [made] = merge([], [Finding("Ready", None, "Pending")], 7, local)
    assert msgspec.to_builtins(made) == {
        "type": "Ready",
        "status": "Unknown",
        "reason": "Pending",
        "message": "",
        "observedGeneration": 7,
        "lastTransitionTime": "2026-02-03T04:05:06Z",
    }
    assert msgspec.json.decode(msgspec.json.encode(made), type=Condition) == made


def test_find() -> None:
    assert find([condition("A"), condition("B", "False")], "B") == condition("B", "False")
    assert find([condition("A")], "B") is None


types = st.sampled_from("ABCDE")
findings = st.builds(Finding, types, st.sampled_from([True, False, None]), st.sampled_from("XY"), st.sampled_from("mn"))
reconciles = st.lists(st.tuples(st.lists(findings, max_size=6), st.integers(1, 3)), max_size=6)


@given(reconciles)
def test_any_sequence_of_reconciles(history: list[tuple[list[Finding], int]]) -> None:
    conditions: list[Condition] = []
    for minutes, (found, generation) in enumerate(history):
        now = NOW + timedelta(minutes=minutes)
        before = conditions
        conditions = merge(before, found, generation, now)

        last = {finding.type: finding for finding in found}
        assert [new.type for new in conditions[: len(before)]] == [old.type for old in before]
        for new in conditions:
            old, finding = find(before, new.type), last.get(new.type)
            if finding is None:
                assert new == old
                continue
            assert (new.is_true, new.reason, new.message) == (finding.status, finding.reason, finding.message)
            assert new.observed_generation == generation
            if old is not None and len([f for f in found if f.type == new.type]) == 1:
                flipped = old.status != new.status
                assert new.last_transition_time == (now if flipped else old.last_transition_time)
        assert {new.type for new in conditions} == {old.type for old in before} | set(last)
        assert merge(conditions, last.values(), generation, now + timedelta(days=1)) == conditions
