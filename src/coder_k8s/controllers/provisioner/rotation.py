"""Takes the steps that `keys` decides on: makes, stores, adopts and retires provisioner keys."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from coder_k8s.api import PROVISIONER, CoderControlPlane, CoderProvisioner
from coder_k8s.api.conditions import ProvisionerCondition
from coder_k8s.api.provisioner import RetiringKey
from coder_k8s.api.shared import SecretKey, seconds
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.secrets import SecretReader, value
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Child, Key

from . import keys
from .metrics import ProvisionerMetrics
from .objects import CHECKSUM, ROTATE, prefixed, secret, secret_name
from .views import INTERVAL, Views

KEY_READY = ProvisionerCondition.PROVISIONER_KEY_READY
SECRET_READY = ProvisionerCondition.PROVISIONER_KEY_SECRET_READY
STEPS = 6
"""More than any state needs to come to rest."""


class Rotation:
    """Keeps one key per provisioner in coderd and its secret in a Secret."""

    def __init__(
        self,
        children: Children,
        secrets: SecretReader,
        status: StatusWriter[CoderProvisioner],
        views: Views,
        recorder: Recorder,
        metrics: ProvisionerMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._children = children
        self._secrets = secrets
        self._status = status
        self._views = views
        self._recorder = recorder
        self._metrics = metrics
        self._now = now

    async def ensure(
        self, provisioner: CoderProvisioner, plane: CoderControlPlane, coderd: Coderd, report: Report
    ) -> tuple[CoderProvisioner, str]:
        """The object with what was recorded, and the key to run daemons with; empty when there is none."""
        if self._name_taken(provisioner, report):
            return provisioner, ""
        wanted = wanted_by(provisioner, plane)
        max_age = INTERVAL
        for _ in range(STEPS):
            view = await self._views.get(coderd, wanted.organization, max_age)
            key, asked = self._stored(provisioner)
            held = await self._held(provisioner, coderd, key, view.keys)
            step = keys.next_step(
                wanted,
                recorded_in(provisioner),
                held,
                view.keys,
                _retiring(provisioner, wanted),
                self._due(provisioner, asked),
            )
            if not isinstance(step, keys.Keep | keys.Wait) and max_age:
                max_age = timedelta()  # decide on nothing but the present
                continue
            match step:
                case keys.Keep():
                    return await self._keep(provisioner, key, asked, report)
                case keys.Wait(cause):
                    report.add(
                        KEY_READY, True, "Rotating", f"{cause}: waiting for the last key to retire", settled=False
                    )
                    return provisioner, key
                case keys.Blocked(name):
                    taken = f"coderd has a key {name} that is not ours: delete it there or choose another key.name"
                    report.add(KEY_READY, False, "NameTaken", taken, stalled=True)
                    return provisioner, key
                case keys.Adopt(found):
                    provisioner = await self._adopt(provisioner, wanted, found, view.keys)
                case keys.Begin(name, cause):
                    provisioner = await self._begin(provisioner, wanted, name, cause)
                case keys.Make(name, lost):
                    await self._make(provisioner, wanted, coderd, name, lost)
        raise coderd_errors.Unavailable("the key changes faster than it can be recorded")

    async def _keep(
        self, provisioner: CoderProvisioner, key: str, asked: str, report: Report
    ) -> tuple[CoderProvisioner, str]:
        """Nothing to change at coderd; the Secret may still have to move to another name."""
        await self._children.apply(SECRET, secret(provisioner, key, asked))
        report.fields["secret_ref"] = SecretKey(name=secret_name(provisioner), key=provisioner.spec.key.secret_key)
        report.add(KEY_READY, True, "KeyReady")
        report.add(SECRET_READY, True, "SecretReady")
        if (due := self._interval(provisioner)) is not None:
            report.again(max(0.0, (due - self._now()).total_seconds()))
        return provisioner, key

    async def _adopt(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, found: ProvisionerKey, stored: list[ProvisionerKey]
    ) -> CoderProvisioner:
        here = any(key.id == found.id for key in stored)
        fits = _plain(found.tags) == _plain(wanted.tags)
        return await self._status.record(
            provisioner,
            provisioner_key_id=found.id,
            provisioner_key_name=found.name,
            organization_id=found.organization,
            organization_name=wanted.organization if here else found.organization,
            tags_hash=keys.tags_hash(wanted.tags if fits else found.tags),
            control_plane_ref_name=wanted.plane,
            control_plane_url=wanted.url,
            key_created=found.created_at.replace(microsecond=0),
        )

    async def _begin(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, name: str, cause: str
    ) -> CoderProvisioner:
        """Record what is about to be made, and what it takes the place of, before it is made."""
        old = recorded_in(provisioner)
        retiring = [each for each in provisioner.status.retiring_keys if not _is(each, name, wanted)]
        if old.name and (old.name, old.organization, old.plane) != (name, wanted.organization, wanted.plane):
            retiring.append(
                RetiringKey(
                    name=old.name,
                    organization_name=old.organization,
                    control_plane_ref_name=old.plane,
                    control_plane_url=old.url,
                    since=self._now().replace(microsecond=0),
                )
            )
        begun = await self._status.record(
            provisioner,
            provisioner_key_name=name,
            provisioner_key_id="",
            organization_name=wanted.organization,
            organization_id="",
            tags_hash=keys.tags_hash(wanted.tags),
            control_plane_ref_name=wanted.plane,
            control_plane_url=wanted.url,
            key_created=None,
            retiring_keys=retiring,
        )
        if old.name:
            self._metrics.rotated(provisioner.key, cause)
            self._recorder.normal(
                PROVISIONER, provisioner, "ProvisionerKeyRotated", f"{cause}: key {name} follows {old.name}"
            )
        else:
            self._recorder.normal(PROVISIONER, provisioner, "ProvisionerKeyCreated", f"key {name}")
        return begun

    async def _make(
        self, provisioner: CoderProvisioner, wanted: keys.Wanted, coderd: Coderd, name: str, lost: bool
    ) -> None:
        if lost:
            await _delete(coderd, wanted.organization, name)
        key = await coderd.create_provisioner_key(wanted.organization, name, wanted.tags)
        asked = provisioner.metadata.annotations.get(ROTATE, "")
        await self._children.apply(SECRET, secret(provisioner, key, asked))

    async def _held(
        self, provisioner: CoderProvisioner, coderd: Coderd, key: str, stored: list[ProvisionerKey]
    ) -> ProvisionerKey | None:
        """The key whose secret we hold. Pods that run with it are proof enough; else coderd is asked."""
        if not key:
            return None
        live = self._children.get(DEPLOYMENT, Key(provisioner.metadata.namespace, prefixed(provisioner)))
        if live is not None and provisioner.status.provisioner_key_id and _checksum(live) == fnv1a32(key.encode()):
            known = next((each for each in stored if each.id == provisioner.status.provisioner_key_id), None)
            if known is not None:
                return known
        return await coderd.look_up_provisioner_key(key)

    def _stored(self, provisioner: CoderProvisioner) -> tuple[str, str]:
        """The secret that we hold, also under the name that the Secret had before, and the request that it answered."""
        owned = {each.metadata.name: each for each in self._children.owned(SECRET, provisioner)}
        places = [(secret_name(provisioner), provisioner.spec.key.secret_key)]
        if (before := provisioner.status.secret_ref) is not None:
            places.append((before.name, before.key))
        for name, field in places:
            if (found := owned.get(name)) is not None and (key := value(found, field)):
                return key, found.metadata.annotations.get(ROTATE, "")
        return "", ""

    def _name_taken(self, provisioner: CoderProvisioner, report: Report) -> bool:
        """A Secret of that name that is not ours would swallow the secret of every key that we make."""
        name = secret_name(provisioner)
        owned = {each.metadata.name for each in self._children.owned(SECRET, provisioner)}
        if name in owned or not self._secrets.exists(Key(provisioner.metadata.namespace, name)):
            return False
        taken = f"Secret {name} exists and is not ours: remove it or choose another key.secretName"
        report.add(SECRET_READY, False, "NameTaken", taken, stalled=True)
        report.again(60.0)
        return True

    def _interval(self, provisioner: CoderProvisioner) -> datetime | None:
        rotation, created = provisioner.spec.key.rotation, provisioner.status.key_created
        if rotation is None or created is None:
            return None
        return created + timedelta(seconds=seconds(rotation.interval))

    def _due(self, provisioner: CoderProvisioner, asked: str) -> str:
        """Why another key is wanted although this one fits."""
        if provisioner.metadata.annotations.get(ROTATE, "") not in ("", asked):
            return "Requested"
        due = self._interval(provisioner)
        return "IntervalElapsed" if due is not None and due <= self._now() else ""


def wanted_by(provisioner: CoderProvisioner, plane: CoderControlPlane) -> keys.Wanted:
    return keys.Wanted(
        base=provisioner.spec.key.name or provisioner.metadata.name,
        organization=provisioner.spec.organization_name or "default",
        tags=provisioner.spec.tags,
        plane=plane.metadata.name,
        url=plane.status.url,
    )


def recorded_in(provisioner: CoderProvisioner) -> keys.Recorded:
    status = provisioner.status
    return keys.Recorded(
        name=status.provisioner_key_name,
        id=status.provisioner_key_id,
        organization=status.organization_name,
        tags_hash=status.tags_hash,
        plane=status.control_plane_ref_name,
        url=status.control_plane_url,
    )


def _retiring(provisioner: CoderProvisioner, wanted: keys.Wanted) -> list[str]:
    return [each.name for each in provisioner.status.retiring_keys if _is(each, each.name, wanted)]


def _is(retiring: RetiringKey, name: str, wanted: keys.Wanted) -> bool:
    place = (retiring.name, retiring.organization_name, retiring.control_plane_ref_name)
    return place == (name, wanted.organization, wanted.plane)


def _plain(tags: Any) -> dict[str, str]:
    """Tags without what coderd fills in or drops by itself."""
    return {
        name: value
        for name, value in tags.items()
        if value and (name, value) not in (("scope", "organization"), ("owner", ""))
    }


def _checksum(live: Child) -> str:
    annotations: dict[str, str] = live.manifest["spec"]["template"].get("metadata", {}).get("annotations", {})
    return annotations.get(CHECKSUM, "")


async def _delete(coderd: Coderd, organization: str, name: str) -> None:
    try:
        await coderd.delete_provisioner_key(organization, name)
    except coderd_errors.NotFound:
        return
