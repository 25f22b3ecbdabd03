"""What the status says about keys, in the form that decisions are made on, and back."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from coder_k8s.api import CoderControlPlane, CoderProvisioner
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.api.shared import seconds
from coder_k8s.coderd.types import ProvisionerKey

from . import keys
from .objects import ROTATE


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


def recorded_in(provisioner: CoderProvisioner, organization: str, *, refused: bool) -> keys.Recorded:
    status = provisioner.status
    return keys.Recorded(
        name=status.provisioner_key_name.lower(),
        id=status.provisioner_key_id,
        organization=organization,
        tags_hash=status.tags_hash,
        plane=status.control_plane_ref_name,
        url=status.control_plane_url,
        requested=status.key_requested,
        refused=refused,
    )


def current(provisioner: CoderProvisioner, organization: str, key_id: str, now: datetime | None) -> RetiringKey:
    """The key in use, as one that retires. One without an ID keeps what shows whether it was made."""
    status = provisioner.status
    unproven = not key_id and status.key_requested is not None
    return RetiringKey(
        name=status.provisioner_key_name,
        id=key_id,
        organization_name=status.organization_name,
        organization_id=organization,
        control_plane_ref_name=status.control_plane_ref_name,
        control_plane_url=status.control_plane_url,
        since=status.key_requested if unproven else now,
        tags_hash=status.tags_hash if unproven else "",
    )


def rotation_due(provisioner: CoderProvisioner) -> datetime | None:
    rotation, created = provisioner.spec.key.rotation, provisioner.status.key_created
    if rotation is None or created is None:
        return None
    return created + timedelta(seconds=seconds(rotation.interval))


def asked(provisioner: CoderProvisioner, answered: str, now: datetime) -> str:
    """Why another key is wanted although this one fits; `answered` is the request that this one answers."""
    if provisioner.metadata.annotations.get(ROTATE, "") not in ("", answered):
        return "Requested"
    due = rotation_due(provisioner)
    return "IntervalElapsed" if due is not None and due <= now else ""


def keys_of(provisioner: CoderProvisioner) -> list[RetiringKey]:
    """Every key that the status says exists, or may exist."""
    status = provisioner.status
    if not status.provisioner_key_name:
        return status.retiring_keys
    return [current(provisioner, status.organization_id, status.provisioner_key_id, None), *status.retiring_keys]


def is_unproven(key: RetiringKey) -> bool:
    """Whether a key was requested and nobody knows yet whether it was made. What an earlier version recorded without
    an ID was."""
    return not key.id and bool(key.tags_hash)


def owned(
    key: RetiringKey, stored: Sequence[ProvisionerKey], tags: Mapping[str, str], used: Collection[str]
) -> ProvisionerKey | None:
    """The key of coderd that a record stands for; nothing when it is gone, or that of someone else."""
    if key.id:
        return next((each for each in stored if each.id == key.id), None)
    namesake = next((each for each in stored if each.name == key.name.lower()), None)
    if namesake is None or not is_unproven(key):
        return namesake
    return namesake if keys.is_requested(namesake, key.tags_hash, key.since, tags, used) else None
