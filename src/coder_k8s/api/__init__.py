"""The kinds of `coder.com/v1alpha1`.

The annotations are the single source of wire format, schema, defaults, validation rules and reference. The string below
a field is its description.
"""

from .controlplane import CONTROL_PLANE, CONTROL_PLANE_RESOURCE, CoderControlPlane
from .provisioner import PROVISIONER, PROVISIONER_RESOURCE, CoderProvisioner
from .reasons import (
    CommonCondition,
    ControlPlaneCondition,
    ProvisionerCondition,
    TemplateCondition,
    WorkspaceProxyCondition,
)
from .shared import GROUP, VERSION, CoderObject
from .template import TEMPLATE, TEMPLATE_RESOURCE, CoderTemplate
from .workspaceproxy import (
    WORKSPACE_PROXY,
    WORKSPACE_PROXY_RESOURCE,
    CoderWorkspaceProxy,
)

RESOURCES = (CONTROL_PLANE_RESOURCE, PROVISIONER_RESOURCE, WORKSPACE_PROXY_RESOURCE, TEMPLATE_RESOURCE)

__all__ = [
    "CONTROL_PLANE",
    "GROUP",
    "PROVISIONER",
    "RESOURCES",
    "TEMPLATE",
    "VERSION",
    "WORKSPACE_PROXY",
    "CoderControlPlane",
    "CoderObject",
    "CoderProvisioner",
    "CoderTemplate",
    "CoderWorkspaceProxy",
    "CommonCondition",
    "ControlPlaneCondition",
    "ProvisionerCondition",
    "TemplateCondition",
    "WorkspaceProxyCondition",
]
