"""The conditions of all kinds, and one constant per reason: its meaning, and what to do about it."""
# ruff: noqa: F403 - a constant is read as `reasons.NAME_TAKEN`, wherever it is defined

from .autoscaling import *
from .common import *
from .controlplane import *
from .exposure import *
from .health import *
from .jobs import *
from .provisioner import *
from .reason import Reason as Reason
from .template import *
from .updates import *
from .workspace_rbac import *
from .workspaceproxy import *
