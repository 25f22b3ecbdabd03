"""The reasons of every condition: what each means, and what to do about it."""

from collections.abc import Mapping
from enum import StrEnum

from coder_k8s.api.conditions import (
    CommonCondition,
    ControlPlaneCondition,
    ProvisionerCondition,
    Reason,
    WorkspaceProxyCondition,
)

from .common import COMMON
from .controlplane import CONTROL_PLANE
from .provisioner import PROVISIONER
from .workspaceproxy import WORKSPACE_PROXY

__all__ = ["REASONS", "Reason"]

REASONS: Mapping[type[StrEnum], Mapping[StrEnum, tuple[Reason, ...]]] = {
    CommonCondition: COMMON,
    ControlPlaneCondition: CONTROL_PLANE,
    ProvisionerCondition: PROVISIONER,
    WorkspaceProxyCondition: WORKSPACE_PROXY,
}
