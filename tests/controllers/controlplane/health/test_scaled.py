"""When autoscaling explains that no daemon is connected."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from coder_k8s.api import CoderProvisioner
from coder_k8s.controllers.controlplane.health.scaled import autoscaled_to_zero
from coder_k8s.kube.objects import Manifest

CHECKED = datetime(2026, 3, 1, 12, tzinfo=UTC)


def provisioner(
    minimum: int | None = 0, desired: int | None = 0, changed: timedelta | None = None, *, deleting: bool = False
) -> CoderProvisioner:
    """A provisioner with autoscaling; `changed` is when the number of its pods changed, relative to the check."""
    spec: Manifest = {"controlPlaneRef": {"name": "demo"}}
    if minimum is not None:
        spec["autoscaling"] = {"minReplicas": minimum, "maxReplicas": 9}
    status: Manifest = {}
    if desired is not None:
        scaling: Manifest = {"desiredReplicas": desired, "pendingJobs": 0}
        if changed is not None:
            scaling["lastScaleTime"] = (CHECKED + changed).isoformat()
        status["autoscaling"] = scaling
    named = {"namespace": "coder", "name": "build", "uid": "1", "resourceVersion": "1"}
    named |= {"deletionTimestamp": "2026-03-01T11:00:00Z"} if deleting else {}
    return CoderProvisioner.decode(json.dumps({"metadata": named, "spec": spec, "status": status}).encode())


ZERO = provisioner()
RUNNING = provisioner(desired=2, changed=timedelta(hours=-1))


@pytest.mark.parametrize(
    ("provisioners", "expected"),
    [
        pytest.param([], False, id="no provisioner"),
        pytest.param([ZERO], True, id="at zero"),
        pytest.param([ZERO, ZERO], True, id="all at zero"),
        pytest.param([ZERO, RUNNING], False, id="one of them runs"),
        pytest.param([provisioner(minimum=None, desired=None)], False, id="without autoscaling"),
        pytest.param([provisioner(desired=None)], False, id="no decision yet"),
        pytest.param([provisioner(minimum=1)], False, id="at least one pod"),
        pytest.param(
            [provisioner(desired=1, changed=timedelta(minutes=4))], True, id="a pod was added after the check"
        ),
        pytest.param([provisioner(desired=1, changed=timedelta(minutes=-2))], True, id="the pod started"),
        pytest.param([provisioner(desired=1, changed=timedelta(minutes=-3))], False, id="the pod does not connect"),
        pytest.param([provisioner(deleting=True)], False, id="being deleted"),
        pytest.param([ZERO, provisioner(desired=2, deleting=True)], True, id="only another one is being deleted"),
    ],
)
def test_autoscaled_to_zero(provisioners: list[CoderProvisioner], expected: bool) -> None:
    assert autoscaled_to_zero(provisioners, CHECKED) is expected
