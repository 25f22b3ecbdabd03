"""When an update may start."""

from datetime import UTC, datetime

import pytest

from coder_k8s.api.updates import Window
from coder_k8s.controllers.controlplane.updates.windows import opening

SATURDAY = Window(schedule="0 22 * * 6", duration="4h", time_zone="Europe/Berlin")
NIGHTLY = Window(schedule="30 1 * * *", duration="90m")
WRONG = Window(schedule="0 99 * * *", duration="1h")
ZONE = Window(schedule="0 22 * * 6", duration="4h", time_zone="Mars/Olympus")


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


CASES = {
    "before": ([SATURDAY], at(2026, 3, 7, 20, 59), "on 2026-03-07 at 21:00 UTC"),
    "opens": ([SATURDAY], at(2026, 3, 7, 21), ""),
    "open": ([SATURDAY], at(2026, 3, 8, 0, 59), ""),
    "closed": ([SATURDAY], at(2026, 3, 8, 1), "on 2026-03-14 at 21:00 UTC"),
    "summer time": ([SATURDAY], at(2026, 3, 29, 12), "on 2026-04-04 at 20:00 UTC"),
    "the first of two": ([SATURDAY, NIGHTLY], at(2026, 3, 7, 12), "on 2026-03-07 at 21:00 UTC"),
    "one of two is open": ([SATURDAY, NIGHTLY], at(2026, 3, 6, 2), ""),
    "none": ([], at(2026, 3, 6, 2), ""),
}


@pytest.mark.parametrize(("windows", "now", "following"), CASES.values(), ids=CASES)
def test_opening(windows: list[Window], now: datetime, following: str) -> None:
    found = opening(windows, now)
    assert found.open is not bool(following)
    assert not following or found.text == following


@pytest.mark.parametrize("window", [WRONG, ZONE])
def test_window_that_is_not_valid_is_reported(window: Window) -> None:
    found = opening([window], datetime(2026, 3, 6, tzinfo=UTC))
    assert not found.open
    assert found.error.startswith("update.windows: ")
    assert opening([window, NIGHTLY], datetime(2026, 3, 6, 2, tzinfo=UTC)).open
