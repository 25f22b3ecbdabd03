"""What protects a pod with a running build, and what the operator remembers."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from coder_k8s.api.autoscaling import Disruption
from coder_k8s.coderd.types import ProvisionerJob
from coder_k8s.controllers.provisioner.podstates import active, is_rolling, states
from coder_k8s.controllers.provisioner.protection import (
    BUSY,
    COST,
    DO_NOT_DISRUPT,
    MARKER,
    SAFE_TO_EVICT,
    cost_of,
    is_protected,
    protect,
)
from coder_k8s.controllers.provisioner.scaling_memory import Memory
from coder_k8s.kube.objects import Manifest, Unstructured, timestamp

from .scaling import NOW, ago, job

ALL = f"{SAFE_TO_EVICT},{COST},{DO_NOT_DISRUPT}"
SET = {COST: "10", SAFE_TO_EVICT: "false", DO_NOT_DISRUPT: "true", MARKER: ALL}


def pod(
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, owner: str = "", **status: object
) -> Unstructured:
    metadata: Manifest = {
        "name": "build-0",
        "namespace": "test",
        "annotations": annotations or {},
        "labels": labels or {},
        "creationTimestamp": timestamp(ago(60)),
    }
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "build", "uid": "1", "controller": True}
        ]
    return Unstructured.decode(msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}))


@pytest.mark.parametrize(
    ("annotations", "busy", "mode", "changes", "raises"),
    [
        pytest.param({}, True, "Annotations", SET, True, id="a build starts"),
        pytest.param({}, True, "None", {COST: "10", MARKER: COST}, True, id="only the cost"),
        pytest.param(SET, True, "Annotations", {}, False, id="it runs"),
        pytest.param(SET, False, "Annotations", dict.fromkeys(SET), False, id="it ends"),
        pytest.param({}, False, "Annotations", {}, False, id="none runs"),
        pytest.param(
            {COST: "-7"},
            True,
            "Annotations",
            {SAFE_TO_EVICT: "false", DO_NOT_DISRUPT: "true", MARKER: f"{SAFE_TO_EVICT},{DO_NOT_DISRUPT}"},
            False,
            id="a user set the cost",
        ),
        pytest.param({COST: "-7", SAFE_TO_EVICT: "true"}, False, "Annotations", {}, False, id="a user's, when idle"),
        pytest.param(
            SET | {COST: "99"},
            False,
            "Annotations",
            {SAFE_TO_EVICT: None, DO_NOT_DISRUPT: None, MARKER: None},
            False,
            id="a user changed the cost",
        ),
        pytest.param(
            SET, True, "None", {SAFE_TO_EVICT: None, DO_NOT_DISRUPT: None, MARKER: COST}, False, id="another mode"
        ),
    ],
)
def test_annotations(
    annotations: dict[str, str], busy: bool, mode: str, changes: dict[str, str | None], raises: bool
) -> None:
    found = protect(pod(annotations), busy=busy, disruption=Disruption(protect_busy_pods=mode))
    assert found.metadata.get("annotations", {}) == changes
    assert found.raises is raises
    assert "labels" not in found.metadata


def test_the_label_of_a_budget() -> None:
    budget = Disruption(protect_busy_pods="Budget")
    assert protect(pod(), busy=True, disruption=budget).metadata["labels"] == {BUSY: "true"}
    marked = pod(SET, {BUSY: "true"})
    assert protect(marked, busy=True, disruption=budget).metadata == {}
    assert protect(marked, busy=True, disruption=Disruption()).metadata == {"labels": {BUSY: None}}
    assert is_protected(marked)
    released = protect(marked, busy=True, disruption=None).metadata
    assert released == {"annotations": dict.fromkeys(SET), "labels": {BUSY: None}}
    assert not is_protected(pod({COST: "5"}))


@pytest.mark.parametrize(("value", "cost"), [("10", 10), ("-3", -3), ("much", 0), ("", 0)])
def test_the_cost_of_a_pod(value: str, cost: int) -> None:
    assert cost_of(pod({COST: value})) == cost


def test_states_of_pods() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(ago(30))}
    running, ended = pod({COST: "10"}, phase="Running", conditions=[ready]), pod(phase="Failed")
    assert active([running, ended]) == [running]
    [state] = states([running, ended], {"build-0": ago(5)})
    assert (state.ready_since, state.scheduled, state.running, state.cost) == (ago(30), True, True, 10)
    assert (state.created, state.idle_since) == (ago(60), ago(5))
    one, other = (pod(labels={"pod-template-hash": value}, owner="ReplicaSet") for value in "ab")
    assert is_rolling([one, other])
    assert not is_rolling([one, one])
    assert not is_rolling([one, pod(labels={"pod-template-hash": "b"})])


def running(name: str, worker: str, waited: float = 40) -> ProvisionerJob:
    return replace(job(60, worker=worker), id=name, started_at=ago(60 - waited))


def test_errors_are_counted_once_per_interval() -> None:
    memory = Memory()
    assert [memory.fail(NOW + timedelta(seconds=at)) for at in (0, 1, 9, 10, 25)] == [1, 1, 1, 2, 3]
    memory.succeed()
    assert memory.fail(NOW) == 1


def test_idle_since_the_first_time_without_a_job() -> None:
    memory = Memory()
    memory.observe_idle(["a", "b"], {"b"}, NOW)
    memory.observe_idle(["a", "b"], set(), NOW + timedelta(seconds=9))
    assert memory.idle_since == {"a": NOW, "b": NOW + timedelta(seconds=9)}
    memory.observe_idle(["b"], {"b"}, NOW)
    assert memory.idle_since == {}


def test_the_wait_of_a_job_is_counted_once_and_not_for_those_that_ran_before() -> None:
    memory = Memory()
    assert memory.observe_running([running("old", "a")], {"a", "b"}) == []
    both = [running("old", "a"), running("new", "b"), running("other", "elsewhere")]
    assert memory.observe_running(both, {"a", "b"}) == [timedelta(seconds=40)]
    assert memory.observe_running(both, {"a", "b"}) == []


def test_a_build_is_lost_if_two_answers_list_it_without_its_pod() -> None:
    memory = Memory()
    memory.observe_running([running("one", "a"), running("two", "b")], {"a", "b"})
    assert memory.observe_lost({"a", "b"}, NOW) == 0
    assert memory.observe_lost({"b"}, NOW) == 0
    assert memory.observe_lost({"b"}, NOW) == 0
    assert memory.observe_lost({"b"}, NOW + timedelta(seconds=10)) == 1
    assert memory.observe_lost({"b"}, NOW + timedelta(seconds=20)) == 0


def test_a_build_that_ended_is_not_lost() -> None:
    memory = Memory()
    memory.observe_running([running("one", "a")], {"a"})
    assert memory.observe_lost(set(), NOW) == 0
    memory.observe_running([], set())
    assert memory.observe_lost(set(), NOW + timedelta(seconds=10)) == 0
