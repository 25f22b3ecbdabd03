"""Installs the generated manifests, as an administrator would."""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import poll
from coder_k8s.kube.objects import Kind, Manifest
from tests.support.manifests import parse, parse_all

CONFIG = Path(__file__).parents[2] / "config"
NAMESPACE = "coder-system"
SERVICE_ACCOUNT = "coder-k8s"
CONFINED = "confined"


def install_crds(cluster: ClusterAccess, source: Path = CONFIG / "crd") -> None:
    """Install the CRDs of a file or folder, and wait until the API server serves them."""
    files = [path for path in sorted(source.glob("*.yaml")) if path.name != "kustomization.yaml"] or [source]
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *(f"--filename={path}" for path in files))
    manifests = (manifest for path in files for manifest in parse_all(path.read_text()))
    crds = [manifest for manifest in manifests if manifest and manifest["kind"] == "CustomResourceDefinition"]
    # Established is not enough: the API server then still responds with 429 while it prepares the storage.
    assert poll(lambda: all(_served(cluster, crd) for crd in crds), timeout=60), "the CRDs are not served"
    # kubectl finds kinds by discovery, which the API server updates later.
    assert poll(lambda: _discovered(cluster, crds), timeout=60, interval=0.5), "kubectl does not find the CRDs"


def _served(cluster: ClusterAccess, crd: dict[str, Any]) -> bool:
    spec = crd["spec"]
    served = (version["name"] for version in spec["versions"] if version["served"])
    resources = (f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in served)
    return all(cluster.request("GET", f"{resource}?limit=1")[0] == HTTPStatus.OK for resource in resources)


def _discovered(cluster: ClusterAccess, crds: list[dict[str, Any]]) -> bool:
    listed = cluster.kubectl("api-resources", "--cached=false", "--output=name").split()
    return {crd["metadata"]["name"] for crd in crds} <= set(listed)


def write_operator_kubeconfig(cluster: ClusterAccess, path: Path) -> Path:
    """Write a kubeconfig for the operator's ServiceAccount, which has only the generated roles."""
    namespace = cluster.kubectl("create", "namespace", NAMESPACE, "--dry-run=client", "--output=yaml")
    cluster.kubectl("apply", "--server-side", "--filename=-", input=namespace)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", CONFIG / "rbac")
    token = cluster.kubectl("create", "token", SERVICE_ACCOUNT, "--namespace", NAMESPACE, "--duration=8h").strip()
    return cluster.write_kubeconfig(path, {"token": token}, NAMESPACE)


def create_namespace(cluster: ClusterAccess) -> str:
    """Create a namespace with a unique name in a cluster that tests share."""
    name = f"test-{uuid4().hex[:12]}"
    assert cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == HTTPStatus.CREATED
    return name


def confined_kubeconfig(cluster: ClusterAccess, namespace: str, path: Path) -> Path:
    """Write a kubeconfig for an operator that has only the generated Roles in one namespace."""
    manifests: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CONFINED}}]
    for name in ("leader-election.yaml", "namespaced/operator.yaml"):
        manifests += parse_all((CONFIG / "rbac" / name).read_text())
    for manifest in manifests:
        manifest["metadata"]["namespace"] = namespace
        for subject in manifest.get("subjects", ()):
            subject |= {"name": CONFINED, "namespace": namespace}
    cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(manifests))
    assert poll(lambda: _may_list_secrets(cluster, namespace), timeout=30), "the Roles are not in force"
    token = cluster.kubectl("create", "token", CONFINED, "--namespace", namespace).strip()
    return cluster.write_kubeconfig(path, {"token": token}, namespace)


def _may_list_secrets(cluster: ClusterAccess, namespace: str) -> bool:
    """Whether the authorizer has received the Roles, which it watches."""
    asked = {"namespace": namespace, "verb": "list", "resource": "secrets"}
    spec = {"user": f"system:serviceaccount:{namespace}:{CONFINED}", "resourceAttributes": asked}
    _, answer = cluster.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    return bool(json.loads(answer)["status"]["allowed"])


def definition(kind: Kind[Any], *missing: str) -> Manifest:
    """The CRD of a kind, without some of its status fields."""
    made: Manifest = parse((CONFIG / "crd" / f"{kind.plural}.yaml").read_text())
    for field in missing:
        del status_schema(made)["properties"][field]
    return made


def status_schema(of: Manifest) -> Manifest:
    schema: Manifest = of["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return schema


def restricted_kubeconfig(cluster: ClusterAccess, namespace: str, path: Path, role: str | None) -> Path:
    """Write a kubeconfig for a ServiceAccount that has only this ClusterRole in a namespace."""
    cluster.kubectl("create", "serviceaccount", "restricted", "-n", namespace)
    if role:
        subject = f"--serviceaccount={namespace}:restricted"
        cluster.kubectl("create", "rolebinding", "restricted", f"--clusterrole={role}", subject, "-n", namespace)
    token = cluster.kubectl("create", "token", "restricted", "-n", namespace).strip()
    return cluster.write_kubeconfig(path, {"token": token}, namespace)
