"""Builds controllers."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

from coder_k8s.api import CONTROL_PLANE, CoderObject
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.objects import Key, Kind, Object
from coder_k8s.kube.rules import READ, Rule

from .context import Context
from .reconciler import Reconciler, Steps

T = TypeVar("T", bound=CoderObject)


def base_rules(kind: Kind[Any]) -> tuple[Rule, ...]:
    """What every controller needs for its own kind."""
    return (
        Rule((kind.group,), (kind.plural,), (*READ, "patch")),
        Rule((kind.group,), (f"{kind.plural}/status",), ("patch",)),
        # OwnerReferencesPermissionEnforcement requires it for owner references with blockOwnerDeletion.
        Rule((kind.group,), (f"{kind.plural}/finalizers",), ("update",)),
    )


def controller_of(context: Context[T], load: Callable[[], Steps[T, Any]]) -> Controller:
    """The controller of a kind, which watches its objects and their children.

    `load` is called for the first object: most clusters have no object of some kinds, and do not need their modules.
    """
    reconciler, runtime = cache(lambda: Reconciler(context, load())), context.runtime

    async def reconcile(key: Key) -> float | None:
        return await reconciler().reconcile(key)

    controller = Controller(context.name, reconcile, metrics=runtime.metrics, workers=runtime.workers)
    controller.watch(context.objects)
    for child in context.owned:
        controller.watch(context.children.cache(child), by_owner(context.kind))
    return controller


def watch_references(
    controller: Controller,
    context: Context[T],
    planes: Callable[[T], Iterable[Key]],
    secrets: Callable[[T], Iterable[Key]],
) -> None:
    """Watch the control planes and Secrets that the objects of a kind refer to."""
    controller.watch(context.runtime.informer(CONTROL_PLANE), by_reference(context.objects, planes))
    controller.watch(context.secrets, by_reference(context.objects, secrets))


def by_reference(objects: Cache[T], references: Callable[[T], Iterable[Key]]) -> Callable[[Object], Iterable[Key]]:
    """Maps an object to those that refer to it."""
    index = objects.index(references)
    return lambda other: index[other.key]


def by_owner(kind: Kind[Any]) -> Callable[[Object], Iterable[Key]]:
    """Maps a child to the object of a kind that controls it."""

    def owner_of(child: Object) -> Iterable[Key]:
        owner = child.controller
        return [Key(child.metadata.namespace, owner.name)] if owner is not None and owner.kind == kind.name else []

    return owner_of
