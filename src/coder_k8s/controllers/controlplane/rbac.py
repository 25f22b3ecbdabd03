"""What Coder may do in the cluster to run workspaces, told as the condition `WorkspaceRBACReady`.

A Role in another namespace gives the pods there to this control plane's ServiceAccount, so the owner of that namespace
must agree first: by a label on the Namespace, or by the administrator's list. The API server's own check against
escalation applies to every Role: the operator cannot grant what it does not hold, because it has neither `escalate`
nor `bind`.
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
"""Every namespace may come: no namespace has a name in capitals, and a label cannot be `*`."""
PLANE, PLANE_NAMESPACE = "coder.com/control-plane", "coder.com/control-plane-namespace"
OWNER_UID = "coder.com/workspace-rbac-owner-uid"
REFUSED_POLL = 60.0
NAMED = 10
"""How many namespaces a message names."""


class Refusal(NamedTuple):
    """Why a Role could not be written."""

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
    """Keeps Roles and RoleBindings where they are wanted and allowed, and nowhere else."""

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
        """Write what is wanted and allowed, remove the rest."""
        seen = self._seen(plane)
        places = [plane.metadata.namespace] if plane.spec.rbac.workspace_perms else []
        places += self.allowed_elsewhere(plane)
        refusals = [self._refusal(plane, namespace) for namespace in wanted_elsewhere(plane)]
        refusals += [await self._grant(plane, namespace) for namespace in places if _may_grant(plane, namespace)]
        refusals += [_unheld(namespace) for namespace in places if not _may_grant(plane, namespace)]
        await self._withdraw(plane, places, seen)
        _judge(plane, places, [refusal for refusal in refusals if refusal], report)

    def allowed_elsewhere(self, plane: CoderControlPlane) -> list[str]:
        """The other namespaces of the spec that agree."""
        return [namespace for namespace in wanted_elsewhere(plane) if self._refusal(plane, namespace) is None]

    def elsewhere(self, plane: Key) -> list[tuple[Kind[Unstructured], Unstructured]]:
        """What a control plane has in other namespaces, where no garbage collection reaches."""
        return [(kind, child) for kind, child in self._all(plane) if child.metadata.namespace != plane.namespace]

    async def remove_elsewhere(self, plane: Key) -> dict[str, errors.KubeError]:
        """Remove it, and tell what could not be removed and why."""
        left = {}
        for kind, child in self.elsewhere(plane):
            try:
                await self._children.delete(kind, child)
            except errors.KubeError as trouble:
                left[f"{kind.name} {child.key}"] = trouble
        return left

    def _all(self, plane: Key) -> list[tuple[Kind[Unstructured], Unstructured]]:
        return [
            (kind, child)
            for kind in (ROLE_BINDING, ROLE)  # a Role without a binding grants nothing, so the binding goes first
            for child in self._children.labelled(kind, identity(plane))
        ]

    def _refusal(self, plane: CoderControlPlane, namespace: str) -> Refusal | None:
        """Why nothing may be written to another namespace."""
        by_list = any(fnmatchcase(namespace, pattern) for pattern in self._allowed)
        if self._namespaces is None:
            if by_list and namespace in self._watched:
                return None
            option = "--allow-workspace-namespaces" if namespace in self._watched else "--watch-namespaces"
            return Refusal(reasons.NAMESPACE_NOT_ALLOWED, f"{namespace} is not in the operator's {option}")
        found = self._namespaces.get(Key("", namespace))
        if found is None or found.deleting:
            return Refusal(reasons.NAMESPACE_MISSING, f"there is no namespace {namespace}")
        if by_list or found.metadata.labels.get(OPT_IN) in (plane.metadata.namespace, ANYONE):
            return None
        return Refusal(
            reasons.NAMESPACE_NOT_ALLOWED,
            f"{namespace} has not agreed: its owner can label it {OPT_IN}={plane.metadata.namespace}",
        )

    async def _grant(self, plane: CoderControlPlane, namespace: str) -> Refusal | None:
        def ours(live: Unstructured) -> bool:
            known = identity(plane.key).items() <= live.metadata.labels.items()
            return known or live.metadata.annotations.get(OWNER_UID) == plane.metadata.uid

        try:
            await self._children.apply(ROLE, plane, role(plane, namespace), ours)
            await self._children.apply(ROLE_BINDING, plane, role_binding(plane, namespace), ours)
        except OwnedByOther as taken:
            return Refusal(reasons.NAME_TAKEN, str(taken))
        except errors.Forbidden as refusal:
            return Refusal(reasons.FORBIDDEN, refusal.message)
        except errors.Invalid as refusal:
            return Refusal(reasons.INVALID, refusal.message)
        except errors.NotFound as refusal:
            return Refusal(reasons.NAMESPACE_MISSING, refusal.message)
        return None

    def _seen(self, plane: CoderControlPlane) -> dict[str, PartialObject | None]:
        """The other namespaces of the spec as they are known now, which decides whether they agree."""
        if self._namespaces is None:
            return {}
        return {name: self._namespaces.get(Key("", name)) for name in wanted_elsewhere(plane)}

    async def _withdraw(
        self, plane: CoderControlPlane, keep: Iterable[str], seen: Mapping[str, PartialObject | None]
    ) -> None:
        names = {role_name(plane), binding_name(plane)}
        places = set(keep)
        left = [
            (kind, child)
            for kind, child in self._all(plane.key)
            if child.metadata.namespace not in places or child.metadata.name not in names
        ]
        if left:
            concerned = {child.metadata.namespace for _, child in left}
            await self._confirm(plane, {name: seen[name] for name in sorted(concerned.intersection(seen))})
        for kind, child in left:
            await self._children.delete(kind, child)

    async def _confirm(self, plane: CoderControlPlane, seen: Mapping[str, PartialObject | None]) -> None:
        """Nothing is withdrawn on the word of the past: neither of the spec nor of a namespace that did not agree."""
        await self._children.confirm(plane)
        for name, namespace in seen.items():
            await self._client.confirm(NAMESPACE_METADATA, Key("", name), namespace)


def _may_grant(plane: CoderControlPlane, namespace: str) -> bool:
    """Whether a Role there will be removed with the control plane."""
    return namespace == plane.metadata.namespace or FINALIZER in plane.metadata.finalizers


def _unheld(namespace: str) -> Refusal:
    return Refusal(reasons.FORBIDDEN, f"Without finalizer {FINALIZER} no Role is written to namespace {namespace}")


def wanted_elsewhere(plane: CoderControlPlane) -> list[str]:
    if not plane.spec.rbac.workspace_perms:
        return []
    return [name for name in plane.spec.rbac.workspace_namespaces if name != plane.metadata.namespace]


def _judge(plane: CoderControlPlane, places: Sequence[str], refused: Sequence[Refusal], report: Report) -> None:
    if refused:
        first = refused[0]
        also = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        report.add(READY, False, first.reason, first.message + also, stalled=True)
        report.requeue_after(REFUSED_POLL)  # nobody tells us when the operator gets more rights, or a name is free
    elif not plane.spec.rbac.workspace_perms:
        report.add(READY, False, reasons.DISABLED, "rbac.workspacePerms is off", satisfied=True)
    else:
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        where = f"{', '.join(places[:NAMED])}{more}"
        account = service_account_name(plane)
        report.add(READY, True, reasons.APPLIED, f"ServiceAccount {account} may run workspaces in namespaces: {where}")


def identity(plane: Key) -> dict[str, str]:
    """By what a Role is known to be this control plane's, also where it cannot have an owner."""
    return {PLANE: derived(plane.name), PLANE_NAMESPACE: plane.namespace}


def _metadata(plane: CoderControlPlane, name: str, namespace: str) -> Manifest:
    made = metadata(plane, name, labels=identity(plane.key), annotations={OWNER_UID: plane.metadata.uid})
    if namespace != plane.metadata.namespace:
        del made["ownerReferences"]  # an owner in another namespace would have the object collected as garbage
    return {**made, "namespace": namespace}
