"""The objects that commands read from the API server."""

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from coder_k8s.api import RESOURCES, CoderObject
from coder_k8s.api.markers import Resource
from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube import errors
from coder_k8s.kube.objects import Kind, Object

from .session import CommandFailed, Session

T = TypeVar("T", bound=Object)


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

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)


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
    """All objects of our kinds, and their pods; `pods` is `None` if the user cannot list pods."""

    objects: list[tuple[Kind[Any], CoderObject]]
    pods: list[Pod] | None


def parse_target(text: str) -> Target:
    """Parse `NAME` or `KIND/NAME`, where kind is any name that kubectl accepts."""
    word, slash, name = text.rpartition("/")
    if not slash:
        return Target(None, text)
    kinds = {name: each.kind for each in RESOURCES for name in _names(each)}
    if word.lower() not in kinds:
        raise CommandFailed(f"unknown kind {word!r}: use one of {', '.join(each.short_name for each in RESOURCES)}")
    return Target(kinds[word.lower()], name)


def all_kinds() -> list[Kind[Any]]:
    return [each.kind for each in RESOURCES]


def resource(kind: Kind[Any]) -> Resource:
    return next(each for each in RESOURCES if each.kind == kind)


async def find_all(session: Session) -> Found:
    objects = [(kind, each) for kind in all_kinds() for each in await find(session, kind)]
    try:
        return Found(objects, await listed(session, POD, session.namespace, labels=MANAGED))
    except errors.Forbidden:
        return Found(objects, None)


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


async def find_one(session: Session, target: Target, *kinds: Kind[Any]) -> tuple[Kind[Any], CoderObject]:
    """Return the object that a target refers to."""
    if target.kind is not None and target.kind not in kinds:
        needed = " or a ".join(resource(kind).noun for kind in kinds)
        raise CommandFailed(f"this command needs a {needed}, not a {resource(target.kind).noun}")
    candidates = [kind for kind in kinds if target.kind in (None, kind)]
    found = [(kind, each) for kind in candidates for each in await find(session, kind) if target.matches(kind, each)]
    if not found:
        raise CommandFailed(not_found(session, target, *candidates))
    if len(found) > 1:
        choices = " or ".join(f"{resource(kind).short_name}/{target.name}" for kind, _ in found)
        raise CommandFailed(f"several kinds have an object named {target.name}: use {choices}")
    return found[0]


async def names(session: Session) -> list[str]:
    """Return the names of all objects, without and with their kind."""
    found = [(kind, each.metadata.name) for kind in all_kinds() for each in await find(session, kind)]
    return [name for _, name in found] + [f"{resource(kind).short_name}/{name}" for kind, name in found]


def not_found(session: Session, target: Target, *kinds: Kind[Any]) -> str:
    nouns = " or ".join(resource(kind).noun for kind in kinds)
    return f"no {nouns} named {target.name} found in {session.where}"


async def listed(session: Session, kind: Kind[T], namespace: str, *, labels: str = "") -> list[T]:
    pages = session.client.list(kind, namespace, labels=labels)
    items = [kind.type.decode(item) async for page in pages for item in page.items]
    return sorted(items, key=lambda item: item.key)


def _names(of: Resource) -> set[str]:
    """Return the names of a kind that kubectl accepts, and its noun as one word."""
    plural = of.kind.plural
    noun = of.noun.replace(" ", "")
    return {of.short_name, of.kind.name.lower(), plural, f"{plural}.{of.kind.group}", noun}
