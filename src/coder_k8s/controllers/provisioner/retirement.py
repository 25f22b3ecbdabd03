"""Deletes unused keys at the control plane that created them."""

from datetime import timedelta

import msgspec
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
HIDDEN_POLL = timedelta(minutes=2)
"""Time between two attempts while coderd does not list the organization of a key."""
HIDDEN_TIMEOUT = timedelta(hours=24)
"""How long an organization may be hidden before it counts as deleted."""
NOT_PROVEN = "nothing proves that this object created it; delete it in Coder if it is not used"


class Waiting(msgspec.Struct, frozen=True):
    """A key that is not deleted yet, and when to retry."""

    key: RetiringKey
    poll: timedelta = POLL


class NotProven(Exception):
    """A key has the recorded name, and nothing proves that this object created it."""


class Retirement:
    """Deletes a key when no connected daemon uses it, or its pods are gone and their grace period is over."""

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
        """Delete retiring keys, and return those that have to wait.

        `rolled_out` means that the rollout with a later key is complete, `pods_left` that pods with an earlier one are
        left.
        """
        left = []
        for key in provisioner.status.retiring_keys:
            if why := self._resolver.unrecoverable(provisioner, key.control_plane_ref_name):
                self._report_leaked(provisioner, key, why)
            elif not rolled_out:  # the watch of the Deployment triggers the next reconcile
                left.append(key)
            elif (waiting := await self._retire(provisioner, key, pods_left)) is not None:
                left.append(waiting.key)
                report.requeue_after(waiting.poll.total_seconds())
        if len(left) < len(provisioner.status.retiring_keys):
            report.requeue_after(0.0)  # the next rotation may be waiting for this
        return left

    async def clean_up(self, provisioner: CoderProvisioner) -> bool:
        """Delete all keys of a deleted object; whether that is done. Leaked keys are reported once, at the end."""
        left: list[tuple[RetiringKey, str]] = []
        done = True
        for key in records.keys_of(provisioner):
            error, final = await self._delete(provisioner, key)
            if error and (final or not await self._cleanup.may_wait(provisioner)):
                left.append((key, error))
            elif error:
                done = False
        if done:
            for key, why in left:
                self._report_leaked(provisioner, key, why)
        return done

    async def _retire(self, provisioner: CoderProvisioner, key: RetiringKey, pods_left: bool) -> Waiting | None:
        """Delete a key; returns it if it has to wait."""
        coderd = await self._resolver.for_key(provisioner, key.control_plane_ref_name)
        if coderd is None:
            return Waiting(key)
        grace = timedelta(seconds=provisioner.spec.termination_grace_period_seconds)
        try:
            key = await self._with_organization_id(coderd, key)
            waiting = pods_left or key.since is None or self._now() < key.since + grace
            if waiting and await self._in_use(coderd, key):
                return Waiting(key)
            await self._children.confirm(provisioner)  # the name of a retired key may be in use again
            await self._delete_owned(provisioner, coderd, key)
        except coderd_errors.RateLimited:
            raise
        except coderd_errors.Unavailable:
            return Waiting(key)
        except (coderd_errors.NotSupported, NotProven) as why:
            self._report_leaked(provisioner, key, str(why))
            return None
        except coderd_errors.NotFound as hidden:
            return await self._handle_hidden(provisioner, coderd, key, hidden)
        except coderd_errors.CoderdError as refusal:
            self._report_not_deleted(provisioner, key, str(refusal))
            return Waiting(key)
        return None

    async def _handle_hidden(
        self, provisioner: CoderProvisioner, coderd: Coderd, key: RetiringKey, hidden: coderd_errors.NotFound
    ) -> Waiting | None:
        """The key, unless its organization is deleted. An Owner sees all of them; for others a timeout applies."""
        try:
            seen = await _exists(coderd, key.organization_id or key.organization_name)
            owner = any(role.name == "owner" for role in (await coderd.me()).roles)
        except coderd_errors.RateLimited:
            raise
        except coderd_errors.CoderdError:
            return Waiting(key)
        if seen:
            self._report_not_deleted(provisioner, key, str(hidden))
            return Waiting(key)
        if owner or (key.since is not None and self._now() - key.since >= HIDDEN_TIMEOUT):
            self._report_leaked(provisioner, key, "Coder has no such organization; if it was deleted, so is the key")
            return None
        advice = "unless it was deleted, assign the role Organization Admin in it to the user of the token"
        self._report_not_deleted(provisioner, key, f"the organization is not visible; {advice}")
        return Waiting(key, HIDDEN_POLL)

    def _report_not_deleted(self, provisioner: CoderProvisioner, key: RetiringKey, why: str) -> None:
        note = f"Cannot delete provisioner {_describe(key)}: {why}"
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_NOT_DELETED, note)

    async def _with_organization_id(self, coderd: Coderd, key: RetiringKey) -> RetiringKey:
        """The key with the ID of its organization, which an earlier version did not record."""
        if key.organization_id:
            return key
        return replace(key, organization_id=(await self._queries.organization(coderd, key.organization_name)).id)

    async def _in_use(self, coderd: Coderd, key: RetiringKey) -> bool:
        """Whether a connected daemon uses the key. Only a new response proves that none does."""
        for max_age in (POLL, timedelta()):
            seen = await self._queries.daemons(coderd, key.organization_id, max_age)
            on_key = [each for each in seen if (each.key_id == key.id if key.id else each.key_name == key.name)]
            if any(map(is_connected, on_key)):
                return True
        return False

    async def _delete(self, provisioner: CoderProvisioner, key: RetiringKey) -> tuple[str, bool]:
        """Delete a key; returns an error, or empty if it is deleted, and whether that is final."""
        if why := self._resolver.unrecoverable(provisioner, key.control_plane_ref_name):
            return why, True
        coderd = await self._resolver.for_key(provisioner, key.control_plane_ref_name)
        if coderd is None:
            return "there are no credentials for its control plane", False
        try:
            await self._delete_owned(provisioner, coderd, key)
        except (coderd_errors.NotSupported, NotProven) as error:
            return str(error), True
        except coderd_errors.CoderdError as error:
            return str(error), False
        return "", True

    async def _delete_owned(self, provisioner: CoderProvisioner, coderd: Coderd, key: RetiringKey) -> None:
        """Delete a key if it exists and belongs to this object.

        The list decides: coderd deletes by name, and also returns 404 to a user who may not see the key.
        """
        organization = key.organization_id or key.organization_name
        stored = await coderd.provisioner_keys(organization)
        found = records.found(key, stored)
        if found is None or not await self._is_owned(provisioner, coderd, key, found, stored):
            return
        await coderd.delete_provisioner_key(organization, found.name)
        note = f"Deleted provisioner key {found.name}"
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_RETIRED, note)

    async def _is_owned(
        self,
        provisioner: CoderProvisioner,
        coderd: Coderd,
        key: RetiringKey,
        found: ProvisionerKey,
        stored: list[ProvisionerKey],
    ) -> bool:
        """Whether a key belongs to this object, and not to another one; raises `NotProven` if neither is known."""
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
            raise NotProven(NOT_PROVEN)
        return True

    def _report_leaked(self, provisioner: CoderProvisioner, key: RetiringKey, why: str) -> None:
        note = f"Provisioner {_describe(key)} is left in Coder: {why}"
        self._recorder.record(PROVISIONER, provisioner, events.PROVISIONER_KEY_LEAKED, note)


def _describe(key: RetiringKey) -> str:
    return f"key {key.name} in organization {key.organization_name} of CoderControlPlane {key.control_plane_ref_name}"


async def _exists(coderd: Coderd, organization: str) -> bool:
    try:
        await coderd.organization(organization)
    except coderd_errors.NotFound:
        return False
    return True
