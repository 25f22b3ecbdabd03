"""Converts between the status of a provisioner and the values that decisions about keys use."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from coder_k8s.api import CoderControlPlane, CoderProvisioner
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.api.shared import seconds
from coder_k8s.coderd.types import ProvisionerKey, ProvisionerKeyList

from . import keys
from .objects import ROTATE

GRANULARITY = timedelta(seconds=1)
"""Of the time in a response of coderd."""
MIN_BACKOFF, MAX_BACKOFF = timedelta(seconds=2), timedelta(minutes=2)
"""Time between two replacements of a key while too many retire."""
UNKNOWN = "unknown"
"""Stands for an unknown hash of tags; the hash of no tags is a different value."""


def organization_name(provisioner: CoderProvisioner) -> str:
    return provisioner.spec.organization_name or "default"


def organization_known(provisioner: CoderProvisioner, plane: CoderControlPlane) -> str:
    """The ID of the organization of the spec, if the status has it."""
    status = provisioner.status
    recorded = (status.control_plane_ref_name, status.organization_name)
    return status.organization_id if recorded == (plane.metadata.name, organization_name(provisioner)) else ""


def wanted_by(provisioner: CoderProvisioner, plane: CoderControlPlane, organization: str) -> keys.Wanted:
    return keys.Wanted(
        base=provisioner.spec.key.name or provisioner.metadata.name,
        organization=organization,
        tags=provisioner.spec.tags,
        plane=plane.metadata.name,
        url=plane.status.url,
    )


def recorded_in(provisioner: CoderProvisioner, organization: str) -> keys.Recorded:
    status = provisioner.status
    return keys.Recorded(
        name=status.provisioner_key_name.lower(),
        id=status.provisioner_key_id,
        organization=organization,
        tags_hash=status.tags_hash,
        plane=status.control_plane_ref_name,
        url=status.control_plane_url,
        requested=status.key_requested,
        refused=status.key_refused,
    )


def current(provisioner: CoderProvisioner, organization: str, key_id: str, now: datetime | None) -> RetiringKey:
    """The key in use as a retiring key. Without an ID it keeps what shows later whether it was created."""
    status = provisioner.status
    unproven = not key_id
    return RetiringKey(
        name=status.provisioner_key_name,
        id=key_id,
        organization_name=status.organization_name,
        organization_id=organization,
        control_plane_ref_name=status.control_plane_ref_name,
        control_plane_url=status.control_plane_url,
        since=status.key_requested if unproven else now,
        tags_hash=status.tags_hash or UNKNOWN if unproven else "",
    )


def requested_at(listed: ProvisionerKeyList, now: datetime) -> datetime:
    """The earliest creation time of a key whose name is free in this list, by coderd's clock if it is known."""
    return (listed.listed_at or now).replace(microsecond=0) - GRANULARITY


def rotation_due(provisioner: CoderProvisioner) -> datetime | None:
    rotation, created = provisioner.spec.key.rotation, provisioner.status.key_created
    if rotation is None or created is None:
        return None
    return created + timedelta(seconds=seconds(rotation.interval))


def backoff_until(provisioner: CoderProvisioner) -> datetime | None:
    """When a lost key may be replaced although too many retire; the delay doubles with each further key."""
    retiring = provisioner.status.retiring_keys
    if len(retiring) < keys.RETIRING_LIMIT or retiring[-1].since is None:
        return None
    growth: int = 2 ** min(len(retiring) - keys.RETIRING_LIMIT, 10)
    return retiring[-1].since + min(MIN_BACKOFF * growth, MAX_BACKOFF)


def rotation_cause(provisioner: CoderProvisioner, fulfilled: str, now: datetime) -> str:
    """Why a matching key must be rotated, or empty; `fulfilled` is the rotation request that it fulfills."""
    if provisioner.metadata.annotations.get(ROTATE, "") not in ("", fulfilled):
        return "Requested"
    due = rotation_due(provisioner)
    return "IntervalElapsed" if due is not None and due <= now else ""


def keys_of(provisioner: CoderProvisioner) -> list[RetiringKey]:
    """Every key that exists, or may exist, by the status."""
    status = provisioner.status
    if not status.provisioner_key_name or (status.key_refused and not status.provisioner_key_id):
        return status.retiring_keys
    return [current(provisioner, status.organization_id, status.provisioner_key_id, None), *status.retiring_keys]


def is_unproven(key: RetiringKey) -> bool:
    """Whether a key was requested and may not have been created.

    A key that an earlier version replaced and recorded without an ID was created; it has no hash of tags.
    """
    return not key.id and bool(key.tags_hash)


def found(key: RetiringKey, stored: Sequence[ProvisionerKey]) -> ProvisionerKey | None:
    """The key in coderd that a record may refer to."""
    if key.id:
        return next((each for each in stored if each.id == key.id), None)
    return next((each for each in stored if each.name == key.name.lower()), None)


def is_owned(key: RetiringKey, candidate: ProvisionerKey, tags: Mapping[str, str], excluded: Collection[str]) -> bool:
    """Whether a record proves that this object created a key.

    `excluded` are the IDs of keys that daemons use or other objects record.
    """
    if key.id:
        return True
    if is_unproven(key):
        return keys.is_requested(candidate, key.tags_hash, key.since, tags, excluded)
    return candidate.id not in excluded


def claimed(
    provisioner: CoderProvisioner,
    objects: Iterable[CoderProvisioner],
    target: tuple[str, str],
    stored: Iterable[ProvisionerKey],
) -> set[str]:
    """The IDs of keys that other objects record.

    They record an ID, or only the name of a requested key at this control plane and organization, the `target`.
    """
    others = [each for each in objects if each.metadata.uid != provisioner.metadata.uid]
    recorded = [(each, key) for each in others for key in keys_of(each)]
    names = {
        key.name.lower()
        for each, key in recorded
        if not key.id
        and each.metadata.namespace == provisioner.metadata.namespace
        and (key.control_plane_ref_name, key.organization_id or target[1]) == target
    }
    return {key.id for _, key in recorded if key.id} | {key.id for key in stored if key.name in names}


def described(provisioner: CoderProvisioner) -> str:
    tags = ", ".join(f"{name}={value}" for name, value in sorted(provisioner.spec.tags.items()) if value)
    where = f"organization {organization_name(provisioner)}"
    return f"Key {provisioner.status.provisioner_key_name} of {where} has {f'the tags {tags}' if tags else 'no tags'}"


def in_words(cause: str) -> str:
    """A cause such as `TagsChanged` in a message: `tags changed`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", cause).lower()
