"""The commands for users. Each command imports what it needs, so that other commands start fast."""

from .changes import pause, resume, rotate
from .check import check
from .completion import completion
from .report import report
from .status import status

ALL = (status, check, rotate, pause, resume, report, completion)
