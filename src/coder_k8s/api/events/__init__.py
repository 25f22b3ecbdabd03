"""The events of all kinds, one constant per reason: when it occurs, and what to do about it."""
# ruff: noqa: F403 - a constant is read as `events.LICENSE_APPLIED`, wherever it is defined

from .autoscaling import *
from .common import *
from .controlplane import *
from .event import Event as Event
from .health import *
from .jobs import *
from .provisioner import *
from .template import *
from .updates import *
from .workspaceproxy import *
