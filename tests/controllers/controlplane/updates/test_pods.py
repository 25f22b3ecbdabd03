"""The pod template: what never changes it alone, and what changes it during an update."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from coder_k8s.api import CoderControlPlane
from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.controllers.controlplane.deployment import CHECKSUM, PodInputs, deployment
from coder_k8s.controllers.controlplane.updates.outcomes import PodPlan
from coder_k8s.controllers.controlplane.updates.updater import accepted_patch, hold_patch
from coder_k8s.kube.objects import Manifest, Unstructured
from tests.controllers.controlplane.planes import plane

IMAGE = "coder:v2"
CHANGED = {"metadata": {"annotations": {CHECKSUM: "new"}}}
LIVENESS = {"enabled": True, "periodSeconds": 20}


def template(live: Manifest | None = None, **spec: Any) -> Manifest:
    made: Manifest = deployment(plane(**spec), PodInputs(live=live or {}))["spec"]["template"]
    return made


def stored(made: Manifest, grace: int = 30) -> Manifest:
    """The template as the API server stores it, with the default of Kubernetes."""
    return {**made, "spec": {"terminationGracePeriodSeconds": grace, **made["spec"]}}


def without(made: Manifest) -> Manifest:
    """A template that was made before these fields existed."""
    spec = {name: value for name, value in made["spec"].items() if name != "terminationGracePeriodSeconds"}
    containers = [{name: value for name, value in spec["containers"][0].items() if name != "startupProbe"}]
    return {**made, "spec": {**spec, "containers": containers}}


def test_new_deployment_has_both() -> None:
    spec = template(livenessProbe=LIVENESS)["spec"]
    assert spec["terminationGracePeriodSeconds"] == 60
    probe = spec["containers"][0]["startupProbe"]
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (20, 90)
    assert "startupProbe" not in template()["spec"]["containers"][0]


def test_existing_pods_get_them_with_another_change() -> None:
    live = stored(without(template(livenessProbe=LIVENESS)))
    same = template(live, livenessProbe=LIVENESS)
    assert same == without(template(livenessProbe=LIVENESS))
    changed = template(live, livenessProbe=LIVENESS, image="coder:v2")
    assert changed == template(livenessProbe=LIVENESS, image="coder:v2")


def test_grace_period_that_was_set_follows_the_spec() -> None:
    live = stored(template())
    assert template(live)["spec"]["terminationGracePeriodSeconds"] == 60
    assert template(live, terminationGracePeriodSeconds=90)["spec"]["terminationGracePeriodSeconds"] == 90


def test_startup_probe_does_not_follow_the_timeout_alone() -> None:
    live = stored(template(livenessProbe=LIVENESS))
    longer = {"livenessProbe": LIVENESS, "update": {"migrationTimeout": "2h"}}
    assert template(live, **longer)["spec"]["containers"][0]["startupProbe"]["failureThreshold"] == 90
    changed = template(live, **longer, image="coder:v2")
    assert changed["spec"]["containers"][0]["startupProbe"]["failureThreshold"] == 360


def test_recreate() -> None:
    assert "strategy" not in deployment(plane(), PodInputs())["spec"]
    assert deployment(plane(), PodInputs(), recreate=True)["spec"]["strategy"] == {"type": "Recreate"}


HELD: dict[str, tuple[str, int, PodPlan, Manifest]] = {
    # image of the last complete rollout, replicas of the Deployment, plan, patch
    "source has changed": (IMAGE, 2, PodPlan(follows_sources=True), {"template": CHANGED}),
    "never rolled out, may migrate the database": ("coder:v1", 2, PodPlan(follows_sources=True), {}),
    "no pods": (IMAGE, 0, PodPlan(follows_sources=True), {}),
    "another number, drain": (IMAGE, 1, PodPlan(), {"replicas": 2}),
    "another number, never rolled out": ("coder:v1", 1, PodPlan(), {}),
    "stop": ("coder:v1", 2, PodPlan(replicas=0), {"replicas": 0}),
}


@pytest.mark.parametrize(("rolled_out", "replicas", "plan", "patch"), HELD.values(), ids=HELD)
def test_pod_template_that_an_update_holds(rolled_out: str, replicas: int, plan: PodPlan, patch: Manifest) -> None:
    owner = plane(image="coder:v3", replicas=2)
    owner = replace(owner, status=replace(owner.status, image=rolled_out))
    made = deployment(plane(image=IMAGE, replicas=replicas), PodInputs(checksum="old"))
    live = Unstructured.decode(msgspec.json.encode(made))
    assert hold_patch(plan, owner, live, "new") == ({"spec": patch} if patch else {})


REJECTED: dict[str, tuple[Step, int, PodPlan, Manifest]] = {
    # step, replicas of the Deployment, plan, patch
    "scale back": (Step.SCALE_BACK, 1, PodPlan(IMAGE), {"replicas": 2}),
    "one pod migrates": (Step.MIGRATE, 1, PodPlan(IMAGE, 1), {}),
    "all are there": (Step.FLEET, 2, PodPlan(IMAGE), {}),
    "stopped, another image": (Step.MIGRATE, 0, PodPlan("coder:v3", 1), {}),
    "not rolled out yet": (Step.ROLLOUT, 2, PodPlan("coder:v3"), {}),
}


@pytest.mark.parametrize(("step", "replicas", "plan", "patch"), REJECTED.values(), ids=REJECTED)
def test_pod_template_of_a_rejected_spec(step: Step, replicas: int, plan: PodPlan, patch: Manifest) -> None:
    live = Unstructured.decode(msgspec.json.encode(deployment(plane(image=IMAGE, replicas=replicas), PodInputs())))
    assert accepted_patch(plan, updated(step), live) == ({"spec": patch} if patch else {})


def test_pod_template_of_a_rejected_spec_gets_the_old_image_again() -> None:
    made = deployment(plane(image="coder:latest", replicas=0), PodInputs())
    made["spec"]["template"]["spec"]["containers"].append({"name": "injected", "image": "sidecar"})
    patch = accepted_patch(PodPlan(IMAGE), updated(Step.ROLLED_BACK), Unstructured.decode(msgspec.json.encode(made)))
    coder, injected = patch["spec"]["template"]["spec"]["containers"]
    assert (coder["image"], coder["imagePullPolicy"], patch["spec"]["replicas"]) == (IMAGE, "IfNotPresent", 2)
    assert coder["args"] == made["spec"]["template"]["spec"]["containers"][0]["args"]
    assert injected == {"name": "injected", "image": "sidecar"}


def updated(step: Step) -> CoderControlPlane:
    """A control plane with two replicas in a step of an update."""
    owner = plane(image="coder:v3", replicas=2)
    return replace(owner, status=replace(owner.status, update=UpdateStatus(image=IMAGE, step=step)))
