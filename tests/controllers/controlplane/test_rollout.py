"""The rollout of a Deployment, and the condition `Available`."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.api.shared import PodStatus
from coder_k8s.controllers.controlplane.rollout import judge
from coder_k8s.controllers.report import Report, StatusReport
from coder_k8s.controllers.rollout import Rollout, explain, progress, report_counts, rollout
from coder_k8s.kube.objects import Unstructured

IMAGE = "coder:v2"
DEADLINE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "took too long"}
QUOTA = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}


def deployment(generation: int, wanted: int | None = None, **status: Any) -> Unstructured:
    template = {"spec": {"containers": [{"name": "other", "image": "other"}, {"name": "coder", "image": IMAGE}]}}
    spec = {"template": template} | ({} if wanted is None else {"replicas": wanted})
    manifest = {"metadata": {"name": "demo", "generation": generation}, "spec": spec, "status": status}
    return Unstructured.decode(msgspec.json.encode(manifest))


def counts(number: int, updated: int | None = None, **more: Any) -> dict[str, Any]:
    """The status of a Deployment all of whose pods are ready."""
    updated = number if updated is None else updated
    return {
        "replicas": number,
        "updatedReplicas": updated,
        "readyReplicas": number,
        "availableReplicas": number,
        **more,
    }


def found(wanted: int, replicas: int = 0, updated: int = 0, ready: int = 0, **more: Any) -> Rollout:
    return Rollout(wanted, replicas, updated, ready, image=IMAGE, **more)


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        pytest.param(deployment(1), found(1), id="just made"),
        pytest.param(deployment(1, 2, observedGeneration=1), found(2), id="no pods yet"),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(2)), found(2, 2, 2, 2, complete=True), id="complete"
        ),
        pytest.param(deployment(2, 2, observedGeneration=1, **counts(2)), found(2, 2, 0, 2), id="of an older one"),
        pytest.param(deployment(1, 2, observedGeneration=1, **counts(3)), found(2, 3, 3, 3), id="surge"),
        pytest.param(deployment(1, 2, observedGeneration=1, **counts(2, 1)), found(2, 2, 1, 2), id="half new"),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(2) | {"availableReplicas": 1}),
            found(2, 2, 2, 2),
            id="not available for long enough",
        ),
        pytest.param(deployment(1, 0, observedGeneration=1), found(0, complete=True), id="zero"),
        pytest.param(deployment(1, 0, observedGeneration=1, **counts(1)), found(0, 1, 1, 1), id="to zero"),
        pytest.param(
            deployment(1, 1, observedGeneration=1, replicas=1, conditions=[DEADLINE]),
            found(1, 1, stuck="took too long"),
            id="given up",
        ),
        pytest.param(
            deployment(2, 1, observedGeneration=1, replicas=1, conditions=[DEADLINE]),
            found(1, 1),
            id="gave up on an older template",
        ),
        pytest.param(
            deployment(1, 1, observedGeneration=1, conditions=[DEADLINE | {"reason": "ReplicaSetUpdated"}]),
            found(1),
            id="progressing",
        ),
        pytest.param(
            deployment(1, 1, observedGeneration=1, conditions=[QUOTA]),
            found(1, not_created="exceeded quota"),
            id="no pod can be created",
        ),
        pytest.param(
            deployment(1, 1, observedGeneration=1, conditions=[QUOTA | {"status": "False"}]),
            found(1),
            id="pods can be created again",
        ),
        pytest.param(None, Rollout(7), id="no Deployment"),
    ],
)
def test_rollout_from_a_deployment(live: Unstructured | None, expected: Rollout) -> None:
    assert rollout(live, 7, "coder") == expected


NOTHING = Rollout(2)
STUCK = found(2, 3, 1, 0, stuck="took too long")
COMPLETE = found(2, 2, 2, 2, complete=True)
HALF = found(2, 2, 2, 1)
SURGE = found(3, 4, 1, 4)
"""The first of the new pods is ready, and all the old ones still run."""
REPLACED = found(3, 4, 3, 4)
"""All new pods are ready, and one old one still runs."""
SHRINKING = found(2, 5, 5, 5)
EMPTY = found(2)
ZERO = found(0, complete=True)
LEAVING = found(0, 1, 1, 1)


@pytest.mark.parametrize(("found", "expected"), [(COMPLETE, IMAGE), (HALF, ""), (SURGE, ""), (ZERO, ""), (NOTHING, "")])
def test_running_image(found: Rollout, expected: str) -> None:
    assert found.running_image == expected


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (NOTHING, "0 of 2 updated pods are ready"),
        (EMPTY, "0 of 2 updated pods are ready"),
        (HALF, "1 of 2 updated pods are ready"),
        (SURGE, "1 of 3 updated pods are ready"),
        (found(3, 4, 1, 3), "0 of 3 updated pods are ready"),
        (found(3, 3, 0, 3), "0 of 3 updated pods are ready"),
        (REPLACED, "3 of 3 updated pods are ready; old ones still run"),
        (SHRINKING, "2 of 2 updated pods are ready; old ones still run"),
        (found(2, 2, 2, 2), "2 of 2 updated pods are ready"),
        (COMPLETE, "2 of 2 pods are ready with image coder:v2"),
        (LEAVING, "Waiting for all pods to stop"),
        (ZERO, "Scaled to zero"),
    ],
)
def test_progress(found: Rollout, message: str) -> None:
    assert progress(found) == message


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (HALF, "1 of 2 updated pods are ready; pod x: ErrImagePull"),
        (STUCK, "0 of 2 updated pods are ready; pod x: ErrImagePull"),
        (EMPTY._replace(not_created="exceeded quota"), "0 of 2 updated pods are ready; pod x: ErrImagePull"),
        (COMPLETE, "2 of 2 pods are ready with image coder:v2"),
        (ZERO, "Scaled to zero"),
        (LEAVING, "Waiting for all pods to stop"),
    ],
)
def test_cause_is_added_while_pods_are_not_ready(found: Rollout, message: str) -> None:
    assert explain(found, "pod x: ErrImagePull") == message


@given(*[st.integers(0, 5)] * 4)
def test_no_more_pods_are_counted_than_there_are(wanted: int, old: int, updated: int, ready: int) -> None:
    """Pods that are old, not ready or surplus are not counted, whichever pods are ready."""
    ready = min(ready, old + updated)
    counted = Rollout(wanted, old + updated, updated, ready).updated_and_ready
    fewest = max(0, ready - old)
    assert counted == min(fewest, wanted)


MISSING, NO_KEY = "Secret a does not exist", "Secret b has no key c"
# Ready, Reconciling, Stalled
READY, MOVING, STALLED = "True False False", "False True False", "False False True"


@pytest.mark.parametrize(
    ("found", "missing", "available", "summary"),
    [
        (NOTHING, (), "False NoReplicasReady 0 of 2 updated pods are ready", MOVING),
        (EMPTY, (), "False NoReplicasReady 0 of 2 updated pods are ready", MOVING),
        (HALF, (), "True RolloutInProgress 1 of 2 updated pods are ready", MOVING),
        (COMPLETE, (), "True MinimumReplicasReady 2 of 2 pods are ready with image coder:v2", READY),
        (ZERO, (), "False NoReplicasReady Scaled to zero", READY),
        (LEAVING, (), "True RolloutInProgress Waiting for all pods to stop", MOVING),
        (STUCK, (), "False RolloutStuck 0 of 2 updated pods are ready; took too long", STALLED),
        (STUCK._replace(ready=1), (), "True RolloutStuck 0 of 2 updated pods are ready; took too long", STALLED),
        (EMPTY, (MISSING, NO_KEY), f"False NoReplicasReady Pods cannot start: {MISSING}, {NO_KEY}", MOVING),
        (HALF, (MISSING,), f"True RolloutInProgress Pods cannot start: {MISSING}", MOVING),
        (
            COMPLETE,
            (MISSING,),
            f"True MinimumReplicasReady 2 of 2 pods are ready with image coder:v2; new pods cannot start: {MISSING}",
            READY,
        ),
        (ZERO, (MISSING,), "False NoReplicasReady Scaled to zero", READY),
        (LEAVING, (MISSING,), "True RolloutInProgress Waiting for all pods to stop", MOVING),
        (STUCK, (MISSING,), "False RolloutStuck 0 of 2 updated pods are ready; took too long", STALLED),
    ],
)
def test_available_condition(found: Rollout, missing: tuple[str, ...], available: str, summary: str) -> None:
    report = Report()
    judge(found, report, missing)
    conditions = {finding.type: finding for finding in report.conclude()}
    assert (
        " ".join([str(conditions["Available"].status), conditions["Available"].reason, conditions["Available"].message])
        == available
    )
    assert " ".join(str(conditions[name].status) for name in ("Ready", "Reconciling", "Stalled")) == summary


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (COMPLETE, ("Ready", 2, 2, False)),
        (SURGE, ("Ready", 4, 4, False)),
        (NOTHING, ("Pending", 0, 0, False)),
        (LEAVING, ("Ready", 1, 1, True)),
        (ZERO, ("Pending", 0, 0, True)),
    ],
)
def test_counts(found: Rollout, expected: tuple[str, int, int, bool]) -> None:
    report = StatusReport(PodStatus())
    report_counts(found, {"b": "2", "a": "1"}, report)
    status = tuple(report.fields[name] for name in ("phase", "replicas", "ready_replicas"))
    assert (*status, report.scaled_to_zero) == expected
    assert report.fields["selector"] == "a=1,b=2"


def test_the_cause_of_a_failing_pod_replaces_that_of_its_deployment() -> None:
    report = Report()
    judge(STUCK, report, failing="pod x: ErrImagePull")
    assert {finding.message for finding in report.findings} == {"0 of 2 updated pods are ready; pod x: ErrImagePull"}
