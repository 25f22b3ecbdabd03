"""The minimum number of pods that schedules require."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from coder_k8s.api.autoscaling import ScalingSchedule
from coder_k8s.controllers.schedules import InvalidSchedule, parse


def scheduled_floor(schedules: Sequence[ScalingSchedule], now: datetime) -> int:
    """The highest minimum of the schedules that are active; a schedule that is not valid has none."""
    return max((each.min_replicas for each in schedules if _is_active(each, now)), default=0)


def invalid_schedule(schedules: Sequence[ScalingSchedule]) -> str:
    """The first schedule that is not valid, with the error; empty if all are."""
    for index, each in enumerate(schedules):
        for field in ("start", "end"):
            try:
                parse(getattr(each, field), each.time_zone)
            except InvalidSchedule as error:
                return f"autoscaling.schedules[{index}].{field}: {error}"
    return ""


def _is_active(schedule: ScalingSchedule, now: datetime) -> bool:
    """Whether it started after it last ended."""
    minute = now.replace(second=0, microsecond=0)
    try:
        start = _last(schedule.start, schedule.time_zone, minute)
        end = _last(schedule.end, schedule.time_zone, minute)
    except InvalidSchedule:
        return False
    return start is not None and (end is None or end < start)


@lru_cache(maxsize=4096)
def _last(expression: str, time_zone: str, minute: datetime) -> datetime | None:
    """The last occurrence, computed once per minute: the search takes milliseconds, and there may be many schedules."""
    return parse(expression, time_zone).last(minute)
