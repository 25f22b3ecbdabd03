"""The objects that a person may speak of, as the API server has them."""

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from coder_k8s.api import (
    CONTROL_PLANE,
    PROVISIONER,
    RESOURCES,
    WORKSPACE_PROXY,
    CoderControlPlane,
    CoderProvisioner,
    CoderWorkspaceProxy,
)
from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube import errors
from coder_k8s.kube.objects import Kind, Object

from .session import Refused, Session

T = TypeVar("T", bound=Object)
Coder = CoderControlPlane | CoderProvisioner | CoderWorkspaceProxy

WORDS = {CONTROL_PLANE: "control plane", PROVISIONER: "provisioner", WORKSPACE_PROXY: "proxy"}
"""What people call the kinds."""


class Waiting(msgspec.Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, rename="camel", frozen=True):
    """How a container ended."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(msgspec.Struct, frozen=True):
    """What a container does now."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel", frozen=True):
    """A container of a pod."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodCondition(msgspec.Struct, frozen=True):
    """One line of the status of a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, rename="camel", frozen=True):
    """A pod as it is."""

    phase: str = ""
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []


class Pod(Object):
    """A pod, as far as its state tells why something is not ready."""

    status: PodStatus = PodStatus()


POD = Kind("", "v1", "Pod", "pods", Pod)


@dataclass(frozen=True)
class Target:
    """What a person named: an object of one kind, or of whichever has one of that name."""

    kind: Kind[Any] | None
    name: str

    def means(self, kind: Kind[Any], of: Object) -> bool:
        return self.kind in (None, kind) and self.name == of.metadata.name


@dataclass(frozen=True)
class Found:
    """All objects of the three kinds in a namespace, and their pods; none at all if they may not be listed."""

    planes: list[CoderControlPlane]
    provisioners: list[CoderProvisioner]
    proxies: list[CoderWorkspaceProxy]
    pods: list[Pod] | None

    @property
    def all(self) -> list[tuple[Kind[Any], Coder]]:
        kinds = ((CONTROL_PLANE, self.planes), (PROVISIONER, self.provisioners), (WORKSPACE_PROXY, self.proxies))
        return [(kind, each) for kind, objects in kinds for each in objects]


def parse_target(text: str) -> Target:
    """`NAME`, or `KIND/NAME` with any of the words that kubectl takes for a kind."""
    word, slash, name = text.rpartition("/")
    if not slash:
        return Target(None, text)
    kinds = {name: kind for kind, names in _kind_words().items() for name in names}
    if word.lower() not in kinds:
        raise Refused(f"there is no kind {word!r}: write one of {', '.join(each.short_name for each in RESOURCES)}")
    return Target(kinds[word.lower()], name)


def short_name(kind: Kind[Any]) -> str:
    return next(resource.short_name for resource in RESOURCES if resource.kind == kind)


async def find_all(session: Session) -> Found:
    planes = await find(session, CONTROL_PLANE)
    provisioners = await find(session, PROVISIONER)
    proxies = await find(session, WORKSPACE_PROXY)
    try:
        pods = await listed(session, POD, session.namespace, labels=MANAGED)
    except errors.Forbidden:
        return Found(planes, provisioners, proxies, None)
    return Found(planes, provisioners, proxies, pods)


async def find(session: Session, kind: Kind[T]) -> list[T]:
    """The objects of one of our kinds, which somebody has to have installed."""
    try:
        return await listed(session, kind, session.namespace)
    except errors.NotFound:
        raise Refused(
            f"{kind.name} is not installed in the cluster at {session.server}: `kubectl apply -k config/crd` does that"
        ) from None
    except errors.Forbidden as refusal:
        raise Refused(f"not allowed: {refusal}") from None


async def find_one(session: Session, target: Target, *kinds: Kind[Any]) -> tuple[Kind[Any], Coder]:
    """The one object that is meant."""
    if target.kind is not None and target.kind not in kinds:
        raise Refused(f"that needs a {' or a '.join(WORDS[kind] for kind in kinds)}, not a {WORDS[target.kind]}")
    meant = [kind for kind in kinds if target.kind in (None, kind)]
    found = [(kind, each) for kind in meant for each in await find(session, kind) if target.means(kind, each)]
    if not found:
        raise Refused(absent(session, target, *meant))
    if len(found) > 1:
        choices = " or ".join(f"{short_name(kind)}/{target.name}" for kind, _ in found)
        raise Refused(f"several kinds have a {target.name}: write {choices}")
    return found[0]


async def names(session: Session) -> list[str]:
    """What can be named, also with its kind."""
    found = [(kind, each.metadata.name) for kind in WORDS for each in await find(session, kind)]
    return [name for _, name in found] + [f"{short_name(kind)}/{name}" for kind, name in found]


def absent(session: Session, target: Target, *kinds: Kind[Any]) -> str:
    return f"there is no {' or '.join(WORDS[kind] for kind in kinds)} {target.name} in {session.where}"


async def listed(session: Session, kind: Kind[T], namespace: str, *, labels: str = "") -> list[T]:
    pages = session.client.list(kind, namespace, labels=labels)
    items = [kind.type.decode(item) async for page in pages for item in page.items]
    return sorted(items, key=lambda item: item.key)


def _kind_words() -> dict[Kind[Any], set[str]]:
    own = {CONTROL_PLANE: "controlplane", PROVISIONER: "provisioner", WORKSPACE_PROXY: "proxy"}
    return {
        each.kind: {
            each.short_name,
            each.kind.name.lower(),
            each.kind.plural,
            f"{each.kind.plural}.{each.kind.group}",
            own[each.kind],
        }
        for each in RESOURCES
    }
