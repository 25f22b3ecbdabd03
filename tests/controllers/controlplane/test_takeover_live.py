"""The Go operator's objects are adopted without a restart, and can be changed afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.labels import DIGEST
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, ROLE, SECRET, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured, key_of
from tests.support import eventually
from tests.support.installation import install_crds, write_operator_kubeconfig
from tests.support.operators import Operator
from tests.support.takeover import recorded, set_by

from .planes import Observer, observing

pytestmark = pytest.mark.slow

RECORDED = recorded(Path(__file__).with_name("takeover.json"))
IMAGE = next(
    item["spec"]["template"]["spec"]["containers"][0]["image"]
    for item in RECORDED
    if item["kind"] == "Deployment" and item.get("status", {}).get("readyReplicas")
)
PLANES = [item for item in RECORDED if item["kind"] == CONTROL_PLANE.name]


@pytest.fixture
def taken(fresh_cluster: Cluster) -> Cluster:
    """A cluster with the namespaces of the record: names, hashes and URLs depend on them."""
    install_crds(fresh_cluster)
    agreed = {"coder.com/workspaces-from": "golden"}
    for name, labels in (("golden", {}), ("golden-workspaces", agreed)):
        namespace = {"metadata": {"name": name, "labels": labels}}
        assert fresh_cluster.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    return fresh_cluster


async def load_record(cluster: ClusterAccess) -> None:
    """Create the recorded objects, owned by the new control planes, with the recorded field manager and operation."""
    kinds = {kind.name: kind for kind in (*wiring.CHILDREN, SECRET)}
    text = json.dumps([item for item in RECORDED if item["kind"] != CONTROL_PLANE.name])
    async with Http(load(cluster.kubeconfig), "test", Metrics()) as http:
        user, operator = Client(http, "kubectl-client-side-apply"), Client(http, "coder-k8s")
        for plane in PLANES:
            metadata = {name: plane["metadata"][name] for name in ("name", "namespace", "finalizers")}
            made = await user.create(CONTROL_PLANE, {"metadata": metadata, "spec": plane["spec"]})
            await operator.merge(CONTROL_PLANE, made.key, {"status": plane["status"]}, "status")
            text = text.replace(plane["metadata"]["uid"], made.metadata.uid)
        for item in json.loads(text):
            kind, key, given = kinds[item["kind"]], key_of(item), set_by("coder-k8s", item)
            named = {**given["metadata"], "name": key.name, "namespace": key.namespace}
            child = await operator.create(kind, {**given, "metadata": named})
            if item.get("status", {}).get("replicas"):
                # The record was made without the Deployment controller, which sets observedGeneration.
                observed = {"observedGeneration": child.metadata.generation}
                await operator.merge(kind, child.key, {"status": {**item["status"], **observed}}, "status")
            assert set_by("coder-k8s", await operator.get_manifest(kind, key)) == given


def identity(children: dict[tuple[str, Key], Unstructured]) -> dict[tuple[str, Key], Manifest]:
    """Everything that must not change, UID and generation included; only the digest label may be added."""
    return {name: _unmarked(child.manifest) for name, child in children.items()}


def _unmarked(manifest: Manifest) -> Manifest:
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "resourceVersion"}
    for field in ("labels", "annotations"):
        metadata[field] = {name: value for name, value in metadata.get(field, {}).items() if name != DIGEST}
    content = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind")}
    return {**content, "metadata": metadata}


def marked(child: Unstructured) -> bool:
    """Whether the applier has adopted it: it has the digest label."""
    return DIGEST in {**child.metadata.annotations, **child.metadata.labels}


async def is_steady(observer: Observer) -> bool:
    """Whether this operator has reconciled every control plane; the Go operator sets no `Ready`."""
    planes = [await observer.client.get(CONTROL_PLANE, key_of(plane)) for plane in PLANES]
    return all(
        plane.status.observed_generation == plane.metadata.generation
        and any(condition.type == "Ready" for condition in plane.status.conditions)
        for plane in planes
    )


async def versions(observer: Observer) -> dict[tuple[str, Key], str]:
    """The resourceVersion of every child."""
    kinds = {kind.name: kind for kind in wiring.CHILDREN}
    return {
        (name, key): (await observer.client.get(kinds[name], key)).metadata.resource_version
        for name, key in observer.children()
    }


def all_marked(observer: Observer) -> bool:
    unmarked = [name for name, child in observer.children().items() if not marked(child)]
    assert {kind for kind, _ in unmarked} <= {"Secret"}  # a token does not change while its database is unavailable
    return True


async def test_takeover(taken: Cluster, tmp_path: Path) -> None:
    await load_record(taken)
    kubeconfig = write_operator_kubeconfig(taken, tmp_path / "kubeconfig")
    async with observing(taken.kubeconfig, ["golden", "golden-workspaces"]) as observer:
        before = identity(observer.children())
        async with Operator(kubeconfig, [""], wiring.build) as operator:
            await eventually(lambda: is_steady(observer), timeout=30)
            await eventually(lambda: all_marked(observer))
            assert identity(observer.children()) == before
            # Of a Deployment that the Go operator rolled out, and of one without pods.
            assert await running_image(observer, "prov") == IMAGE
            assert await running_image(observer, "minimal") == ""
            await adopted_fields_follow_the_spec(observer)
            await operator.wait_idle()
        seen = await versions(observer)
        async with Operator(kubeconfig, [""], wiring.build) as again:
            await again.wait_idle()
            assert await versions(observer) == seen


async def running_image(observer: Observer, name: str) -> str:
    return (await observer.client.get(CONTROL_PLANE, Key("golden", name))).status.image


async def adopted_fields_follow_the_spec(observer: Observer) -> None:
    """Fields that the Go operator set are removed; fields that the API server assigned stay."""
    service = observer.get(SERVICE, "golden", "full").manifest
    await observer.change(
        "golden",
        "full",
        image="ghcr.io/coder/coder:v2.36.1",
        nodeSelector=None,
        tolerations=None,
        extraEnv=[{"name": "CODER_VERBOSE", "value": "true"}],
        volumes=None,
        volumeMounts=None,
        livenessProbe=None,
        resources={"requests": {"cpu": None}, "limits": None},
        service={"annotations": None},
        serviceAccount={"labels": None, "annotations": None},
        expose={"ingress": {"annotations": None, "wildcardHost": None, "tls": None}},
        rbac={"extraRules": None, "enableDeployments": True},
    )

    def pod() -> Any:
        return observer.get(DEPLOYMENT, "golden", "full").manifest["spec"]["template"]["spec"]

    await eventually(lambda: pod()["containers"][0]["image"].endswith("v2.36.1"))
    assert not pod().keys() & {"nodeSelector", "tolerations", "volumes"}
    container = pod()["containers"][0]
    assert [entry["name"] for entry in container["env"]] == [
        "KUBE_POD_IP",
        "CODER_DERP_SERVER_RELAY_URL",
        "CODER_VERBOSE",
    ]
    assert not container.keys() & {"volumeMounts", "livenessProbe"}
    assert container["resources"] == {"requests": {"memory": "4Gi"}}

    def follows(kind: Kind[Unstructured], name: str, *gone: str) -> Any:
        child = observer.get(kind, "golden", name)
        assert not {*gone} & {*child.metadata.annotations, *child.metadata.labels}
        return child.manifest

    await eventually(lambda: follows(SERVICE_ACCOUNT, "coder-sa", "team", "eks.amazonaws.com/role-arn"))
    assert (await eventually(lambda: follows(SERVICE, "full", "example.com/x")))["spec"] == service["spec"]
    route = await eventually(lambda: follows(INGRESS, "full", "nginx.ingress.kubernetes.io/proxy-body-size"))
    assert [rule["host"] for rule in route["spec"]["rules"]] == ["coder.example.com"]
    assert "tls" not in route["spec"]
    for namespace in ("golden", "golden-workspaces"):
        rules = observer.get(ROLE, namespace, "coder-sa-d072c051-workspace-perms").manifest["rules"]
        assert [rule["resources"] for rule in rules] == [["pods"], ["persistentvolumeclaims"], ["deployments"]]
