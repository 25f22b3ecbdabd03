"""Fields of pods that the cluster does not support: the API server would drop them, and change the pods."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, reasons
from coder_k8s.controllers import rejections
from coder_k8s.controllers.report import Report
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Manifest
from tests.support.controlplanes import PlaneNamespace, plane_namespace
from tests.support.installation import create_namespace, definition, install_crds, write_operator_kubeconfig
from tests.support.versions import minor

FUTURE = "spec.template.spec.securityContext.futurePolicy"


def with_future_field() -> Manifest:
    """A CRD that was generated for a version of Kubernetes with one more field of pods."""
    crd = definition(CONTROL_PLANE)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["podSecurityContext"]["properties"]["futurePolicy"] = {"type": "string"}
    return crd


@pytest.fixture(scope="module")
def newer_operator(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of an operator whose CRDs are newer than its cluster."""
    install_crds(module_cluster)
    crd = json.dumps(with_future_field())
    module_cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=crd)
    return write_operator_kubeconfig(module_cluster, tmp_path_factory.mktemp("operator") / "kubeconfig")


@pytest.fixture
async def newer(module_cluster: Cluster, newer_operator: Path) -> AsyncIterator[PlaneNamespace]:
    """A namespace whose CRDs are newer than its cluster."""
    name = create_namespace(module_cluster)
    async with plane_namespace(module_cluster.kubeconfig, newer_operator, name) as made:
        yield made


async def test_unknown_field_is_reported_and_not_dropped(newer: PlaneNamespace) -> None:
    await newer.make(podSecurityContext={"futurePolicy": "Strict", "runAsUser": 1000})
    async with newer.operator() as operator:
        stalled = await newer.condition("Stalled", "FieldNotSupported", "True")
        assert stalled.message == (
            f"The API server does not know {FUTURE} of Deployment; remove the field from the spec, "
            "or upgrade the cluster"
        )
        assert await newer.find(DEPLOYMENT, "demo") is None
        await operator.wait_idle()
        assert 0 < (operator.requeue_after() or 0) <= rejections.UNSUPPORTED_POLL
        await newer.change(podSecurityContext={"futurePolicy": None})
        await newer.roll_out()
        await newer.condition("Available", "MinimumReplicasReady", "True")


async def test_unknown_field_leaves_running_pods_unchanged(newer: PlaneNamespace) -> None:
    await newer.make()
    async with newer.operator() as operator:
        await newer.roll_out()
        await newer.condition("Available", "MinimumReplicasReady", "True")
        await operator.wait_idle()
        before = await newer.find(DEPLOYMENT, "demo")
        await newer.change(podSecurityContext={"futurePolicy": "Strict"}, replicas=2)
        assert FUTURE in (await newer.condition("Stalled", "FieldNotSupported", "True")).message
        after = await newer.find(DEPLOYMENT, "demo")
        assert before is not None
        assert after is not None
        assert after.manifest["spec"] == before.manifest["spec"]


async def test_unknown_field_becomes_the_condition_of_a_step() -> None:
    async def apply() -> str:
        raise errors.UnknownField(400, "BadRequest", "the API server does not know spec.x of HTTPRoute", ("spec.x",))

    report = Report()
    assert await rejections.as_condition(apply(), report, "Exposed") is None
    assert report.has_reason(reasons.FIELD_NOT_SUPPORTED, "Exposed")


@pytest.mark.parametrize(
    ("field", "value", "known_since"),
    [
        ("podSecurityContext", {"supplementalGroupsPolicy": "Strict"}, 31),
        ("volumes", [{"name": "tools", "image": {"reference": "tools:v1"}}], 31),
    ],
)
async def test_field_of_pods_by_the_version_of_the_cluster(
    cluster: ClusterAccess, demo: PlaneNamespace, field: str, value: Any, known_since: int
) -> None:
    await demo.make(operatorAccess={"disabled": True}, **{field: value})
    async with demo.operator() as operator:
        await operator.wait_idle()
        stalled = dict(await demo.conditions())["Stalled"]
        live = await demo.find(DEPLOYMENT, "demo")
    if minor(cluster) < known_since:
        assert stalled == ("True", "FieldNotSupported")
        assert live is None
    else:
        assert stalled[0] == "False"
        assert live is not None
