"""The permissions of Coder to run workspaces."""

from collections.abc import Sequence
from functools import lru_cache

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, ControlPlaneCondition
from coder_k8s.controllers.names import hashed
from coder_k8s.controllers.permissions import full_access
from coder_k8s.controllers.workspace_roles import Names, Texts, WorkspaceRoles
from coder_k8s.kube.objects import Key, Manifest

from .objects import NAME, service_account_name

ROLE_SUFFIX = "-workspace-perms"


class ControlPlaneRoles(WorkspaceRoles[CoderControlPlane]):
    """The Roles of a control plane; they have the same names in all namespaces."""

    kind = CONTROL_PLANE
    component = NAME
    label = "coder.com/control-plane"
    condition = ControlPlaneCondition.WORKSPACE_RBAC_READY
    texts = Texts("rbac.workspaceNamespaces", "rbac.workspacePerms", "set another serviceAccount.name")

    def is_enabled(self, owner: CoderControlPlane) -> bool:
        return owner.spec.rbac.workspace_perms

    def namespaces(self, owner: CoderControlPlane) -> Sequence[str]:
        return owner.spec.rbac.workspace_namespaces

    def account(self, owner: CoderControlPlane) -> str:
        return service_account_name(owner)

    def rules(self, owner: CoderControlPlane) -> list[Manifest]:
        rules = [full_access("", "pods"), full_access("", "persistentvolumeclaims")]
        if owner.spec.rbac.enable_deployments:
            rules.append(full_access("apps", "deployments"))
        return [*rules, *owner.spec.rbac.extra_rules]

    def names(self, owner: CoderControlPlane, namespace: str) -> Names:  # noqa: ARG002 - the same in all of them
        name = self.account(owner) + _suffix(owner.key)
        return Names(name + ROLE_SUFFIX, name)

    def may_be_named(self, owner: Key, name: str) -> bool:
        return name.removesuffix(ROLE_SUFFIX).endswith(_suffix(owner))


@lru_cache(maxsize=1024)
def _suffix(plane: Key) -> str:
    return f"-{hashed(plane.namespace, plane.name)}"


ROLES = ControlPlaneRoles()
