"""How many pods an autoscaled provisioner has."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coder_k8s.api.autoscaling import Autoscaling, ScaleDownRules, ScaleUpRules, ScalingBehavior, ScalingPolicy
from coder_k8s.controllers.provisioner.assignment import Share
from coder_k8s.controllers.provisioner.autoscaling import Demand, Limit, decide, room
from coder_k8s.controllers.provisioner.behavior import History
from coder_k8s.controllers.provisioner.victims import PodState, pods_start, removable

from .scaling import BUSY_COST, NOW, ago, autoscaling, job, observed, pods

SETTLED = History()
"""A history whose windows are empty, so that the number of pods may go down."""
ZERO = {"min_replicas": 0}


@pytest.mark.parametrize(
    ("spec", "seen", "desired", "limited_by"),
    [
        pytest.param({}, {"idle": 1}, 1, Limit.MINIMUM, id="nothing to do"),
        pytest.param({}, {"idle": 1, "jobs": 1}, 1, "", id="one job, one pod"),
        pytest.param({}, {"busy": 2, "jobs": 3}, 5, "", id="busy pods and jobs that wait"),
        pytest.param({"idle_replicas": 2}, {"busy": 2, "jobs": 1}, 5, "", id="spare pods while something runs"),
        pytest.param({"idle_replicas": 2}, {"idle": 1}, 1, Limit.MINIMUM, id="no spare pods otherwise"),
        pytest.param({"max_replicas": 4}, {"busy": 2, "jobs": 3}, 4, Limit.MAXIMUM, id="at most the maximum"),
        pytest.param({"max_replicas": 500}, {"busy": 1, "jobs": 300}, 101, Limit.POLICY, id="the policies"),
        pytest.param({}, {"idle": 9}, 1, Limit.MINIMUM, id="down to the minimum"),
        pytest.param({}, {"idle": 3, "busy": 2}, 2, "", id="down to the busy pods"),
        pytest.param({"max_replicas": 2}, {"busy": 5}, 5, Limit.BUSY, id="busy pods stay above the maximum"),
        pytest.param({"max_replicas": 2}, {"busy": 5, "idle": 3}, 5, Limit.BUSY, id="idle pods above the maximum"),
        pytest.param({}, {"idle": 3, "scheduled": 5}, 5, Limit.SCHEDULE, id="a schedule"),
        pytest.param({"max_replicas": 4}, {"idle": 3, "scheduled": 5}, 4, Limit.SCHEDULE, id="a schedule, at most"),
        pytest.param({}, {"idle": 3, "scheduled": 5, "jobs": 7}, 7, "", id="more than the schedule"),
        pytest.param({}, {"idle": 3, "hold": Limit.ROTATION}, 3, Limit.ROTATION, id="no fewer during a rotation"),
        pytest.param({}, {"idle": 3, "hold": Limit.UPDATE}, 3, Limit.UPDATE, id="no fewer during an update"),
        pytest.param({}, {"jobs": 3, "idle": 1, "hold": Limit.UPDATE}, 3, "", id="more during an update"),
        pytest.param({}, {"idle": 3, "unmapped": 1}, 3, Limit.UNKNOWN_PODS, id="a job in an unknown pod"),
        pytest.param({}, {"idle": 2, "jobs": 2, "unresponsive": 2}, 3, "", id="one pod for daemons that take no job"),
        pytest.param({}, {"jobs": 5, "stuck": 2}, 2, Limit.NOT_STARTING, id="no more while pods do not start"),
        pytest.param({}, {"jobs": 2, "stuck": 2, "busy": 1}, 3, Limit.NOT_STARTING, id="those that do not start stay"),
        pytest.param({}, {"stuck": 2, "busy": 1}, 1, "", id="unless no job waits"),
        pytest.param({}, {"jobs": 3, "starting": 3}, 3, "", id="pods that start are counted"),
        pytest.param({}, {"current": 0}, 1, Limit.MINIMUM, id="below the minimum"),
    ],
)
def test_desired(spec: dict[str, Any], seen: dict[str, Any], desired: int, limited_by: str) -> None:
    decision = decide(autoscaling(**spec), observed(**seen), SETTLED)
    assert (decision.desired, decision.limited_by) == (desired, limited_by)


def awake(seconds: float) -> list[PodState]:
    return [PodState("idle-0", ago(seconds + 20), ago(seconds))]


@pytest.mark.parametrize(
    ("seen", "desired", "limited_by"),
    [
        pytest.param({"current": 0, "last_scale": ago(479)}, 0, "", id="asleep"),
        pytest.param({"current": 0, "last_scale": ago(480)}, 1, Limit.WAKE, id="wakes up two minutes early"),
        pytest.param({"current": 0, "last_scale": None}, 1, Limit.WAKE, id="never woke up"),
        pytest.param({"current": 0, "covered": True}, 0, "", id="another daemon covers the tags"),
        pytest.param({"current": 0, "jobs": 3, "last_scale": ago(1)}, 3, "", id="a job wakes it up"),
        pytest.param({"current": 1, "last_scale": ago(1)}, 1, Limit.WAKE, id="the pod does not exist yet"),
        pytest.param({"starting": 1, "last_scale": ago(9)}, 1, Limit.WAKE, id="the pod starts"),
        pytest.param({"pods": awake(74), "last_scale": ago(99)}, 1, Limit.WAKE, id="until coderd saw it"),
        pytest.param({"pods": awake(75), "last_scale": ago(99)}, 0, "", id="sleeps again"),
        pytest.param({"stuck": 1, "last_scale": ago(200)}, 0, "", id="the pod does not start"),
        pytest.param({"current": 0, "scheduled": 2}, 2, Limit.SCHEDULE, id="a schedule"),
    ],
)
def test_a_provisioner_at_zero_wakes_up(seen: dict[str, Any], desired: int, limited_by: str) -> None:
    decision = decide(autoscaling(**ZERO), observed(**seen), SETTLED)
    assert (decision.desired, decision.limited_by) == (desired, limited_by)


@pytest.mark.parametrize(
    ("seen", "desired"),
    [
        ({"current": 4, "failures": 2, "fallback": 6}, 4),
        ({"current": 4, "failures": 3, "fallback": 6}, 6),
        ({"current": 9, "failures": 3, "fallback": 6}, 9),
        ({"current": 4, "failures": 9, "fallback": 99}, 20),
        ({"current": 0, "failures": 1, "fallback": 6}, 1),
        ({"current": 1, "failures": 1, "scheduled": 5}, 5),
        ({"current": 30, "failures": 9}, 30),
    ],
)
def test_an_unreadable_queue_never_removes_pods(seen: dict[str, Any], desired: int) -> None:
    decision = decide(autoscaling(), observed(demand=None, **seen), SETTLED)
    assert (decision.desired, decision.limited_by) == (desired, Limit.QUEUE)


@pytest.mark.parametrize(
    ("spec", "known", "busy", "expected"),
    [
        ({}, pods(idle=2), set(), 18),
        ({}, pods(idle=2, busy=3), {"busy-0", "busy-1", "busy-2"}, 15),
        ({}, pods(starting=2), set(), 20),
        ({"max_replicas": 3}, pods(busy=5), {f"busy-{n}" for n in range(5)}, 0),
        ({}, pods(stuck=1), set(), 0),
        ({}, [*pods(stuck=1), PodState("idle-9", ago(100), ago(90))], set(), 18),
    ],
)
def test_room_for_jobs(spec: dict[str, Any], known: list[PodState], busy: set[str], expected: int) -> None:
    assert room(autoscaling(**spec), known, frozenset(busy), NOW) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (pods(idle=2, busy=2, starting=1), 3),
        ([PodState("busy-0", ago(9), ago(5), cost=0), *pods(idle=2)], 0),  # the cost is not in the cache yet
        ([PodState("busy-0", ago(9), None, cost=BUSY_COST), *pods(idle=2)], 0),  # not ready: removed first
        ([*pods(busy=1), PodState("idle-0", ago(9), ago(5), cost=50), PodState("idle-1", ago(9), ago(5))], 1),
        (pods(busy=3), 0),
        (pods(idle=3), 3),
    ],
)
def test_what_can_be_removed_without_a_busy_pod(known: list[PodState], expected: int) -> None:
    assert removable(known, {pod.name for pod in known if pod.name.startswith("busy")}) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (pods(starting=3), True),
        (pods(idle=3, stuck=1), False),
        ([*pods(stuck=1), PodState("new", ago(200), ago(100))], True),
        ([*pods(stuck=1), PodState("old", ago(201), ago(100))], False),
    ],
)
def test_whether_pods_start(known: list[PodState], expected: bool) -> None:
    assert pods_start(known, NOW) is expected


# Properties

specs = st.builds(
    lambda low, more, idle: autoscaling(min_replicas=low, max_replicas=max(1, low + more), idle_replicas=idle),
    st.integers(0, 5),
    st.integers(0, 10),
    st.integers(0, 3),
)
states = st.fixed_dictionaries(
    {name: st.integers(0, 6) for name in ("idle", "busy", "starting", "stuck", "jobs", "scheduled")}
    | {"unmapped": st.integers(0, 1), "unresponsive": st.integers(0, 2)}
)
UNLIMITED = ScalingBehavior(
    scale_up=ScaleUpRules(policies=[ScalingPolicy(type="Pods", value=1000, period_seconds=1)]),
    scale_down=ScaleDownRules(stabilization_window_seconds=0),
)


def changed(spec: Autoscaling, **fields: Any) -> Autoscaling:
    return Autoscaling(**{name: getattr(spec, name) for name in spec.__struct_fields__} | fields)


@given(specs, states, st.integers(0, 20))
def test_between_floor_and_maximum_unless_pods_are_busy(spec: Autoscaling, seen: dict[str, int], current: int) -> None:
    now = observed(current=current, **seen)
    desired = decide(spec, now, SETTLED).desired
    floor = min(max(spec.min_replicas, seen["scheduled"]), spec.max_replicas)
    assert desired >= min(floor, current) or desired > current
    assert desired <= max(spec.max_replicas, current)


@given(specs, states, st.integers(1, 20))
def test_no_busy_pod_is_removed_even_if_the_maximum_drops(
    spec: Autoscaling, seen: dict[str, int], maximum: int
) -> None:
    spec = changed(spec, max_replicas=max(maximum, spec.min_replicas, 1), behavior=UNLIMITED)
    now = observed(**seen)
    decision = decide(spec, now, SETTLED)
    removed = len(now.pods) - decision.desired
    assert removed <= 0 or removed <= seen["idle"] + seen["starting"] + seen["stuck"]
    assert removed <= 0 or not seen["unmapped"]


@given(specs, states)
def test_constant_input_causes_at_most_one_change(spec: Autoscaling, seen: dict[str, int]) -> None:
    spec = changed(spec, min_replicas=max(1, spec.min_replicas), max_replicas=spec.max_replicas + 1, behavior=UNLIMITED)
    now, history, numbers = observed(**seen), SETTLED, []
    for turn in range(4):
        decision = decide(spec, now, history)
        history = decision.history.change(decision.desired - now.current, now.now)
        numbers.append(decision.desired)
        now = replace(now, current=decision.desired, now=now.now + timedelta(milliseconds=turn))
    assert len(set(numbers)) == 1


@given(specs, states)
def test_constant_input_never_changes_direction(spec: Autoscaling, seen: dict[str, int]) -> None:
    """With policies it may take several changes, all in one direction."""
    now, history, numbers = observed(**seen | {"stuck": 0}), None, []
    for _ in range(60):
        decision = decide(spec, now, history)
        history = decision.history.change(decision.desired - now.current, now.now)
        numbers.append(decision.desired)
        now = replace(now, current=decision.desired, now=now.now + timedelta(seconds=10), covered=True)
    assert numbers in (sorted(numbers), sorted(numbers, reverse=True))


@given(specs, states)
def test_one_more_job_adds_at_most_one_pod(spec: Autoscaling, seen: dict[str, int]) -> None:
    """And, if it is the only one, the spare ones."""
    now = observed(**seen | {"stuck": 0, "unresponsive": 0})
    demand = now.demand
    assert demand is not None
    more = replace(now, demand=demand._replace(share=Share((*demand.share.jobs, job()))))
    before, after = decide(spec, now, SETTLED).desired, decide(spec, more, SETTLED).desired
    first = not (demand.busy or demand.share.jobs or demand.unmapped)
    assert before <= after <= before + 1 + (spec.idle_replicas if first else 0)


@given(specs, states, st.integers(0, 9), st.integers(0, 9))
def test_an_unreadable_view_never_removes_pods(
    spec: Autoscaling, seen: dict[str, int], failures: int, fallback: int
) -> None:
    now = replace(observed(**seen), demand=None, failures=failures, fallback=fallback)
    assert decide(spec, now, SETTLED).desired >= now.current


def test_a_readable_queue_removes_no_pods_before_one_window() -> None:
    """Also if it was unreadable for longer than the window."""
    now, history = observed(idle=5), None
    for failures in range(9):
        history = decide(autoscaling(), replace(now, demand=None, failures=failures), history).history
        now = replace(now, now=now.now + timedelta(minutes=1))
    for seconds in (0, 100, 239):
        assert decide(autoscaling(), replace(now, now=now.now + timedelta(seconds=seconds)), history).desired == 5
    assert decide(autoscaling(), replace(now, now=now.now + timedelta(seconds=240)), history).desired == 1


def test_single_errors_do_not_hold_back_a_removal() -> None:
    now, history, current = observed(idle=5), None, 5
    for seconds in range(0, 900, 10):
        seen = replace(now, now=now.now + timedelta(seconds=seconds), current=current)
        if seconds % 250 == 240:
            seen = replace(seen, demand=None, failures=1)
        decision = decide(autoscaling(), seen, history)
        history, current = decision.history, decision.desired
    assert current == 1


@given(specs, states, st.lists(st.integers(1, 60), max_size=20))
def test_a_restart_never_removes_pods_within_one_window(
    spec: Autoscaling, seen: dict[str, int], steps: list[int]
) -> None:
    started = observed(**seen)
    spec = changed(spec, max_replicas=max(spec.max_replicas, started.current))
    now, history = started, None
    for step in steps:
        if now.now - started.now >= timedelta(seconds=300):
            break
        decision = decide(spec, now, history)
        assert decision.desired >= started.current
        history = decision.history.change(decision.desired - now.current, now.now)
        now = replace(now, current=decision.desired, now=now.now + timedelta(seconds=step), demand=Demand())
