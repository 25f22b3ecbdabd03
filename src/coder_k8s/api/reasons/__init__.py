"""The reasons of all conditions, one constant per reason: its meaning, and what to do about it."""
# ruff: noqa: F403 - a constant is read as `reasons.NAME_TAKEN`, wherever it is defined

from collections.abc import Mapping
from enum import StrEnum

from coder_k8s.api.conditions import (
    CommonCondition,
    ControlPlaneCondition,
    ProvisionerCondition,
    WorkspaceProxyCondition,
)

from .common import *
from .common import COMMON_REASONS
from .controlplane import *
from .controlplane import CONTROL_PLANE_REASONS
from .provisioner import *
from .provisioner import PROVISIONER_REASONS
from .reason import Reason as Reason
from .workspaceproxy import *
from .workspaceproxy import WORKSPACE_PROXY_REASONS

REASONS: Mapping[type[StrEnum], Mapping[StrEnum, tuple[Reason, ...]]] = {
    CommonCondition: COMMON_REASONS,
    ControlPlaneCondition: CONTROL_PLANE_REASONS,
    ProvisionerCondition: PROVISIONER_REASONS,
    WorkspaceProxyCondition: WORKSPACE_PROXY_REASONS,
}
"""The reasons that each condition can have, by the conditions of a kind."""
