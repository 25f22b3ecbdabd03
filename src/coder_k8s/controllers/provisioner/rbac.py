"""The permissions of daemons to run workspaces."""

from collections.abc import Sequence

from coder_k8s.api import PROVISIONER, CoderProvisioner, ProvisionerCondition
from coder_k8s.controllers.permissions import full_access
from coder_k8s.controllers.workspace_roles import Names, Texts, WorkspaceRoles
from coder_k8s.kube.objects import Key, Manifest

from .objects import NAME, deployment_name, service_account_name


class ProvisionerRoles(WorkspaceRoles[CoderProvisioner]):
    """The Roles of a provisioner.

    In other namespaces, their names contain the namespace and the complete name of the provisioner, separated by `:`,
    which neither can contain. So no two provisioners have the same, and a control plane has none like it.
    """

    kind = PROVISIONER
    component = NAME
    label = "coder.com/provisioner"
    condition = ProvisionerCondition.WORKSPACE_RBAC_READY
    texts = Texts("workspaceNamespaces", "workspacePermissions", "rename this object")

    def is_enabled(self, owner: CoderProvisioner) -> bool:
        return owner.spec.workspace_permissions

    def namespaces(self, owner: CoderProvisioner) -> Sequence[str]:
        return owner.spec.workspace_namespaces

    def account(self, owner: CoderProvisioner) -> str:
        return service_account_name(owner)

    def rules(self, owner: CoderProvisioner) -> list[Manifest]:
        rules = [full_access("", "pods", "persistentvolumeclaims")]
        if owner.spec.enable_deployments:
            rules.append(full_access("apps", "deployments"))
        return rules

    def names(self, owner: CoderProvisioner, namespace: str) -> Names:
        here = namespace == owner.metadata.namespace
        name = deployment_name(owner) if here else _name_elsewhere(owner.key)
        return Names(name, name)

    def may_be_named(self, owner: Key, name: str) -> bool:
        return name == _name_elsewhere(owner)


def _name_elsewhere(provisioner: Key) -> str:
    return f"provisioner:{provisioner.namespace}:{provisioner.name}"


ROLES = ProvisionerRoles()
