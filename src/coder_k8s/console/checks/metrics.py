"""Whether a pod of the operator serves its metrics, through the API server."""

from coder_k8s.console.objects import POD, listed
from coder_k8s.console.operator import LABEL, Operator
from coder_k8s.console.session import Session
from coder_k8s.kube import errors
from coder_k8s.kube.objects import Key
from coder_k8s.manifests.manager import METRICS_PORT

from .result import FAILED, OK, SKIPPED, Result

NAME = "metrics"
METRIC = b"controller_runtime_reconcile_total"


async def check_metrics(session: Session, operator: Operator) -> Result:
    address = operator.setting("metrics-bind-address") or f":{METRICS_PORT}"
    if operator.failures:
        return Result(NAME, FAILED, f"Cannot read the operator: {operator.failures[0]}")
    if operator.deployment is None:
        return Result(NAME, SKIPPED, f"No Deployment of the operator is readable in namespace {operator.namespace}")
    if address == "0":
        return Result(NAME, OK, "Disabled by --metrics-bind-address=0")
    try:
        pods = [pod for pod in await listed(session, POD, operator.namespace, labels=LABEL) if pod.ready]
        if not pods:
            return Result(NAME, FAILED, "No pod of the operator is ready; fix that first")
        return await _scrape(session, pods[0].key, address.rpartition(":")[2])
    except errors.Forbidden as error:
        return Result(NAME, SKIPPED, str(error))
    except errors.KubeError as error:
        return Result(NAME, FAILED, f"Not served: {error}; check the log of the operator and its NetworkPolicy")


async def _scrape(session: Session, pod: Key, port: str) -> Result:
    path = POD.path(Key(pod.namespace, f"{pod.name}:{port}"), "proxy/metrics")
    body = await session.http.send("GET", path, {}, {})
    if METRIC not in body:
        return Result(NAME, FAILED, f"Pod {pod} does not serve the metrics of the operator on port {port}")
    return Result(NAME, OK, f"Pod {pod} serves them on port {port}")
