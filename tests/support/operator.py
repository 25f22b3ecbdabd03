"""The generated manifests, installed as an administrator would."""

from pathlib import Path

from coder_k8s.dev.cluster import ClusterAccess

CONFIG = Path(__file__).parents[2] / "config"
NAMESPACE = "coder-system"
SERVICE_ACCOUNT = "coder-k8s"


def install_crds(cluster: ClusterAccess) -> None:
    """The custom resource definitions, served when this returns."""
    files = _files("crd")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *files)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *files)


def write_operator_kubeconfig(cluster: ClusterAccess, path: Path) -> Path:
    """A kubeconfig by which a process is the operator: its ServiceAccount with the generated roles, nothing more."""
    for kind, name in ("namespace", NAMESPACE), ("serviceaccount", SERVICE_ACCOUNT):
        manifest = cluster.kubectl("create", kind, name, "-n", NAMESPACE, "--dry-run=client", "-o", "yaml")
        cluster.kubectl("apply", "--server-side", "-f", "-", input=manifest)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-n", NAMESPACE, *_files("rbac"))
    token = cluster.kubectl("create", "token", SERVICE_ACCOUNT, "-n", NAMESPACE, "--duration=8h").strip()
    return cluster.write_kubeconfig(path, {"token": token}, NAMESPACE)


def _files(folder: str) -> list[str]:
    return [f"--filename={path}" for path in sorted((CONFIG / folder).glob("*.yaml"))]
