"""The commands for users. Each command imports what it needs, so that other commands start fast."""

from .changes import pause, resume, rotate
from .check import check
from .completion import completion
from .diff import diff
from .report import report
from .simulate import simulate
from .status import status
from .update import update
from .why import why

ALL = (status, why, diff, check, update, rotate, pause, resume, report, simulate, completion)
