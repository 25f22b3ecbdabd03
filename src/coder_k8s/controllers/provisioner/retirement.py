"""Deletes keys that nobody uses any more, at the control plane where they were made."""

from collections.abc import Callable
from datetime import datetime, timedelta

from coder_k8s.api import PROVISIONER, CoderProvisioner
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.cleanup import Cleanup
from coder_k8s.controllers.report import Report
from coder_k8s.kube.events import Recorder

from .credentials import Credentials
from .daemons import is_connected
from .views import Views

POLL = timedelta(seconds=10)


class Retirement:
    """Waits until coderd shows no connected daemon on a key, or its pods and their grace period are gone."""

    def __init__(
        self,
        children: Children,
        credentials: Credentials,
        views: Views,
        recorder: Recorder,
        now: Callable[[], datetime],
        cleanup: Cleanup,
    ) -> None:
        self._children = children
        self._credentials = credentials
        self._views = views
        self._recorder = recorder
        self._now = now
        self._cleanup = cleanup

    async def proceed(
        self, provisioner: CoderProvisioner, rolled_out: bool, pods_left: bool, report: Report
    ) -> list[RetiringKey]:
        """The keys that still have to wait. `rolled_out` says that the pods that count run with a later key,
        `pods_left` that some with an earlier one are still there."""
        left = []
        for key in provisioner.status.retiring_keys:
            if why := self._credentials.hopeless(provisioner, key.control_plane_ref_name):
                self._leaked(provisioner, key, why)
            elif not rolled_out:  # which is told by a watch
                left.append(key)
            elif not await self._retire(provisioner, key, pods_left):
                left.append(key)
                report.again(POLL.total_seconds())
        if len(left) < len(provisioner.status.retiring_keys):
            report.again(0.0)  # the next rotation may have waited for this
        return left

    async def clean_up(self, provisioner: CoderProvisioner) -> bool:
        """Delete all keys of an object that goes; whether that is settled, one way or the other."""
        settled = True
        for key in keys_of(provisioner):
            why = self._credentials.hopeless(provisioner, key.control_plane_ref_name)
            trouble = why or await self._delete(provisioner, key)
            if trouble and (why or not await self._cleanup.may_wait(provisioner)):
                self._leaked(provisioner, key, trouble)
            elif trouble:
                settled = False
        return settled

    async def _retire(self, provisioner: CoderProvisioner, key: RetiringKey, pods_left: bool) -> bool:
        coderd = await self._credentials.for_place(provisioner, key.control_plane_ref_name)
        if coderd is None:
            return False
        grace = timedelta(seconds=provisioner.spec.termination_grace_period_seconds)
        try:
            waiting = pods_left or key.since is None or self._now() < key.since + grace
            if waiting and await self._in_use(coderd, key):
                return False
            await self._children.confirm(provisioner)  # the name of a key that retired may be in use again
            await _delete(coderd, key)
        except coderd_errors.RateLimited:
            raise
        except coderd_errors.CoderdError:
            return False
        self._recorder.normal(PROVISIONER, provisioner, "ProvisionerKeyRetired", f"key {key.name} is deleted")
        return True

    async def _in_use(self, coderd: Coderd, key: RetiringKey) -> bool:
        """Whether a daemon is connected with it. An old answer may say so, but only a new one that there is none."""
        for max_age in (POLL, timedelta()):
            seen = await self._views.daemons(coderd, key.organization_name, max_age)
            if any(is_connected(daemon) for daemon in seen if daemon.key_name == key.name):
                return True
        return False

    async def _delete(self, provisioner: CoderProvisioner, key: RetiringKey) -> str:
        """What hinders the deletion of a key now; empty when it is gone."""
        coderd = await self._credentials.for_place(provisioner, key.control_plane_ref_name)
        if coderd is None:
            return "there are no credentials for its control plane"
        try:
            await _delete(coderd, key)
        except coderd_errors.CoderdError as trouble:
            return str(trouble)
        return ""

    def _leaked(self, provisioner: CoderProvisioner, key: RetiringKey, why: str) -> None:
        where = f"{key.name} in organization {key.organization_name} of CoderControlPlane {key.control_plane_ref_name}"
        self._recorder.warning(
            PROVISIONER, provisioner, "ProvisionerKeyLeaked", f"key {where} is left in coderd: {why}"
        )


def keys_of(provisioner: CoderProvisioner) -> list[RetiringKey]:
    """Every key that the status says exists, or may exist."""
    status = provisioner.status
    if not status.provisioner_key_name:
        return status.retiring_keys
    current = RetiringKey(
        name=status.provisioner_key_name,
        organization_name=status.organization_name,
        control_plane_ref_name=status.control_plane_ref_name,
        control_plane_url=status.control_plane_url,
    )
    return [current, *status.retiring_keys]


async def _delete(coderd: Coderd, key: RetiringKey) -> None:
    """Delete a key. coderd also answers "not found" to a user who may not see the key, so its list decides."""
    try:
        await coderd.delete_provisioner_key(key.organization_name, key.name)
    except coderd_errors.NotSupported:
        return
    except coderd_errors.NotFound:
        if any(each.name == key.name for each in await coderd.provisioner_keys(key.organization_name)):
            raise
