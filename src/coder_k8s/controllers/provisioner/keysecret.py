"""The Secret with the key of a provisioner."""

from typing import NamedTuple

from coder_k8s.api import CoderProvisioner
from coder_k8s.api.provisioner import ProvisionerStatus
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.secrets import value
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key, PartialObject

from .objects import ORIGIN, ROTATE, checksum, deployment_name, secret, secret_name

KEY_LENGTH = 43
"""Length of every key, in characters."""


class Stored(NamedTuple):
    """A key, the control plane that created it, and the rotation request that it fulfills."""

    key: str = ""
    origin: str = ""
    request: str = ""

    def __repr__(self) -> str:
        return f"Stored(origin={self.origin!r}, request={self.request!r})"


class KeySecret:
    """Reads and writes the Secret of a provisioner."""

    def __init__(self, children: Children, secrets: Cache[PartialObject]) -> None:
        self._children = children
        self._secrets = secrets

    def name_taken(self, provisioner: CoderProvisioner) -> bool:
        """Whether another owner has a Secret of that name."""
        found = self._secrets.get(Key(provisioner.metadata.namespace, secret_name(provisioner)))
        return found is not None and not found.is_controlled_by(provisioner)

    async def read(self, provisioner: CoderProvisioner) -> Stored:
        """The content of the Secret, or of the Secret under its previous name."""
        for where, field in _locations(provisioner):
            found = await self._children.fetch(SECRET, where, expected=self._secrets.get(where) is not None)
            if found is not None and found.is_controlled_by(provisioner) and (key := value(found, field)):
                annotations = found.metadata.annotations
                return Stored(key, annotations.get(ORIGIN, ""), annotations.get(ROTATE, ""))
        return Stored()

    async def confirm(self, provisioner: CoderProvisioner) -> None:
        """Raise `Conflict` if the cached Secret is stale: a new key replaces the one in it."""
        for where in {where for where, _ in _locations(provisioner)}:
            await self._children.confirm_child(SECRET, where, self._secrets.get(where))

    def confirm_stored(self, provisioner: CoderProvisioner, stored: Stored) -> None:
        """Raise `Conflict` if the Secret has another key by now: an earlier one must not replace it."""
        where = Key(provisioner.metadata.namespace, secret_name(provisioner))
        found = self._children.get(SECRET, where)
        current = value(found, provisioner.spec.key.secret_key) if found and found.is_controlled_by(provisioner) else ""
        if current and current != stored.key:
            raise errors.Conflict(409, "Conflict", f"Secret {where} has changed since it was read")

    async def write(self, provisioner: CoderProvisioner, stored: Stored) -> None:
        await self._children.apply(SECRET, provisioner, secret(provisioner, *stored))

    async def dry_run(self, provisioner: CoderProvisioner) -> None:
        """Raise what a write would: a quota or a webhook may reject the Secret."""
        await self._children.dry_run(SECRET, secret(provisioner, "-" * KEY_LENGTH, "", ""))

    async def recorded(self, provisioner: CoderProvisioner, plane: str) -> Stored:
        """The content of the Secret, if it is the recorded key as far as is known without a request to coderd.

        Pods run with it, or there is no Deployment yet.
        """
        stored = await self.read(provisioner)
        created_here = _in_use_at(provisioner.status) == plane and _origin(provisioner, plane, stored) == plane
        if not (stored.key and created_here):
            return Stored()
        live = self._children.get(DEPLOYMENT, Key(provisioner.metadata.namespace, deployment_name(provisioner)))
        return stored if live is None or checksum(live) == fnv1a32(stored.key.encode()) else Stored()

    async def made_at(self, provisioner: CoderProvisioner, plane: str, coderd: Coderd) -> ProvisionerKey | None:
        """The key whose secret is in the Secret, if that control plane created it."""
        stored = await self.read(provisioner)
        return await coderd.look_up_provisioner_key(stored.key) if stored.key and stored.origin == plane else None

    async def identify(
        self, provisioner: CoderProvisioner, plane: str, coderd: Coderd, stored: Stored, known: list[ProvisionerKey]
    ) -> ProvisionerKey | None:
        """The key whose secret is in the Secret.

        If pods run with it, it is the recorded one. Otherwise coderd identifies it, but only the coderd that created
        it: the secret must not be sent to another one.
        """
        if not stored.key or _origin(provisioner, plane, stored) != plane:
            return None
        status = provisioner.status
        live = self._children.get(DEPLOYMENT, Key(provisioner.metadata.namespace, deployment_name(provisioner)))
        if live is not None and status.provisioner_key_id and checksum(live) == fnv1a32(stored.key.encode()):
            recorded = next((each for each in known if each.id == status.provisioner_key_id), None)
            if recorded is not None:
                return recorded
        return await coderd.look_up_provisioner_key(stored.key)


def _locations(provisioner: CoderProvisioner) -> list[tuple[Key, str]]:
    """The Secret and field of the key, now and previously."""
    locations = [(Key(provisioner.metadata.namespace, secret_name(provisioner)), provisioner.spec.key.secret_key)]
    if (before := provisioner.status.secret_ref) is not None:
        locations.append((Key(provisioner.metadata.namespace, before.name), before.key))
    return locations


def _in_use_at(status: ProvisionerStatus) -> str:
    """The control plane of the last key with an ID: pods use it until its successor is created."""
    if status.provisioner_key_id:
        return status.control_plane_ref_name
    last = status.retiring_keys[-1] if status.retiring_keys else None
    return last.control_plane_ref_name if last is not None and last.id else ""


def _origin(provisioner: CoderProvisioner, plane: str, stored: Stored) -> str:
    """The control plane that created the key. A Secret without it was not written by this operator."""
    status = provisioner.status
    if stored.origin:
        return stored.origin
    if not status.provisioner_key_name:
        return plane
    return status.control_plane_ref_name if status.provisioner_key_id else ""
