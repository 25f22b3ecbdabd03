"""The Deployment and the Lease of an operator that does not run."""

from datetime import UTC, datetime, timedelta

from coder_k8s.controllers.labels import OPERATOR_VERSION
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.lease import LEASE, Lease, LeaseSpec
from coder_k8s.kube.objects import Manifest, ObjectMeta, micro_timestamp
from coder_k8s.settings import LEASE_NAME
from tests.console.manifests import made, put

LABEL = {"app.kubernetes.io/name": "coder-k8s"}
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def deployment(ready: int = 2, image: str = "registry:5000/coder-k8s:0.1.0", *args: str, **env: str) -> Manifest:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    container = {"image": image, "args": ["controller", *args], "env": variables}
    pod = {"serviceAccountName": "operator", "containers": [container]}
    return {"spec": {"replicas": 2, "template": {"spec": pod}}, "status": {"readyReplicas": ready}}


def lease(seconds: float = 1, holder: str = "pod-a_1234", version: str = "") -> Lease:
    renewed = micro_timestamp(NOW - timedelta(seconds=seconds))
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=renewed)
    return Lease(
        metadata=ObjectMeta(name=LEASE_NAME, annotations={OPERATOR_VERSION: version} if version else {}), spec=spec
    )


def install(cluster: ClusterAccess, namespace: str, flag: str = "--metrics-bind-address=0") -> None:
    """Create the Deployment of an operator with a ready pod, and a ServiceAccount with all permissions."""
    manifest = made(DEPLOYMENT, "coder-k8s", labels=LABEL)
    template = deployment(1, "coder-k8s:1", flag)["spec"]["template"]
    template["spec"]["containers"][0]["name"] = "controller"
    manifest["spec"] = {
        "replicas": 1,
        "selector": {"matchLabels": LABEL},
        "template": {**template, "metadata": {"labels": LABEL}},
    }
    manifest["status"] = {"replicas": 1, "readyReplicas": 1}
    put(cluster, DEPLOYMENT, namespace, manifest)
    subject = f"--serviceaccount={namespace}:operator"
    cluster.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=cluster-admin", subject)


def put_lease(cluster: ClusterAccess, namespace: str) -> None:
    manifest = made(LEASE, LEASE_NAME)
    del manifest["status"]
    now = micro_timestamp(datetime.now(UTC))
    spec = {"holderIdentity": "pod-a_1", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    put(cluster, LEASE, namespace, {**manifest, "spec": spec})
