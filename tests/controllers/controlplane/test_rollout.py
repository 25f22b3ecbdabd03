"""What is made of a Deployment's own account of itself."""

from typing import Any

import msgspec
import pytest

from coder_k8s.controllers.controlplane.rollout import NOTHING, Rollout, judge, rollout
from coder_k8s.controllers.report import Report
from coder_k8s.kube.objects import Child

DEADLINE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "took too long"}


def deployment(generation: int, wanted: int | None = None, **status: Any) -> Child:
    spec = {} if wanted is None else {"replicas": wanted}
    manifest = {"metadata": {"name": "demo", "generation": generation}, "spec": spec, "status": status}
    return Child.decode(msgspec.json.encode(manifest))


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


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        pytest.param(deployment(1), Rollout(1, 0, 0, False, ""), id="just made"),
        pytest.param(deployment(1, 2, observedGeneration=1), Rollout(2, 0, 0, False, ""), id="no pods yet"),
        pytest.param(deployment(1, 2, observedGeneration=1, **counts(2)), Rollout(2, 2, 2, True, ""), id="complete"),
        pytest.param(deployment(2, 2, observedGeneration=1, **counts(2)), Rollout(2, 2, 2, False, ""), id="old news"),
        pytest.param(deployment(1, 2, observedGeneration=1, **counts(3)), Rollout(2, 3, 3, False, ""), id="surge"),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(2, 1)), Rollout(2, 2, 2, False, ""), id="half new"
        ),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(2) | {"availableReplicas": 1}),
            Rollout(2, 2, 2, False, ""),
            id="not available for long enough",
        ),
        pytest.param(deployment(1, 0, observedGeneration=1), Rollout(0, 0, 0, True, ""), id="zero"),
        pytest.param(deployment(1, 0, observedGeneration=1, **counts(1)), Rollout(0, 1, 1, False, ""), id="to zero"),
        pytest.param(
            deployment(1, 1, observedGeneration=1, replicas=1, conditions=[DEADLINE]),
            Rollout(1, 1, 0, False, "took too long"),
            id="given up",
        ),
        pytest.param(
            deployment(2, 1, observedGeneration=1, replicas=1, conditions=[DEADLINE]),
            Rollout(1, 1, 0, False, ""),
            id="gave up on an older template",
        ),
        pytest.param(
            deployment(1, 1, observedGeneration=1, conditions=[DEADLINE | {"reason": "ReplicaSetUpdated"}]),
            Rollout(1, 0, 0, False, ""),
            id="progressing",
        ),
    ],
)
def test_reads_a_deployment(live: Child, expected: Rollout) -> None:
    assert rollout(live) == expected


STUCK = Rollout(wanted=2, replicas=3, ready=0, complete=False, stuck="took too long")
COMPLETE = Rollout(wanted=2, replicas=2, ready=2, complete=True, stuck="")
HALF = Rollout(wanted=2, replicas=2, ready=1, complete=False, stuck="")
EMPTY = Rollout(wanted=2, replicas=0, ready=0, complete=False, stuck="")
ZERO = Rollout(wanted=0, replicas=0, ready=0, complete=True, stuck="")
LEAVING = Rollout(wanted=0, replicas=1, ready=1, complete=False, stuck="")

# Ready, Reconciling, Stalled
READY, MOVING, STALLED, RESTING = "True False False", "False True False", "False False True", "False False False"


@pytest.mark.parametrize(
    ("found", "missing", "available", "summary"),
    [
        (NOTHING, (), "False NoReplicasReady 0 of 0 pods are ready", MOVING),
        (EMPTY, (), "False NoReplicasReady 0 of 2 pods are ready", MOVING),
        (HALF, (), "True RolloutInProgress 1 of 2 pods are ready", MOVING),
        (COMPLETE, (), "True MinimumReplicasReady 2 of 2 pods are ready", READY),
        (ZERO, (), "False NoReplicasReady scaled to zero", RESTING),
        (LEAVING, (), "True RolloutInProgress 1 of 0 pods are ready", MOVING),
        (STUCK, (), "False RolloutStuck took too long", STALLED),
        (STUCK._replace(ready=1), (), "True RolloutStuck took too long", STALLED),
        (EMPTY, ("Secret/a", "Secret/b/c"), "False NoReplicasReady pods wait for Secret/a, Secret/b/c", MOVING),
        (HALF, ("Secret/a",), "True RolloutInProgress pods wait for Secret/a", MOVING),
        (
            COMPLETE,
            ("Secret/a",),
            "True MinimumReplicasReady 2 of 2 pods are ready; a new one would wait for Secret/a",
            READY,
        ),
        (ZERO, ("Secret/a",), "False NoReplicasReady scaled to zero", RESTING),
        (STUCK, ("Secret/a",), "False RolloutStuck took too long", STALLED),
    ],
)
def test_judges_it(found: Rollout, missing: tuple[str, ...], available: str, summary: str) -> None:
    report = Report()
    judge(found, report, missing)
    told = {finding.type: finding for finding in report.conclude()}
    assert " ".join([told["Available"].status, told["Available"].reason, told["Available"].message]) == available
    assert " ".join(told[name].status for name in ("Ready", "Reconciling", "Stalled")) == summary


def test_a_failing_pod_says_more_than_its_deployment() -> None:
    report = Report()
    judge(STUCK, report, failing="pod x: ErrImagePull")
    assert {finding.message for finding in report.findings} == {"pod x: ErrImagePull"}
