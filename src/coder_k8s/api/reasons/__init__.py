"""The conditions of all kinds, and one constant per reason: its meaning, and what to do about it."""
# ruff: noqa: F403 - a constant is read as `reasons.NAME_TAKEN`, wherever it is defined

from .common import *
from .controlplane import *
from .provisioner import *
from .reason import Reason as Reason
from .workspaceproxy import *
