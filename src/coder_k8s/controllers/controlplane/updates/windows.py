"""The times in which an update may start."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from coder_k8s.api.shared import seconds
from coder_k8s.api.updates import Window
from coder_k8s.controllers import schedules


class Opening(msgspec.Struct, frozen=True):
    """Whether a window is open, and when the next one opens."""

    open: bool = True
    next: datetime | None = None
    error: str = ""
    """Why a window never opens."""

    @property
    def text(self) -> str:
        return f"on {self.next:%Y-%m-%d} at {self.next:%H:%M} UTC" if self.next else "never"


def opening(windows: Sequence[Window], now: datetime) -> Opening:
    """Whether one of the windows is open.

    | windows                                  | open | error                     |
    |------------------------------------------|------|---------------------------|
    | none                                     | yes  |                           |
    | one that opened less than its duration ago | yes |                          |
    | others                                   | no   |                           |
    | one that is not valid, no other is open  | no   | names what is not valid   |
    """
    if not windows:
        return Opening()
    errors, upcoming = [], []
    for window in windows:
        try:
            schedule = schedules.parse(window.schedule, window.time_zone)
        except schedules.InvalidSchedule as error:
            errors.append(f"update.windows: {error}")
            continue
        last, following = schedule.last(now), schedule.next(now)
        if last is not None and now - last < timedelta(seconds=seconds(window.duration)):
            return Opening()
        if following is not None:
            upcoming.append(following)
    return Opening(False, min(upcoming, default=None), errors[0] if errors else "")
