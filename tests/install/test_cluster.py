"""All installation methods, on a real API server."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from coder_k8s.dev.binaries import program
from coder_k8s.dev.cluster import Cluster, KubectlFailed
from tests.e2e.operator_process import OperatorProcess, Start
from tests.install.rendering import CHART, IMAGE, NAMESPACE, RELEASE, ROOT, Helm, HelmFailed, Manifest, Objects, objects
from tests.support import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STRICTLY = ("--validate=strict", "--warnings-as-errors")
NO_POLICY = IMAGE | {"admissionPolicy": {"enabled": False}}
CONTROL_PLANES = "crd/codercontrolplanes.coder.com"


@pytest.fixture
def cluster_helm(bare_cluster: Cluster, tmp_path: Path) -> Helm:
    """Helm as administrator of the cluster."""
    return Helm(tmp_path, bare_cluster.kubeconfig)


def start_installed(cluster: Cluster, installed: Objects, folder: Path, launch: Start) -> OperatorProcess:
    """Start the operator with the flags, namespace and ServiceAccount of its Deployment."""
    deployment = next(item for (kind, _), item in installed.items() if kind == "Deployment")
    namespace, spec = deployment["metadata"]["namespace"], deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    command, *flags = container["args"]
    assert command == "controller"
    token = cluster.kubectl("create", "token", spec["serviceAccountName"], "--namespace", namespace).strip()
    kubeconfig = cluster.write_kubeconfig(folder / "operator.kubeconfig", {"token": token}, namespace)
    return launch(kubeconfig, *flags)


async def becomes_leader(operator: OperatorProcess, installed: Objects) -> None:
    """Wait until the probes of the Deployment succeed and the operator is leader."""
    deployment = next(item for (kind, _), item in installed.items() if kind == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for probe in ("livenessProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]

        async def succeeds(path: str = path) -> bool:
            return (await operator.get("health", path))[0] == 200

        await eventually(succeeds, timeout=30)
    await eventually(operator.leads, timeout=30)


async def test_kubectl(bare_cluster: Cluster, tmp_path: Path, launch: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ("--filename", ROOT / "install.yaml")
    versions = ("get", *plain, "--output=jsonpath={.items[*].metadata.resourceVersion}")
    applied = bare_cluster.kubectl("apply", "--kustomize", ROOT / "config" / "default", *STRICTLY).splitlines()
    assert {line.rpartition(" ")[2] for line in applied} == {"created"}
    before = bare_cluster.kubectl(*versions)
    bare_cluster.kubectl("apply", *plain, *STRICTLY)
    assert bare_cluster.kubectl(*versions) == before

    installed = objects((ROOT / "install.yaml").read_text())
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)
    await becomes_leader(start_installed(bare_cluster, installed, tmp_path, launch), installed)
    assert lease_holders(bare_cluster, NAMESPACE)


async def test_helm_installs_upgrades_and_uninstalls(
    bare_cluster: Cluster, cluster_helm: Helm, tmp_path: Path, launch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--namespace", "by-helm")
    cluster_helm.run("install", RELEASE, older_chart(tmp_path), *place, "--create-namespace", values=NO_POLICY)
    before = bare_cluster.kubectl("get", CONTROL_PLANES, "--output=yaml")
    assert "licenseSecretRef" not in before

    output = cluster_helm.run("upgrade", RELEASE, CHART, *place, "--reset-values", values=IMAGE)
    assert "rollout status deployment/coder-k8s" in output
    assert "licenseSecretRef" in bare_cluster.kubectl("get", CONTROL_PLANES, "--output=yaml")
    installed = objects(cluster_helm.run("get", "manifest", RELEASE, *place))
    monkeypatch.setenv("POD_NAMESPACE", "by-helm")
    operator = start_installed(bare_cluster, installed, tmp_path, launch)
    await becomes_leader(operator, installed)
    operator.kill()

    bare_cluster.kubectl("create", "--filename=-", input=yaml.safe_dump(control_plane("by-helm")))
    cluster_helm.run("uninstall", RELEASE, *place)
    assert bare_cluster.kubectl("get", "all,roles,serviceaccounts,pdb", *place, "--output=name") == ""
    assert bare_cluster.kubectl("get", "codercontrolplanes", *place, "--output=name").strip().endswith("/coder")
    cluster_helm.run("install", RELEASE, CHART, *place, values=NO_POLICY)


def test_helm_deletes_crds_that_are_not_kept(bare_cluster: Cluster, cluster_helm: Helm) -> None:
    place = ("--namespace", "not-kept")
    values = {"crds": {"keep": False}} | NO_POLICY
    cluster_helm.run("install", RELEASE, CHART, *place, "--create-namespace", values=values)
    cluster_helm.run("uninstall", RELEASE, *place)
    bare_cluster.kubectl("wait", "--for=delete", CONTROL_PLANES, "--timeout=240s")


async def test_a_namespaced_installation_has_no_permissions_in_other_namespaces(
    bare_cluster: Cluster, cluster_helm: Helm, tmp_path: Path, launch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("team-a", "team-b", "team-c"):
        bare_cluster.kubectl("create", "namespace", name)
    place = ("--namespace", "confined")
    values = {"watchNamespaces": ["team-a", "team-b"], "allowWorkspaceNamespaces": ["team-*"]} | NO_POLICY
    cluster_helm.run("install", RELEASE, CHART, *place, "--create-namespace", values=values)
    installed = objects(cluster_helm.run("get", "manifest", RELEASE, *place))
    assert not {"ClusterRole", "ClusterRoleBinding"} & {kind for kind, _ in installed}

    monkeypatch.setenv("POD_NAMESPACE", "confined")
    operator = start_installed(bare_cluster, installed, tmp_path, launch)
    await becomes_leader(operator, installed)
    assert can(bare_cluster, "create", "deployments", "team-b")
    assert not can(bare_cluster, "get", "secrets", "team-c")
    assert not can(bare_cluster, "get", "secrets", "confined")


def test_every_command_of_the_notes_works(bare_cluster: Cluster, cluster_helm: Helm, tmp_path: Path) -> None:
    place = ("--namespace", "noted")
    cluster_helm.run("install", RELEASE, CHART, *place, "--create-namespace", values=NO_POLICY)
    bare_cluster.kubectl("create", "--filename=-", input=yaml.safe_dump(control_plane("noted")))
    notes = cluster_helm.run("get", "notes", RELEASE, *place)
    commands = re.findall(r"^  (kubectl .+)$", notes, re.MULTILINE)
    assert commands == re.findall(r"^ +(\S.*)$", notes, re.MULTILINE)
    assert len(commands) > 3
    for command in commands:
        assert first_line(bare_cluster, command, tmp_path), command


def first_line(cluster: Cluster, command: str, folder: Path) -> str:
    """The first line that a kubectl command prints. Some commands do not end by themselves."""
    _, *arguments = shlex.split(command)
    general = ("--kubeconfig", cluster.kubeconfig, "--cache-dir", folder / "discovery")
    with subprocess.Popen([program("kubectl"), *general, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    return line


def test_helm_rejects_unknown_fields(bare_cluster: Cluster, cluster_helm: Helm, tmp_path: Path) -> None:
    """Helm reports unknown fields instead of dropping them."""
    chart = shutil.copytree(CHART, tmp_path / "misspelt")
    deployment = chart / "templates" / "deployment.yaml"
    deployment.write_text(deployment.read_text().replace("enableServiceLinks", "enableServiceLink"))
    values = {"crds": {"install": False}} | NO_POLICY
    with pytest.raises(HelmFailed, match=r"spec\.template\.spec\.enableServiceLink"):
        cluster_helm.run("install", RELEASE, chart, "--namespace=misspelt", "--create-namespace", values=values)


def test_helm_reports_a_missing_namespace(bare_cluster: Cluster, cluster_helm: Helm) -> None:
    with pytest.raises(HelmFailed, match='namespaces "nowhere" not found'):
        cluster_helm.run(
            "install",
            "other",
            CHART,
            "--namespace=misled",
            "--create-namespace",
            values={"watchNamespaces": ["nowhere"], "crds": {"install": False}} | NO_POLICY,
        )


def older_chart(folder: Path) -> Path:
    """The chart without a field of a CRD, like an older version."""
    chart = shutil.copytree(CHART, folder / "older")
    path = chart / "files" / "crd" / "codercontrolplanes.yaml"
    crd = yaml.safe_load(path.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del schema["properties"]["licenseSecretRef"]
    schema.pop("x-kubernetes-validations", None)
    path.write_text(yaml.safe_dump(crd))
    return chart


def control_plane(namespace: str) -> Manifest:
    example: Manifest = yaml.safe_load((ROOT / "src/coder_k8s/manifests/examples/codercontrolplane.yaml").read_text())
    return example | {"metadata": {"name": "coder", "namespace": namespace}}


def lease_holders(cluster: Cluster, namespace: str) -> Any:
    return cluster.kubectl(
        "get", "leases", "--namespace", namespace, "--output=jsonpath={.items[*].spec.holderIdentity}"
    )


def can(cluster: Cluster, verb: str, resource: str, namespace: str) -> bool:
    account = "--as=system:serviceaccount:confined:coder-k8s"
    try:
        return cluster.kubectl("auth", "can-i", verb, resource, "--namespace", namespace, account).strip() == "yes"
    except KubectlFailed:
        return False
