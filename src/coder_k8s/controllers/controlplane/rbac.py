"""Grants Coder the permissions to run workspaces, and reports it in the condition `WorkspaceRBACReady`.

A Role in another namespace gives this control plane's ServiceAccount control of the pods there, so that namespace must
opt in: by a label on the Namespace, or by the operator's option. The API server prevents privilege escalation: the
operator has neither `escalate` nor `bind`, so it cannot grant permissions that it does not have.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from coder_k8s.api import CoderControlPlane, ControlPlaneCondition, reasons
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.names import derived, hashed
from coder_k8s.controllers.permissions import full_access
from coder_k8s.controllers.report import Report
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import NAMESPACE_METADATA, ROLE, ROLE_BINDING
from coder_k8s.kube.objects import Key, Kind, Manifest, PartialObject, Unstructured

from .objects import metadata, service_account_name

READY = ControlPlaneCondition.WORKSPACE_RBAC_READY
FINALIZER = "coder.com/workspace-rbac-cleanup"
OPT_IN = "coder.com/workspaces-from"
ANYONE = "ANY"
"""Allows control planes of every namespace. No namespace has an uppercase name, and a label value cannot be `*`."""
PLANE, PLANE_NAMESPACE = "coder.com/control-plane", "coder.com/control-plane-namespace"
OWNER_UID = "coder.com/workspace-rbac-owner-uid"
RETRY_INTERVAL = 60.0
NAMED = 10
"""How many namespaces a message names."""


class Denial(NamedTuple):
    """Why no Role is written to a namespace."""

    reason: reasons.Reason
    message: str


def role_name(plane: CoderControlPlane) -> str:
    return f"{binding_name(plane)}-workspace-perms"


def binding_name(plane: CoderControlPlane) -> str:
    return f"{service_account_name(plane)}-{hashed(plane.metadata.namespace, plane.metadata.name)}"


def role(plane: CoderControlPlane, namespace: str) -> Manifest:
    rules = [full_access("", "pods"), full_access("", "persistentvolumeclaims")]
    if plane.spec.rbac.enable_deployments:
        rules.append(full_access("apps", "deployments"))
    return {"metadata": _metadata(plane, role_name(plane), namespace), "rules": [*rules, *plane.spec.rbac.extra_rules]}


def role_binding(plane: CoderControlPlane, namespace: str) -> Manifest:
    subject = {"kind": "ServiceAccount", "name": service_account_name(plane), "namespace": plane.metadata.namespace}
    return {
        "metadata": _metadata(plane, binding_name(plane), namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role_name(plane)},
        "subjects": [subject],
    }


class WorkspaceRBAC:
    """Keeps Roles and RoleBindings in the namespaces that are required and allowed, and in no others."""

    def __init__(
        self,
        client: Client,
        children: Children,
        namespaces: Cache[PartialObject] | None,
        watched: Sequence[str],
        allowed: Sequence[str],
    ) -> None:
        self._client = client
        self._children = children
        self._namespaces = namespaces
        self._watched = watched
        self._allowed = allowed

    async def ensure(self, plane: CoderControlPlane, report: Report) -> None:
        """Write the Roles and RoleBindings that are required and allowed, delete the others."""
        seen = self._seen(plane)
        granted = [plane.metadata.namespace] if plane.spec.rbac.workspace_perms else []
        granted += self.allowed_elsewhere(plane)
        denials = [self._denial(plane, namespace) for namespace in wanted_elsewhere(plane)]
        denials += [await self._grant(plane, namespace) for namespace in granted if _may_grant(plane, namespace)]
        denials += [_without_finalizer(namespace) for namespace in granted if not _may_grant(plane, namespace)]
        await self._withdraw(plane, granted, seen)
        _report(plane, granted, [denial for denial in denials if denial], report)

    def allowed_elsewhere(self, plane: CoderControlPlane) -> list[str]:
        """The other namespaces of the spec that opt in."""
        return [namespace for namespace in wanted_elsewhere(plane) if self._denial(plane, namespace) is None]

    def elsewhere(self, plane: Key) -> list[tuple[Kind[Unstructured], Unstructured]]:
        """The Roles and RoleBindings in other namespaces, which garbage collection does not delete."""
        return [(kind, child) for kind, child in self._all(plane) if child.metadata.namespace != plane.namespace]

    async def remove_elsewhere(self, plane: Key) -> dict[str, errors.KubeError]:
        """Delete the Roles and RoleBindings in other namespaces; returns those that are left, with the errors."""
        left = {}
        for kind, child in self.elsewhere(plane):
            try:
                await self._children.delete(kind, child)
            except errors.KubeError as error:
                left[f"{kind.name} {child.key}"] = error
        return left

    def _all(self, plane: Key) -> list[tuple[Kind[Unstructured], Unstructured]]:
        return [
            (kind, child)
            for kind in (ROLE_BINDING, ROLE)  # bindings first: a Role without a binding grants nothing
            for child in self._children.labelled(kind, identity(plane))
        ]

    def _denial(self, plane: CoderControlPlane, namespace: str) -> Denial | None:
        """Why no Role may be written to another namespace; `None` if it opts in."""
        by_list = any(fnmatchcase(namespace, pattern) for pattern in self._allowed)
        if self._namespaces is None:
            if by_list and namespace in self._watched:
                return None
            option = "--allow-workspace-namespaces" if namespace in self._watched else "--watch-namespaces"
            message = f"Namespace {namespace} is not in the operator's {option}; add it there"
            return Denial(reasons.NAMESPACE_NOT_ALLOWED, message)
        found = self._namespaces.get(Key("", namespace))
        if found is None or found.deleting:
            message = f"Namespace {namespace} does not exist; create it, or remove it from rbac.workspaceNamespaces"
            return Denial(reasons.NAMESPACE_MISSING, message)
        if by_list or found.metadata.labels.get(OPT_IN) in (plane.metadata.namespace, ANYONE):
            return None
        return Denial(
            reasons.NAMESPACE_NOT_ALLOWED,
            f"Namespace {namespace} has not opted in; label it {OPT_IN}={plane.metadata.namespace}",
        )

    async def _grant(self, plane: CoderControlPlane, namespace: str) -> Denial | None:
        def owned(live: Unstructured) -> bool:
            labelled = identity(plane.key).items() <= live.metadata.labels.items()
            return labelled or live.metadata.annotations.get(OWNER_UID) == plane.metadata.uid

        try:
            await self._children.apply(ROLE, plane, role(plane, namespace), owned)
            await self._children.apply(ROLE_BINDING, plane, role_binding(plane, namespace), owned)
        except OwnedByOther as error:
            message = f"In namespace {namespace}, {error}; delete it, or set another serviceAccount.name"
            return Denial(reasons.NAME_TAKEN, message)
        except (errors.Forbidden, errors.Invalid, errors.NotFound) as error:
            message = f"Role {role_name(plane)} cannot be written to namespace {namespace}: {error.message}"
            rejected = reasons.SPEC_INVALID if isinstance(error, errors.Invalid) else reasons.NAMESPACE_MISSING
            return Denial(reasons.FORBIDDEN if isinstance(error, errors.Forbidden) else rejected, message)
        return None

    def _seen(self, plane: CoderControlPlane) -> dict[str, PartialObject | None]:
        """The other namespaces of the spec as they are in the cache; their labels decide whether they opt in."""
        if self._namespaces is None:
            return {}
        return {name: self._namespaces.get(Key("", name)) for name in wanted_elsewhere(plane)}

    async def _withdraw(
        self, plane: CoderControlPlane, keep: Iterable[str], seen: Mapping[str, PartialObject | None]
    ) -> None:
        names = {role_name(plane), binding_name(plane)}
        kept = set(keep)
        left = [
            (kind, child)
            for kind, child in self._all(plane.key)
            if child.metadata.namespace not in kept or child.metadata.name not in names
        ]
        if left:
            affected = {child.metadata.namespace for _, child in left}
            await self._confirm(plane, {name: seen[name] for name in sorted(affected.intersection(seen))})
        for kind, child in left:
            await self._children.delete(kind, child)

    async def _confirm(self, plane: CoderControlPlane, seen: Mapping[str, PartialObject | None]) -> None:
        """Raise `Conflict` if the spec or a namespace has changed, so that no Role is deleted because of old state."""
        await self._children.confirm(plane)
        for name, namespace in seen.items():
            await self._client.confirm(NAMESPACE_METADATA, Key("", name), namespace)


def _may_grant(plane: CoderControlPlane, namespace: str) -> bool:
    """Whether a Role in this namespace is deleted with the control plane."""
    return namespace == plane.metadata.namespace or FINALIZER in plane.metadata.finalizers


def _without_finalizer(namespace: str) -> Denial:
    return Denial(reasons.FORBIDDEN, f"Without finalizer {FINALIZER} no Role is written to namespace {namespace}")


def wanted_elsewhere(plane: CoderControlPlane) -> list[str]:
    if not plane.spec.rbac.workspace_perms:
        return []
    return [name for name in plane.spec.rbac.workspace_namespaces if name != plane.metadata.namespace]


def _report(plane: CoderControlPlane, granted: Sequence[str], denials: Sequence[Denial], report: Report) -> None:
    if denials:
        first = denials[0]
        also = f" (and {len(denials) - 1} more)" if len(denials) > 1 else ""
        report.add(READY, False, first.reason, first.message + also, stalled=True)
        report.requeue_after(
            RETRY_INTERVAL
        )  # no watch shows that the operator has more permissions, or that a name is free
    elif not plane.spec.rbac.workspace_perms:
        report.add(READY, False, reasons.DISABLED, "Disabled by rbac.workspacePerms", satisfied=True)
    else:
        more = f" and {len(granted) - NAMED} more" if len(granted) > NAMED else ""
        where = f"{', '.join(granted[:NAMED])}{more}"
        account = service_account_name(plane)
        report.add(READY, True, reasons.APPLIED, f"ServiceAccount {account} may run workspaces in namespaces: {where}")


def identity(plane: Key) -> dict[str, str]:
    """The labels that identify a Role of this control plane, also in other namespaces, where it has no owner."""
    return {PLANE: derived(plane.name), PLANE_NAMESPACE: plane.namespace}


def _metadata(plane: CoderControlPlane, name: str, namespace: str) -> Manifest:
    base = metadata(plane, name, labels=identity(plane.key), annotations={OWNER_UID: plane.metadata.uid})
    if namespace != plane.metadata.namespace:
        del base["ownerReferences"]  # the garbage collector deletes an object whose owner is in another namespace
    return {**base, "namespace": namespace}
