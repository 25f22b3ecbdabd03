"""Deletes keys that nobody uses any more, at the control plane where they were made."""

from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from coder_k8s.api import PROVISIONER, CoderProvisioner, events
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.report import Report

from . import records
from .daemons import is_connected
from .keysecret import KeySecret
from .resolver import KeyResolver

POLL = timedelta(seconds=10)
SLOW = timedelta(minutes=2)
"""Between two attempts while coderd does not show the organization of a key."""
PATIENCE = timedelta(hours=24)
"""How long an organization may be hidden before it is taken for deleted."""
DOUBT = "it cannot be shown that this object made it. Delete it in Coder if nobody uses it"


class Waiting(NamedTuple):
    """A key that still has to wait, and when to try again."""

    key: RetiringKey
    poll: timedelta = POLL


class NotProven(Exception):
    """A key has the recorded name, and nothing shows that this object made it."""


class Retirement:
    """Waits until coderd shows no connected daemon on a key, or its pods and their grace period are gone."""

    def __init__(self, context: Context[CoderProvisioner], secret: KeySecret, resolver: KeyResolver) -> None:
        self._provisioners = context.objects
        self._children = context.children
        self._secret = secret
        self._resolver = resolver
        self._queries = context.runtime.queries
        self._recorder = context.recorder
        self._now = context.now
        self._cleanup = context.cleanup

    async def proceed(
        self, provisioner: CoderProvisioner, rolled_out: bool, pods_left: bool, report: Report
    ) -> list[RetiringKey]:
        """The keys that still have to wait. `rolled_out` says that the pods that count run with a later key,
        `pods_left` that some with an earlier one are still there."""
        left = []
        for key in provisioner.status.retiring_keys:
            if why := self._resolver.unrecoverable(provisioner, key.control_plane_ref_name):
                self._leaked(provisioner, key, why)
            elif not rolled_out:  # which is told by a watch
                left.append(key)
            elif (waits := await self._retire(provisioner, key, pods_left)) is not None:
                left.append(waits.key)
                report.requeue_after(waits.poll.total_seconds())
        if len(left) < len(provisioner.status.retiring_keys):
            report.requeue_after(0.0)  # the next rotation may have waited for this
        return left

    async def clean_up(self, provisioner: CoderProvisioner) -> bool:
        """Delete all keys of an object that goes; whether that is settled, one way or the other. What is left is named
        in the end, and not by each attempt."""
        left: list[tuple[RetiringKey, str]] = []
        settled = True
        for key in records.keys_of(provisioner):
            trouble, final = await self._delete(provisioner, key)
            if trouble and (final or not await self._cleanup.may_wait(provisioner)):
                left.append((key, trouble))
            elif trouble:
                settled = False
        if settled:
            for key, why in left:
                self._leaked(provisioner, key, why)
        return settled

    async def _retire(self, provisioner: CoderProvisioner, key: RetiringKey, pods_left: bool) -> Waiting | None:
        """The key, if it still has to wait."""
        coderd = await self._resolver.for_key(provisioner, key.control_plane_ref_name)
        if coderd is None:
            return Waiting(key)
        grace = timedelta(seconds=provisioner.spec.termination_grace_period_seconds)
        try:
            key = await self._completed(coderd, key)
            waiting = pods_left or key.since is None or self._now() < key.since + grace
            if waiting and await self._in_use(coderd, key):
                return Waiting(key)
            await self._children.confirm(provisioner)  # the name of a key that retired may be in use again
            await self._delete_owned(provisioner, coderd, key)
        except coderd_errors.RateLimited:
            raise
        except coderd_errors.Unavailable:
            return Waiting(key)
        except (coderd_errors.NotSupported, NotProven) as why:
            self._leaked(provisioner, key, str(why))
            return None
        except coderd_errors.NotFound as hidden:
            return await self._hidden(provisioner, coderd, key, hidden)
        except coderd_errors.CoderdError as refusal:
            self._not_deleted(provisioner, key, str(refusal))
            return Waiting(key)
        return None

    async def _hidden(
        self, provisioner: CoderProvisioner, coderd: Coderd, key: RetiringKey, hidden: coderd_errors.NotFound
    ) -> Waiting | None:
        """The key, unless its organization is gone: an Owner sees all that there are, and others one day."""
        try:
            seen = await _sees(coderd, key.organization_id or key.organization_name)
            owner = any(role.name == "owner" for role in (await coderd.me()).roles)
        except coderd_errors.RateLimited:
            raise
        except coderd_errors.CoderdError:
            return Waiting(key)
        if seen:
            self._not_deleted(provisioner, key, str(hidden))
            return Waiting(key)
        if owner or (key.since is not None and self._now() - key.since >= PATIENCE):
            self._leaked(provisioner, key, "Coder has no such organization. If it was deleted, so is the key")
            return None
        advice = "give the user of the token the role Organization Admin there, unless it was deleted"
        self._not_deleted(provisioner, key, f"Coder shows no such organization: {advice}")
        return Waiting(key, SLOW)

    def _not_deleted(self, provisioner: CoderProvisioner, key: RetiringKey, why: str) -> None:
        note = f"Key {_place(key)} cannot be deleted: {why}"
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_NOT_DELETED, note)

    async def _completed(self, coderd: Coderd, key: RetiringKey) -> RetiringKey:
        """The key with the ID of its organization, which an earlier version did not record."""
        if key.organization_id:
            return key
        return replace(key, organization_id=(await self._queries.organization(coderd, key.organization_name)).id)

    async def _in_use(self, coderd: Coderd, key: RetiringKey) -> bool:
        """Whether a daemon is connected with it. An old answer may say so, but only a new one that there is none."""
        for max_age in (POLL, timedelta()):
            seen = await self._queries.daemons(coderd, key.organization_id, max_age)
            on_key = [each for each in seen if (each.key_id == key.id if key.id else each.key_name == key.name)]
            if any(map(is_connected, on_key)):
                return True
        return False

    async def _delete(self, provisioner: CoderProvisioner, key: RetiringKey) -> tuple[str, bool]:
        """What hinders the deletion of a key, empty when it is gone; and whether that is final."""
        if why := self._resolver.unrecoverable(provisioner, key.control_plane_ref_name):
            return why, True
        coderd = await self._resolver.for_key(provisioner, key.control_plane_ref_name)
        if coderd is None:
            return "there are no credentials for its control plane", False
        try:
            await self._delete_owned(provisioner, coderd, key)
        except (coderd_errors.NotSupported, NotProven) as trouble:
            return str(trouble), True
        except coderd_errors.CoderdError as trouble:
            return str(trouble), False
        return "", True

    async def _delete_owned(self, provisioner: CoderProvisioner, coderd: Coderd, key: RetiringKey) -> None:
        """Delete a key if it is there and belongs to this object.

        The list decides that: coderd deletes by name, and answers "not found" also to a user who may not see the key.
        """
        organization = key.organization_id or key.organization_name
        stored = await coderd.provisioner_keys(organization)
        found = records.found(key, stored)
        if found is None or not await self._is_owned(provisioner, coderd, key, found, stored):
            return
        await coderd.delete_provisioner_key(organization, found.name)
        note = f"key {found.name} is deleted"
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_RETIRED, note)

    async def _is_owned(
        self,
        provisioner: CoderProvisioner,
        coderd: Coderd,
        key: RetiringKey,
        found: ProvisionerKey,
        stored: list[ProvisionerKey],
    ) -> bool:
        """Whether a key belongs to this object, and not to another one; `NotProven` if neither is known."""
        if key.id:
            return True
        organization = key.organization_id or key.organization_name
        claimed = records.claimed(
            provisioner, self._provisioners, (key.control_plane_ref_name, found.organization), stored
        )
        if found.id in claimed:
            return False
        used = {daemon.key_id for daemon in await self._queries.daemons(coderd, organization, timedelta())}
        if records.is_owned(key, found, provisioner.spec.tags, used):
            return True
        held = await self._secret.made_at(provisioner, key.control_plane_ref_name, coderd)
        if held is None or held.id != found.id:
            raise NotProven(DOUBT)
        return True

    def _leaked(self, provisioner: CoderProvisioner, key: RetiringKey, why: str) -> None:
        note = f"key {_place(key)} is left in coderd: {why}"
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_LEAKED, note)


def _place(key: RetiringKey) -> str:
    return f"{key.name} in organization {key.organization_name} of CoderControlPlane {key.control_plane_ref_name}"


async def _sees(coderd: Coderd, organization: str) -> bool:
    try:
        await coderd.organization(organization)
    except coderd_errors.NotFound:
        return False
    return True
