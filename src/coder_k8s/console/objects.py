"""The objects that commands read from the API server."""

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

from .session import CommandFailed, Session

T = TypeVar("T", bound=Object)
Coder = CoderControlPlane | CoderProvisioner | CoderWorkspaceProxy

WORDS = {CONTROL_PLANE: "control plane", PROVISIONER: "provisioner", WORKSPACE_PROXY: "proxy"}
"""Display names of the kinds."""


class Waiting(msgspec.Struct, frozen=True):
    """Why a container is waiting."""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, rename="camel", frozen=True):
    """How a container terminated."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(msgspec.Struct, frozen=True):
    """State of a container."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a container."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodCondition(msgspec.Struct, frozen=True):
    """A condition of a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a pod."""

    phase: str = ""
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []


class Pod(Object):
    """A pod, with the status fields that explain why it is not ready."""

    status: PodStatus = PodStatus()


POD = Kind("", "v1", "Pod", "pods", Pod)


@dataclass(frozen=True)
class Target:
    """The object that the user named; without a kind, an object of any kind."""

    kind: Kind[Any] | None
    name: str

    def matches(self, kind: Kind[Any], of: Object) -> bool:
        return self.kind in (None, kind) and self.name == of.metadata.name


@dataclass(frozen=True)
class Found:
    """All objects of the three kinds, and their pods; `pods` is `None` if the user cannot list pods."""

    planes: list[CoderControlPlane]
    provisioners: list[CoderProvisioner]
    proxies: list[CoderWorkspaceProxy]
    pods: list[Pod] | None

    @property
    def all(self) -> list[tuple[Kind[Any], Coder]]:
        kinds = ((CONTROL_PLANE, self.planes), (PROVISIONER, self.provisioners), (WORKSPACE_PROXY, self.proxies))
        return [(kind, each) for kind, objects in kinds for each in objects]


def parse_target(text: str) -> Target:
    """Parse `NAME` or `KIND/NAME`, where kind is any name that kubectl accepts."""
    word, slash, name = text.rpartition("/")
    if not slash:
        return Target(None, text)
    kinds = {name: kind for kind, names in _kind_words().items() for name in names}
    if word.lower() not in kinds:
        raise CommandFailed(f"unknown kind {word!r}: use one of {', '.join(each.short_name for each in RESOURCES)}")
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
    """Return the objects of a kind."""
    try:
        return await listed(session, kind, session.namespace)
    except errors.NotFound:
        raise CommandFailed(
            f"{kind.name} is not installed in the cluster at {session.server}: run `kubectl apply -k config/crd`"
        ) from None
    except errors.Forbidden as refusal:
        raise CommandFailed(f"not allowed: {refusal}") from None


async def find_one(session: Session, target: Target, *kinds: Kind[Any]) -> tuple[Kind[Any], Coder]:
    """Return the object that a target refers to."""
    if target.kind is not None and target.kind not in kinds:
        raise CommandFailed(
            f"this command needs a {' or a '.join(WORDS[kind] for kind in kinds)}, not a {WORDS[target.kind]}"
        )
    candidates = [kind for kind in kinds if target.kind in (None, kind)]
    found = [(kind, each) for kind in candidates for each in await find(session, kind) if target.matches(kind, each)]
    if not found:
        raise CommandFailed(not_found(session, target, *candidates))
    if len(found) > 1:
        choices = " or ".join(f"{short_name(kind)}/{target.name}" for kind, _ in found)
        raise CommandFailed(f"several kinds have an object named {target.name}: use {choices}")
    return found[0]


async def names(session: Session) -> list[str]:
    """Return the names of all objects, without and with their kind."""
    found = [(kind, each.metadata.name) for kind in WORDS for each in await find(session, kind)]
    return [name for _, name in found] + [f"{short_name(kind)}/{name}" for kind, name in found]


def not_found(session: Session, target: Target, *kinds: Kind[Any]) -> str:
    return f"no {' or '.join(WORDS[kind] for kind in kinds)} named {target.name} found in {session.where}"


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
