"""What is made of a Deployment's own account of itself."""

from typing import Any

import msgspec
import pytest

from coder_k8s.controllers.controlplane.rollout import NOTHING, Rollout, judge, rollout
from coder_k8s.controllers.report import Report
from coder_k8s.kube.objects import Child

IMAGE = "coder:v2"
DEADLINE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "took too long"}


def deployment(generation: int, wanted: int | None = None, **status: Any) -> Child:
    template = {"spec": {"containers": [{"name": "coder", "image": IMAGE}, {"name": "other", "image": "other"}]}}
    spec = {"template": template} | ({} if wanted is None else {"replicas": wanted})
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
        pytest.param(deployment(1), Rollout(1, 0, 0, False, "", IMAGE), id="just made"),
        pytest.param(deployment(1, 2, observedGeneration=1), Rollout(2, 0, 0, False, "", IMAGE), id="no pods yet"),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(2)), Rollout(2, 2, 2, True, "", IMAGE), id="complete"
        ),
        pytest.param(
            deployment(2, 2, observedGeneration=1, **counts(2)), Rollout(2, 2, 2, False, "", IMAGE), id="old news"
        ),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(3)), Rollout(2, 3, 3, False, "", IMAGE), id="surge"
        ),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(2, 1)), Rollout(2, 2, 2, False, "", IMAGE), id="half new"
        ),
        pytest.param(
            deployment(1, 2, observedGeneration=1, **counts(2) | {"availableReplicas": 1}),
            Rollout(2, 2, 2, False, "", IMAGE),
            id="not available for long enough",
        ),
        pytest.param(deployment(1, 0, observedGeneration=1), Rollout(0, 0, 0, True, "", IMAGE), id="zero"),
        pytest.param(
            deployment(1, 0, observedGeneration=1, **counts(1)), Rollout(0, 1, 1, False, "", IMAGE), id="to zero"
        ),
        pytest.param(
            deployment(1, 1, observedGeneration=1, replicas=1, conditions=[DEADLINE]),
            Rollout(1, 1, 0, False, "took too long", IMAGE),
            id="given up",
        ),
        pytest.param(
            deployment(2, 1, observedGeneration=1, replicas=1, conditions=[DEADLINE]),
            Rollout(1, 1, 0, False, "", IMAGE),
            id="gave up on an older template",
        ),
        pytest.param(
            deployment(1, 1, observedGeneration=1, conditions=[DEADLINE | {"reason": "ReplicaSetUpdated"}]),
            Rollout(1, 0, 0, False, "", IMAGE),
            id="progressing",
        ),
    ],
)
def test_reads_a_deployment(live: Child, expected: Rollout) -> None:
    assert rollout(live) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(Rollout(2, 2, 2, True, "", IMAGE), IMAGE, id="complete"),
        pytest.param(Rollout(2, 3, 2, False, "", IMAGE), "", id="under way"),
        pytest.param(Rollout(0, 0, 0, True, "", IMAGE), "", id="no pods"),
        pytest.param(NOTHING, "", id="no Deployment"),
    ],
)
def test_image_that_every_pod_runs(found: Rollout, expected: str) -> None:
    assert found.running_image == expected


STUCK = Rollout(wanted=2, replicas=3, ready=0, complete=False, stuck="took too long", image=IMAGE)
COMPLETE = Rollout(wanted=2, replicas=2, ready=2, complete=True, stuck="", image=IMAGE)
HALF = Rollout(wanted=2, replicas=2, ready=1, complete=False, stuck="", image=IMAGE)
EMPTY = Rollout(wanted=2, replicas=0, ready=0, complete=False, stuck="", image=IMAGE)
ZERO = Rollout(wanted=0, replicas=0, ready=0, complete=True, stuck="", image=IMAGE)
LEAVING = Rollout(wanted=0, replicas=1, ready=1, complete=False, stuck="", image=IMAGE)

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
