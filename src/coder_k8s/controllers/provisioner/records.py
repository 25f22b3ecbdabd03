"""What the status says about keys, in the form that decisions are made on, and back."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from coder_k8s.api import CoderControlPlane, CoderProvisioner
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.api.shared import seconds
from coder_k8s.coderd.types import ProvisionerKey, ProvisionerKeyList

from . import keys
from .objects import ROTATE

GRANULARITY = timedelta(seconds=1)
"""Of the time in an answer of coderd."""
SHORTEST, LONGEST = timedelta(seconds=2), timedelta(minutes=2)
"""Between two replacements of a key while too many retire."""
UNKNOWN = "unknown"
"""In the place of the hash of the tags of a key; that of no tags is another one."""


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
    """The key in use, as one that retires. One without an ID keeps what shows whether it was made."""
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
    """The time since when a key may be ours whose name this list shows free: by coderd's clock, unless it has none."""
    return (listed.listed_at or now).replace(microsecond=0) - GRANULARITY


def rotation_due(provisioner: CoderProvisioner) -> datetime | None:
    rotation, created = provisioner.spec.key.rotation, provisioner.status.key_created
    if rotation is None or created is None:
        return None
    return created + timedelta(seconds=seconds(rotation.interval))


def unhurried(provisioner: CoderProvisioner) -> datetime | None:
    """When another key may be made although too many retire and the last one is lost; that time grows with them."""
    retiring = provisioner.status.retiring_keys
    if len(retiring) < keys.RETIRING_LIMIT or retiring[-1].since is None:
        return None
    growth: int = 2 ** min(len(retiring) - keys.RETIRING_LIMIT, 10)
    return retiring[-1].since + min(SHORTEST * growth, LONGEST)


def asked(provisioner: CoderProvisioner, answered: str, now: datetime) -> str:
    """Why another key is wanted although this one fits; `answered` is the request that this one answers."""
    if provisioner.metadata.annotations.get(ROTATE, "") not in ("", answered):
        return "Requested"
    due = rotation_due(provisioner)
    return "IntervalElapsed" if due is not None and due <= now else ""


def keys_of(provisioner: CoderProvisioner) -> list[RetiringKey]:
    """Every key that the status says exists, or may exist."""
    status = provisioner.status
    if not status.provisioner_key_name or (status.key_refused and not status.provisioner_key_id):
        return status.retiring_keys
    return [current(provisioner, status.organization_id, status.provisioner_key_id, None), *status.retiring_keys]


def is_unproven(key: RetiringKey) -> bool:
    """Whether a key was requested and nobody knows yet whether it was made. What an earlier version replaced and
    recorded without an ID was."""
    return not key.id and bool(key.tags_hash)


def found(key: RetiringKey, stored: Sequence[ProvisionerKey]) -> ProvisionerKey | None:
    """The key of coderd that a record may stand for."""
    if key.id:
        return next((each for each in stored if each.id == key.id), None)
    return next((each for each in stored if each.name == key.name.lower()), None)


def is_owned(key: RetiringKey, candidate: ProvisionerKey, tags: Mapping[str, str], spared: Collection[str]) -> bool:
    """Whether a record proves that this object made a key; `spared` are the IDs of the keys that daemons use or other
    objects record."""
    if key.id:
        return True
    if is_unproven(key):
        return keys.is_requested(candidate, key.tags_hash, key.since, tags, spared)
    return candidate.id not in spared


def claimed(
    provisioner: CoderProvisioner,
    objects: Iterable[CoderProvisioner],
    place: tuple[str, str],
    stored: Iterable[ProvisionerKey],
) -> set[str]:
    """The IDs of keys that other objects record: by the ID, or at this control plane and organization by the name of a
    key that they have requested."""
    others = [each for each in objects if each.metadata.uid != provisioner.metadata.uid]
    recorded = [(each, key) for each in others for key in keys_of(each)]
    names = {
        key.name.lower()
        for each, key in recorded
        if not key.id
        and each.metadata.namespace == provisioner.metadata.namespace
        and (key.control_plane_ref_name, key.organization_id or place[1]) == place
    }
    return {key.id for _, key in recorded if key.id} | {key.id for key in stored if key.name in names}


def described(provisioner: CoderProvisioner) -> str:
    tags = ", ".join(f"{name}={value}" for name, value in sorted(provisioner.spec.tags.items()))
    where = f"organization {organization_name(provisioner)}"
    return f"Key {provisioner.status.provisioner_key_name} of {where} has {f'the tags {tags}' if tags else 'no tags'}."
