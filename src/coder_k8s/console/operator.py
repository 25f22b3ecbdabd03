"""The operator, as far as the user can read its Deployment and Lease."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from coder_k8s.controllers.labels import OPERATOR_VERSION
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.lease import LEASE, Lease
from coder_k8s.kube.objects import Key, Manifest
from coder_k8s.settings import ENV_PREFIX, LEASE_NAME

from .objects import listed
from .session import Session

LABEL = "app.kubernetes.io/name=coder-k8s"
CLOCK_SKEW = timedelta(seconds=30)
"""Tolerated difference between the clocks of the operator and of this machine."""


@dataclass(frozen=True)
class Operator:
    """The Deployment and the Lease; `None` if absent, and also if unreadable: see `problems` and `failures`."""

    namespace: str
    deployment: Manifest | None = None
    lease: Lease | None = None
    problems: tuple[str, ...] = ()
    """What the user has no permission to read."""
    failures: tuple[str, ...] = ()
    """Errors of the API server, after which a retry helps."""

    @property
    def service_account(self) -> str:
        return str(self._pod_spec.get("serviceAccountName", ""))

    @property
    def image(self) -> str:
        return str(self._container.get("image", ""))

    @property
    def elects_leader(self) -> bool:
        return "--no-leader-elect" not in self._container.get("args", []) and self.setting("leader-elect") != "false"

    def setting(self, name: str) -> str:
        """Return the value of a flag or its environment variable in the Deployment; empty if it is not set."""
        given = [argument.partition("=") for argument in self._container.get("args", [])]
        flags: dict[str, str] = {flag: value for flag, _, value in given}
        variables: dict[str, str] = {each["name"]: each.get("value", "") for each in self._container.get("env", [])}
        return flags.get(f"--{name}") or variables.get(ENV_PREFIX + name.replace("-", "_").upper(), "")

    @property
    def _pod_spec(self) -> Manifest:
        spec: Manifest = self.deployment["spec"]["template"]["spec"] if self.deployment else {}
        return spec

    @property
    def _container(self) -> Manifest:
        return next(iter(self._pod_spec.get("containers", ())), {})


class OperatorNode(msgspec.Struct, rename="camel", kw_only=True):
    """The operator in the output of `status`."""

    namespace: str
    state: str
    """`Running`, `NotLeading`, `NotReady`, `NotFound` or `Unknown`."""
    message: str = ""
    version: str = ""
    leader: str = ""
    last_seen: str = ""
    """When the leader last renewed the Lease."""
    replicas: int = 0
    ready_replicas: int = 0


async def find_operator(session: Session, namespace: str) -> Operator:
    """Read the Deployment and the Lease. What cannot be read does not raise."""
    deployment: Manifest | None = None
    lease: Lease | None = None
    problems: list[str] = []
    failures: list[str] = []
    try:
        found = await listed(session, DEPLOYMENT, namespace, labels=LABEL)
        deployment = found[0].manifest if found else None
    except errors.KubeError as error:
        (problems if isinstance(error, errors.Forbidden) else failures).append(str(error))
    try:
        lease = await session.client.get(LEASE, Key(namespace, LEASE_NAME))
    except errors.NotFound:
        pass
    except errors.KubeError as error:
        (problems if isinstance(error, errors.Forbidden) else failures).append(str(error))
    return Operator(namespace, deployment, lease, tuple(problems), tuple(failures))


def operator_node(operator: Operator, now: datetime) -> OperatorNode:
    """Return the state of the operator.

    | Lease                        | Deployment       | state      |
    |------------------------------|------------------|------------|
    | renewed within its duration  | any              | Running    |
    | released or expired          | any              | NotLeading |
    | absent or unreadable         | with ready pods  | Running    |
    | absent or unreadable         | without          | NotReady   |
    | unreadable                   | absent           | Unknown    |
    | absent                       | unreadable       | Unknown    |
    | absent                       | absent           | NotFound   |
    """
    spec = operator.lease.spec if operator.lease else None
    replicas, ready = _replicas(operator.deployment)
    node = OperatorNode(
        namespace=operator.namespace,
        state="Running",
        version=_version(operator),
        leader=spec.holder_identity.rpartition("_")[0] or spec.holder_identity if spec else "",
        last_seen=spec.renew_time if spec else "",
        replicas=replicas,
        ready_replicas=ready,
    )
    if spec is not None:
        if not is_leading(operator, now):
            node.state, node.message = "NotLeading", "No replica leads, so nothing is reconciled"
    elif operator.deployment is not None:
        if not ready:
            node.state, node.message = "NotReady", "No pod is ready, so nothing is reconciled"
    elif unreadable := operator.problems + operator.failures:
        node.state, node.message = "Unknown", unreadable[0]
    else:
        node.state = "NotFound"
        node.message = f"Not found in namespace {operator.namespace} (use --operator-namespace)"
    return node


def is_leading(operator: Operator, now: datetime) -> bool:
    """Return whether the Lease has a holder that renews it."""
    if operator.lease is None or not operator.lease.spec.holder_identity:
        return False
    spec = operator.lease.spec
    return now < _time(spec.renew_time) + timedelta(seconds=spec.lease_duration_seconds) + CLOCK_SKEW


def age(node: OperatorNode, now: datetime) -> str:
    """Return how long ago the leader renewed the Lease; empty if that is not known."""
    if not node.last_seen:
        return ""
    seconds = max(0, int((now - _time(node.last_seen)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text) if text else datetime.min.replace(tzinfo=UTC)


def _replicas(deployment: Manifest | None) -> tuple[int, int]:
    if deployment is None:
        return 0, 0
    return deployment["spec"].get("replicas", 1), deployment.get("status", {}).get("readyReplicas", 0)


def _version(operator: Operator) -> str:
    """Return the version of the leader; without a Lease the tag of the image, if it has one."""
    if operator.lease and (version := operator.lease.metadata.annotations.get(OPERATOR_VERSION)):
        return version
    name, _, tag = operator.image.rpartition(":")
    return tag if name and "/" not in tag and "@" not in name else ""
