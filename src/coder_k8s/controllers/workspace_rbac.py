"""Grants a ServiceAccount the permissions to run workspaces, and reports it in the condition `WorkspaceRBACReady`.

A Role in another namespace gives this ServiceAccount control of the pods there, so that namespace must opt in: by a
label on the Namespace, or by the operator's option. The API server prevents privilege escalation: the operator has
neither `escalate` nor `bind`, so it cannot grant permissions that it does not have.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from coder_k8s.api import CoderObject, events, reasons
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import DEPLOYMENT, NAMESPACE_METADATA, ROLE, ROLE_BINDING
from coder_k8s.kube.objects import Key, Kind, PartialObject, Unstructured
from coder_k8s.kube.rules import MANAGE, READ, Rule

from .cleanup import BOUND
from .context import Context
from .permissions import VERBS
from .rejections import as_condition
from .report import Report
from .workspace_roles import FINALIZER, Denial, WorkspaceRoles

T = TypeVar("T", bound=CoderObject)

RETRY_INTERVAL = 60.0
KINDS = (ROLE_BINDING, ROLE)
"""Bindings first: a Role without a binding grants nothing."""

RULES = (
    Rule((ROLE.group,), (ROLE.plural, ROLE_BINDING.plural), MANAGE),
    Rule(("",), (NAMESPACE_METADATA.plural,), READ, cluster_scoped=True),
    # The permissions to run workspaces: the operator can grant only what it has.
    Rule(("",), ("pods", "persistentvolumeclaims"), VERBS),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), VERBS),
)


class WorkspaceRBAC(Generic[T]):
    """Keeps Roles and RoleBindings in the namespaces that are required and allowed, and in no others."""

    def __init__(self, context: Context[T], roles: WorkspaceRoles[T], allowed: Sequence[str]) -> None:
        """`allowed` are patterns of namespaces that opt in."""
        runtime = context.runtime
        self._context = context
        self._children = context.children
        self._roles = roles
        self._namespaces = runtime.informer(NAMESPACE_METADATA) if runtime.everywhere else None
        self._watched = runtime.namespaces
        self._allowed = allowed

    def watch(self, controller: Controller) -> None:
        """Watch the other namespaces, and the Roles in them."""
        roles, referrers = self._roles, self._context.objects.index(self._references)

        def of_namespace(namespace: PartialObject) -> Iterable[Key]:
            return referrers["Namespace", namespace.metadata.name]

        def of_role(child: Unstructured) -> Iterable[Key]:
            if child.controller is not None:
                return []
            known = [key for identity in roles.identities(child) for key in referrers[identity]]
            return known or self._missing_owner(child)

        if self._namespaces is not None:
            controller.watch(self._namespaces, of_namespace)
        for kind in KINDS:
            controller.watch(self._children.cache(kind), of_role)

    async def add_finalizer(self, owner: T, report: Report) -> T:
        """Add the finalizer that Roles in other namespaces need; without it, `ensure` writes none there."""
        if not self._allowed_elsewhere(owner):
            return owner
        return await as_condition(self._context.finalizers.add(owner, FINALIZER), report) or owner

    def needs_finalizer(self, owner: T) -> bool:
        """Whether there are Roles in other namespaces, or will be."""
        return bool(self._allowed_elsewhere(owner) or self._elsewhere(owner.key))

    async def ensure(self, owner: T, report: Report) -> None:
        """Write the Roles and RoleBindings that are required and allowed, delete the others."""
        seen, granted = self._seen(owner), self._granted(owner)
        denials = [self._denial(owner, namespace) for namespace in self._roles.elsewhere(owner)]
        denials += [await self._grant(owner, namespace) for namespace in granted if _may_grant(owner, namespace)]
        denials += [_without_finalizer(namespace) for namespace in granted if not _may_grant(owner, namespace)]
        await self._delete_others(owner, granted, seen)
        found = [denial for denial in denials if denial]
        decision = self._roles.decide(owner, granted, found)
        satisfied = decision.status or decision.reason == reasons.DISABLED
        report.add(self._roles.condition, *decision, satisfied=satisfied, stalled=bool(found))
        if found:  # no watch shows that the operator has more permissions, or that a name is free
            report.requeue_after(RETRY_INTERVAL)

    async def withdraw(self, owner: T) -> None:
        """Delete the Roles and RoleBindings that are not required or not allowed, and write none."""
        await self._delete_others(owner, self._granted(owner), self._seen(owner))

    async def clean_up(self, owner: T) -> None:
        """Remove Roles in other namespaces; an event names those that cannot be removed in time."""
        if left := await self._remove_elsewhere(owner.key):
            error = next(iter(left.values()))
            if self._context.cleanup.age(owner) < BOUND:
                raise error
            note = f"Could not delete {', '.join(left)}: {error}"
            self._context.recorder.record(self._roles.kind, owner, events.CLEANUP_GIVEN_UP, note)

    async def forget(self, key: Key) -> None:
        """Remove the Roles of a deleted object: it may have been deleted while its finalizer was added."""
        if self._elsewhere(key):
            await self._context.client.confirm(self._roles.kind, key, None)
        if left := await self._remove_elsewhere(key):
            raise next(iter(left.values()))

    def _references(self, owner: T) -> Iterable[tuple[object, ...]]:
        """The namespaces of an object, and the labels by which its Roles in other namespaces refer to it."""
        yield tuple(self._roles.identity(owner.key).values())
        for namespace in self._roles.elsewhere(owner):
            yield "Namespace", namespace

    def _missing_owner(self, child: Unstructured) -> Iterable[Key]:
        """The deleted owner of a Role, whose finalizer may have been removed while no operator ran."""
        key = self._roles.owner_of(child)
        watched = key is not None and (self._namespaces is not None or key.namespace in self._watched)
        return [key] if key is not None and watched else []

    def _granted(self, owner: T) -> list[str]:
        """The namespaces that get a Role."""
        home = [owner.metadata.namespace] if self._roles.is_enabled(owner) else []
        return home + self._allowed_elsewhere(owner)

    def _allowed_elsewhere(self, owner: T) -> list[str]:
        """The other namespaces of the spec that opt in."""
        return [namespace for namespace in self._roles.elsewhere(owner) if self._denial(owner, namespace) is None]

    def _denial(self, owner: T, namespace: str) -> Denial | None:
        listed = any(fnmatchcase(namespace, pattern) for pattern in self._allowed)
        if self._namespaces is not None:
            return self._roles.denial(owner, namespace, self._namespaces.get(Key("", namespace)), listed=listed)
        if listed and namespace in self._watched:
            return None
        option = "--allow-workspace-namespaces" if namespace in self._watched else "--watch-namespaces"
        message = f"Namespace {namespace} is not in the operator's {option}; add it there"
        return Denial(reasons.NAMESPACE_NOT_ALLOWED, message)

    async def _grant(self, owner: T, namespace: str) -> Denial | None:
        def owned(live: Unstructured) -> bool:
            return self._roles.owns(owner, live)

        role, binding = self._roles.role(owner, namespace), self._roles.role_binding(owner, namespace)
        try:
            await self._children.apply(ROLE, owner, role, owned)
            await self._children.apply(ROLE_BINDING, owner, binding, owned)
        except OwnedByOther as error:
            message = f"In namespace {namespace}, {error}; delete it, or {self._roles.texts.other_name}"
            return Denial(reasons.NAME_TAKEN, message)
        except (errors.Forbidden, errors.Invalid, errors.NotFound) as error:
            name = role["metadata"]["name"]
            message = f"Role {name} cannot be written to namespace {namespace}: {error.message}"
            rejected = reasons.SPEC_INVALID if isinstance(error, errors.Invalid) else reasons.NAMESPACE_MISSING
            return Denial(reasons.FORBIDDEN if isinstance(error, errors.Forbidden) else rejected, message)
        return None

    def _seen(self, owner: T) -> dict[str, PartialObject | None]:
        """The other namespaces of the spec as they are in the cache; their labels decide whether they opt in."""
        if self._namespaces is None:
            return {}
        return {name: self._namespaces.get(Key("", name)) for name in self._roles.elsewhere(owner)}

    async def _delete_others(self, owner: T, keep: Iterable[str], seen: Mapping[str, PartialObject | None]) -> None:
        kept = {(namespace, name) for namespace in keep for name in self._roles.names(owner, namespace)}
        left = [
            (kind, child)
            for kind, child in [*self._at_home(owner), *self._elsewhere(owner.key)]
            if (child.metadata.namespace, child.metadata.name) not in kept
        ]
        if left:
            affected = {child.metadata.namespace for _, child in left}
            await self._confirm(owner, {name: seen[name] for name in sorted(affected.intersection(seen))})
        for kind, child in left:
            await self._children.delete(kind, child)

    async def _confirm(self, owner: T, seen: Mapping[str, PartialObject | None]) -> None:
        """Raise `Conflict` if the spec or a namespace has changed, so that no Role is deleted because of old state."""
        await self._children.confirm(owner)
        for name, namespace in seen.items():
            await self._context.client.confirm(NAMESPACE_METADATA, Key("", name), namespace)

    def _at_home(self, owner: T) -> list[tuple[Kind[Unstructured], Unstructured]]:
        """The Roles and RoleBindings in its own namespace, also those that lost their labels or their owner."""
        namespace = owner.metadata.namespace
        found = {
            (kind, child.key): child
            for kind in KINDS
            for child in (*self._children.owned(kind, owner), *self._labelled(kind, owner.key))
            if child.metadata.namespace == namespace and self._roles.owns(owner, child)
        }
        return [(kind, child) for (kind, _), child in found.items()]

    def _elsewhere(self, owner: Key) -> list[tuple[Kind[Unstructured], Unstructured]]:
        """The Roles and RoleBindings in other namespaces, which garbage collection does not delete."""
        return [
            (kind, child)
            for kind in KINDS
            for child in self._labelled(kind, owner)
            if child.metadata.namespace != owner.namespace
            and child.controller is None
            and self._roles.may_be_named(owner, child.metadata.name)
        ]

    def _labelled(self, kind: Kind[Unstructured], owner: Key) -> list[Unstructured]:
        return self._children.find(kind, self._roles.identities, tuple(self._roles.identity(owner).values()))

    async def _remove_elsewhere(self, owner: Key) -> dict[str, errors.KubeError]:
        """Delete the Roles and RoleBindings in other namespaces; returns those that are left, with the errors."""
        left = {}
        for kind, child in self._elsewhere(owner):
            try:
                await self._children.delete(kind, child)
            except errors.KubeError as error:
                left[f"{kind.name} {child.key}"] = error
        return left


def _may_grant(owner: CoderObject, namespace: str) -> bool:
    """Whether a Role in this namespace is deleted with the owner."""
    return namespace == owner.metadata.namespace or FINALIZER in owner.metadata.finalizers


def _without_finalizer(namespace: str) -> Denial:
    return Denial(reasons.FORBIDDEN, f"Without finalizer {FINALIZER} no Role is written to namespace {namespace}")
