"""The backup of a CloudNativePG Cluster before an update."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from coder_k8s.api import CoderControlPlane
from coder_k8s.api.shared import seconds
from coder_k8s.api.updates import BackupPolicy, UpdateStatus
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.names import NAME_LIMIT, derived
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import BACKUP
from coder_k8s.kube.objects import Manifest, Unstructured

from .observations import Backup

COMPONENT = "coder-backup"


def backup_name(plane: CoderControlPlane, update: UpdateStatus) -> str:
    """The name of the backup that the operator creates: one for each update."""
    started = f"{update.started_at:%Y%m%d%H%M%S}" if update.started_at else "0"
    return derived(plane.metadata.name, suffix=f"-update-{started}", limit=NAME_LIMIT)


def choose(found: Iterable[Unstructured], policy: BackupPolicy, own: str, now: datetime) -> Backup:
    """The backup of the Cluster that the update uses.

    | backups of the Cluster                           | result                        |
    |--------------------------------------------------|-------------------------------|
    | one is completed and young enough                | done                          |
    | the one of this update has failed                | error, with its own error     |
    | any other, or none                               | neither: wait for it, or create it |
    """
    cluster = policy.cnpg_cluster_ref.name
    of_cluster = [each for each in found if (each.manifest.get("spec") or {}).get("cluster", {}).get("name") == cluster]
    recent = timedelta(seconds=seconds(policy.max_age))
    for each in of_cluster:
        status: Manifest = each.manifest.get("status") or {}
        stopped = _time(status.get("stoppedAt"))
        if status.get("phase") == "completed" and stopped is not None and now - stopped <= recent:
            return Backup(done=each.metadata.name)
    failed = next((each for each in of_cluster if each.metadata.name == own), None)
    status = (failed.manifest.get("status") or {}) if failed else {}
    if status.get("phase") in ("failed", "walArchivingFailing"):
        cause = str(status.get("error", "") or status["phase"])
        return Backup(error=f"Backup {own} of Cluster {cluster} failed: {cause}; fix it, then delete this Backup")
    return Backup()


class Backups:
    """Reads and creates CloudNativePG Backups. They are read only during an update, so they are not watched."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ensure(self, plane: CoderControlPlane, update: UpdateStatus, now: datetime) -> Backup:
        """The backup of an update, created if there is none."""
        policy = plane.spec.update.backup
        if policy is None:
            return Backup(waived=True)
        cluster, own = policy.cnpg_cluster_ref.name, backup_name(plane, update)
        try:
            found = await self._list(plane.metadata.namespace)
            chosen = choose(found, policy, own, now)
            if not chosen.done and not chosen.error and own not in {each.metadata.name for each in found}:
                await self._client.create(BACKUP, _manifest(plane, own, cluster))
        except errors.NotFound:
            cause = "the cluster does not have CloudNativePG; install it, or remove update.backup"
            return Backup(error=f"Cluster {cluster} has no backup: {cause}")
        except errors.AlreadyExists:
            return Backup()
        except (errors.Forbidden, errors.Invalid) as error:
            return Backup(error=f"A Backup of Cluster {cluster} cannot be created: {error.message}")
        return chosen

    async def _list(self, namespace: str) -> list[Unstructured]:
        pages = self._client.list(BACKUP, namespace)
        return [BACKUP.type.decode(item) async for page in pages for item in page.items]


def _manifest(plane: CoderControlPlane, name: str, cluster: str) -> Manifest:
    """The Backup. It has no owner, because it must outlive the control plane."""
    return {
        "metadata": {"name": name, "namespace": plane.metadata.namespace, "labels": labels(COMPONENT, plane)},
        "spec": {"cluster": {"name": cluster}},
    }


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
