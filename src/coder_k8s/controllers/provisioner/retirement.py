"""Deletes keys that nobody uses any more, at the control plane where they were made."""

from collections.abc import Callable
from datetime import datetime, timedelta

from coder_k8s.api import PROVISIONER, CoderProvisioner
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.report import Report
from coder_k8s.kube.events import Recorder

from .credentials import Credentials
from .daemons import is_connected
from .views import Views

POLL = timedelta(seconds=10)
RETRY = 30.0
BOUND = timedelta(minutes=5)
"""How long the deletion of an object may wait for coderd."""


class Retirement:
    """Waits until coderd shows no connected daemon on a key, or its pods and their grace period are gone."""

    def __init__(self, credentials: Credentials, views: Views, recorder: Recorder, now: Callable[[], datetime]) -> None:
        self._credentials = credentials
        self._views = views
        self._recorder = recorder
        self._now = now

    async def proceed(self, provisioner: CoderProvisioner, rolled_out: bool, report: Report) -> list[RetiringKey]:
        """The keys that still have to wait."""
        left = []
        for key in provisioner.status.retiring_keys:
            coderd = await self._credentials.for_place(provisioner, key.control_plane_ref_name)
            if coderd is None:
                self._leaked(provisioner, key, "the credentials of its control plane are gone")
                continue
            try:
                gone = rolled_out and await self._retire(provisioner, key, coderd)
            except coderd_errors.RateLimited as refusal:
                gone = False
                report.again(refusal.after)
            except coderd_errors.CoderdError:
                gone = False
                report.again(RETRY)
            if not gone:
                left.append(key)
                report.again(POLL.total_seconds())
        return left

    async def clean_up(self, provisioner: CoderProvisioner) -> bool:
        """Delete all keys of an object that goes; whether that is settled, one way or the other."""
        settled = True
        for key in keys_of(provisioner):
            coderd = await self._credentials.for_place(provisioner, key.control_plane_ref_name)
            if coderd is None:
                continue  # the control plane is gone or going, and its keys with it
            try:
                await _delete(coderd, key)
            except coderd_errors.CoderdError as trouble:
                since = provisioner.metadata.deletion_timestamp
                if since is None or self._now() - since < BOUND:
                    settled = False
                else:
                    self._leaked(provisioner, key, str(trouble))
        return settled

    async def _retire(self, provisioner: CoderProvisioner, key: RetiringKey, coderd: Coderd) -> bool:
        grace = timedelta(seconds=provisioner.spec.termination_grace_period_seconds)
        if key.since is None or self._now() < key.since + grace:
            view = await self._views.get(coderd, key.organization_name, POLL)
            if any(is_connected(daemon) for daemon in view.on(key.name)):
                return False
        await _delete(coderd, key)
        self._recorder.normal(PROVISIONER, provisioner, "ProvisionerKeyRetired", f"key {key.name} is deleted")
        return True

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
    try:
        await coderd.delete_provisioner_key(key.organization_name, key.name)
    except (coderd_errors.NotFound, coderd_errors.NotSupported):
        return
