"""Reports daemons as the condition `DaemonsConnected`, and finds pods whose daemon is disconnected."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from coder_k8s.api import CoderProvisioner, ProvisionerCondition, reasons
from coder_k8s.api.provisioner import Daemons
from coder_k8s.coderd.types import ProvisionerDaemon
from coder_k8s.controllers.report import Report
from coder_k8s.kube.objects import Unstructured

from .objects import deployment_name
from .records import is_unproven

CONNECTED = ProvisionerCondition.DAEMONS_CONNECTED
DISCONNECTED_AFTER = timedelta(minutes=3)
VERSIONS = 16
"""Maximum number of versions in the status."""
CONNECTING_POLL = timedelta(seconds=10)


def of_provisioner(provisioner: CoderProvisioner, seen: Iterable[ProvisionerDaemon]) -> list[ProvisionerDaemon]:
    """The daemons that use a key of this object.

    A key that an earlier version replaced may have only a name; it counts where the current key is.
    """
    status = provisioner.status
    here = (status.control_plane_ref_name, status.organization_id)
    ids = {status.provisioner_key_id, *(each.id for each in status.retiring_keys)} - {""}
    names = {
        each.name
        for each in status.retiring_keys
        if not (each.id or is_unproven(each))
        and (each.control_plane_ref_name, each.organization_id or status.organization_id) == here
    }
    return [daemon for daemon in seen if daemon.key_id in ids or daemon.key_name in names]


def is_connected(daemon: ProvisionerDaemon) -> bool:
    return daemon.status in ("idle", "busy")


def summary(daemons: Iterable[ProvisionerDaemon]) -> Daemons:
    states = [(daemon.status, daemon.version) for daemon in daemons]
    return Daemons(
        connected=sum(status in ("idle", "busy") for status, _ in states),
        busy=sum(status == "busy" for status, _ in states),
        offline=sum(status == "offline" for status, _ in states),
        versions=sorted({version for status, version in states if status != "offline" and version})[:VERSIONS],
    )


def expected(
    provisioner: CoderProvisioner, daemons: Iterable[ProvisionerDaemon], pods: Iterable[Unstructured]
) -> list[ProvisionerDaemon]:
    """The daemons that count: with autoscaling, daemons of removed pods are offline for good reason."""
    if provisioner.spec.autoscaling is None or not are_named_after_pods(provisioner):
        return list(daemons)
    names = {pod.metadata.name for pod in pods}
    return [daemon for daemon in daemons if is_connected(daemon) or daemon.name in names]


def complete(daemons: Iterable[ProvisionerDaemon], wanted: int) -> bool:
    """Whether as many daemons are connected as pods are desired."""
    return sum(map(is_connected, daemons)) >= wanted


def report_daemons(provisioner: CoderProvisioner, found: Daemons, wanted: int, report: Report) -> None:
    versions = f" ({', '.join(found.versions)})" if found.versions else ""
    message = f"{min(found.connected, wanted)} of {wanted} daemons are connected{versions}"
    if wanted == 0:
        report.add(CONNECTED, False, reasons.SCALED_TO_ZERO, "Scaled to zero", satisfied=True)
    elif found.connected >= wanted:
        report.add(CONNECTED, True, reasons.DAEMONS_CONNECTED, message)
    else:
        reason = reasons.DAEMONS_CONNECTING if found.connected else reasons.DAEMONS_NOT_CONNECTED
        advice = f"if this persists, see the logs of Deployment {deployment_name(provisioner)}"
        report.add(CONNECTED, found.connected > 0, reason, f"{message}; {advice}", satisfied=False)
        report.requeue_after(CONNECTING_POLL.total_seconds())


def find_disconnected(
    pods: Sequence[Unstructured], daemons: Sequence[ProvisionerDaemon], now: datetime
) -> Unstructured | None:
    """A pod that is ready although coderd has not seen its daemon for minutes.

    A daemon that coderd rejected neither exits nor retries. No pod is returned while another one is being deleted, or
    while a recently seen daemon has the name of no pod, because it may run in any of them. A busy daemon is connected.
    """
    by_name = {daemon.name: daemon for daemon in daemons}
    if any(pod.deleting for pod in pods) or sum(map(is_connected, daemons)) >= len(pods):
        return None
    unmatched = by_name.keys() - {pod.metadata.name for pod in pods}
    if any(is_connected(by_name[name]) or not _unseen(by_name[name], now) for name in unmatched):
        return None
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        since = ready_since(pod)
        if since is None or now - since < DISCONNECTED_AFTER:
            continue
        daemon = by_name.get(pod.metadata.name)
        if daemon is None or (not is_connected(daemon) and daemon.current_job is None and _unseen(daemon, now)):
            return pod
    return None


def are_named_after_pods(provisioner: CoderProvisioner) -> bool:
    """Whether the spec leaves the default name of daemons, which is that of their pod."""
    spec = provisioner.spec
    named = any(entry["name"] == "CODER_PROVISIONER_DAEMON_NAME" for entry in spec.extra_env)
    return not (named or any(argument.partition("=")[0] == "--name" for argument in spec.extra_args))


def _unseen(daemon: ProvisionerDaemon, now: datetime) -> bool:
    return daemon.last_seen_at is None or now - daemon.last_seen_at >= DISCONNECTED_AFTER


def ready_since(pod: Unstructured) -> datetime | None:
    for condition in (pod.manifest.get("status") or {}).get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"])
    return None
