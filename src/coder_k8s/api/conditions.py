"""The types of the conditions of each kind."""

from .reasons.common import CommonCondition
from .reasons.controlplane import ControlPlaneCondition
from .reasons.provisioner import ProvisionerCondition
from .reasons.workspaceproxy import WorkspaceProxyCondition

__all__ = ["CommonCondition", "ControlPlaneCondition", "ProvisionerCondition", "WorkspaceProxyCondition"]
