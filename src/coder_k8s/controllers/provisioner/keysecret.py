"""The Secret that holds the key, and what it tells about the key."""

from typing import NamedTuple

from coder_k8s.api import CoderProvisioner
from coder_k8s.api.provisioner import ProvisionerStatus
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.secrets import value
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key, PartialObject

from .objects import ORIGIN, ROTATE, checksum, deployment_name, secret, secret_name

KEY_LENGTH = 43
"""Characters of every key."""


class Stored(NamedTuple):
    """A key, the control plane that made it, and the request for a rotation that it answered."""

    key: str = ""
    origin: str = ""
    asked: str = ""

    def __repr__(self) -> str:
        return f"Stored(origin={self.origin!r}, asked={self.asked!r})"


class KeySecret:
    """Reads and writes the Secret of a provisioner."""

    def __init__(self, children: Children, secrets: Cache[PartialObject]) -> None:
        self._children = children
        self._secrets = secrets

    def taken(self, provisioner: CoderProvisioner) -> bool:
        """Whether somebody else has a Secret of that name."""
        found = self._secrets.get(Key(provisioner.metadata.namespace, secret_name(provisioner)))
        return found is not None and not found.is_controlled_by(provisioner)

    async def read(self, provisioner: CoderProvisioner) -> Stored:
        """What we hold, also under the name that the Secret had before."""
        for where, field in _places(provisioner):
            found = await self._children.fetch(SECRET, where, expected=self._secrets.get(where) is not None)
            if found is not None and found.is_controlled_by(provisioner) and (key := value(found, field)):
                annotations = found.metadata.annotations
                return Stored(key, annotations.get(ORIGIN, ""), annotations.get(ROTATE, ""))
        return Stored()

    async def confirm(self, provisioner: CoderProvisioner) -> None:
        """`Conflict` unless the Secret is as we know it: a key that is made anew ends the one in it."""
        for where in {where for where, _ in _places(provisioner)}:
            await self._children.confirm_child(SECRET, where, self._secrets.get(where))

    async def write(self, provisioner: CoderProvisioner, stored: Stored) -> None:
        await self._children.apply(SECRET, provisioner, secret(provisioner, *stored))

    async def dry_run(self, provisioner: CoderProvisioner) -> None:
        """Raise what a write would: a quota or a webhook may refuse the Secret."""
        await self._children.dry_run(SECRET, secret(provisioner, "-" * KEY_LENGTH, "", ""))

    async def recorded(self, provisioner: CoderProvisioner, plane: str) -> Stored:
        """What we hold, taken to be the key that the status records without a question to coderd: pods run with it, or
        there are none yet that another one could replace."""
        stored = await self.read(provisioner)
        made_here = _in_use_at(provisioner.status) == plane and _origin(provisioner, plane, stored) == plane
        if not (stored.key and made_here):
            return Stored()
        live = self._children.get(DEPLOYMENT, Key(provisioner.metadata.namespace, deployment_name(provisioner)))
        return stored if live is None or checksum(live) == fnv1a32(stored.key.encode()) else Stored()

    async def made_at(self, provisioner: CoderProvisioner, plane: str, coderd: Coderd) -> ProvisionerKey | None:
        """The key whose secret we hold, if that control plane made it."""
        stored = await self.read(provisioner)
        return await coderd.look_up_provisioner_key(stored.key) if stored.key and stored.origin == plane else None

    async def identify(
        self, provisioner: CoderProvisioner, plane: str, coderd: Coderd, stored: Stored, known: list[ProvisionerKey]
    ) -> ProvisionerKey | None:
        """The key whose secret we hold. Pods that run with it are proof enough; else coderd is asked, but only the
        one that made the key: to any other it is a stranger's secret."""
        if not stored.key or _origin(provisioner, plane, stored) != plane:
            return None
        status = provisioner.status
        live = self._children.get(DEPLOYMENT, Key(provisioner.metadata.namespace, deployment_name(provisioner)))
        if live is not None and status.provisioner_key_id and checksum(live) == fnv1a32(stored.key.encode()):
            recorded = next((each for each in known if each.id == status.provisioner_key_id), None)
            if recorded is not None:
                return recorded
        return await coderd.look_up_provisioner_key(stored.key)


def _places(provisioner: CoderProvisioner) -> list[tuple[Key, str]]:
    """Where the key is kept, and where it was before."""
    places = [(Key(provisioner.metadata.namespace, secret_name(provisioner)), provisioner.spec.key.secret_key)]
    if (before := provisioner.status.secret_ref) is not None:
        places.append((Key(provisioner.metadata.namespace, before.name), before.key))
    return places


def _in_use_at(status: ProvisionerStatus) -> str:
    """Where the key was made that was recorded last with an ID: while its successor is yet to be made, pods go on with
    it."""
    if status.provisioner_key_id:
        return status.control_plane_ref_name
    last = status.retiring_keys[-1] if status.retiring_keys else None
    return last.control_plane_ref_name if last is not None and last.id else ""


def _origin(provisioner: CoderProvisioner, plane: str, stored: Stored) -> str:
    """Where the key was made. A Secret that does not say so is not from us, and so is from before any key was begun."""
    status = provisioner.status
    if stored.origin:
        return stored.origin
    if not status.provisioner_key_name:
        return plane
    return status.control_plane_ref_name if status.provisioner_key_id else ""
