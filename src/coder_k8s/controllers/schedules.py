"""Cron expressions in a time zone.

A time that summer time skips moves to the next one that exists, and a time that occurs twice counts once, unless the
expression has `*` for its minute or hour. This is the behavior of cron on Debian.

The libraries are imported for the first schedule, because most operators have none.
"""

from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

FIELDS = 5
MARGIN = timedelta(hours=3)
"""More than summer time can shift an occurrence."""


class InvalidSchedule(Exception):
    """A cron expression or a time zone that does not exist; the message has its value."""


class Schedule(msgspec.Struct, frozen=True):
    """The occurrences of a cron expression; create it with `parse`."""

    expression: str
    zone: tzinfo

    def next(self, now: datetime) -> datetime | None:
        """The first occurrence after a time; None if there is none within 50 years."""
        from cronsim import CronSim

        later = (each for each in CronSim(self.expression, now.astimezone(self.zone)) if each > now)
        found = next(later, None)
        return found.astimezone(UTC) if found else None

    def last(self, now: datetime) -> datetime | None:
        """The last occurrence at or before a time; None if there is none within 50 years.

        The search is forward from an earlier occurrence, because backward it differs around a change of the clock.
        """
        from cronsim import CronSim

        backward = CronSim(self.expression, (now - MARGIN).astimezone(self.zone), reverse=True)
        found = next(backward, None)
        for each in CronSim(self.expression, found or (now - MARGIN).astimezone(self.zone)):
            if each > now:
                break
            found = each
        return found.astimezone(UTC) if found else None


def parse(expression: str, time_zone: str = "UTC") -> Schedule:
    """The schedule of an expression with five fields; raise `InvalidSchedule` if it is not valid."""
    from zoneinfo import ZoneInfo

    from cronsim import CronSim, CronSimError

    if len(expression.split()) != FIELDS:
        raise InvalidSchedule(f"{expression!r} is not a cron expression: it must have {FIELDS} fields")
    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise InvalidSchedule(f"{expression!r} is not a cron expression: {error}") from None
    try:
        return Schedule(expression, ZoneInfo(time_zone))
    except (KeyError, OSError, ValueError):  # no such zone, a directory, or a path out of the database
        raise InvalidSchedule(f"{time_zone!r} is not a time zone of the IANA database, such as Europe/Berlin") from None
