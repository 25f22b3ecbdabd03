"""Two values of every setting, as in the spec and as in Coder."""

from collections.abc import Mapping
from typing import Any, NamedTuple

HOUR = 3_600_000


class Setting(NamedTuple):
    """A setting: its field in the spec, its name in Coder, and pairs of values."""

    field: str
    name: str
    values: tuple[tuple[Any, Any], tuple[Any, Any]]
    licensed: bool = False

    @property
    def path(self) -> list[str]:
        return self.field.split(".")


SETTINGS = (
    Setting("displayName", "display_name", (("Go", "Go"), ("", ""))),
    Setting("description", "description", (("Go workspaces", "Go workspaces"), ("", ""))),
    Setting("icon", "icon", (("/icon/go.svg", "/icon/go.svg"), ("/icon/k8s.png", "/icon/k8s.png"))),
    Setting("defaultTTL", "default_ttl_ms", (("8h", 8 * HOUR), ("0s", 0))),
    Setting("activityBump", "activity_bump_ms", (("30m", HOUR // 2), ("0s", 0))),
    Setting("allowUserCancelWorkspaceJobs", "allow_user_cancel_workspace_jobs", ((False, False), (True, True))),
    Setting("requireActiveVersion", "require_active_version", ((True, True), (False, False)), True),
    Setting(
        "schedule.autostopRequirement",
        "autostop_requirement",
        (
            ({"daysOfWeek": ["sunday", "monday"], "weeks": 2}, {"days_of_week": ["monday", "sunday"], "weeks": 2}),
            ({"daysOfWeek": ["friday"], "weeks": 1}, {"days_of_week": ["friday"], "weeks": 1}),
        ),
        True,
    ),
    Setting(
        "schedule.autostartRequirement",
        "autostart_requirement",
        (
            ({"daysOfWeek": ["friday", "monday"]}, {"days_of_week": ["monday", "friday"]}),
            ({"daysOfWeek": []}, {"days_of_week": []}),
        ),
        True,
    ),
    Setting("schedule.allowUserAutostart", "allow_user_autostart", ((False, False), (True, True)), True),
    Setting("schedule.allowUserAutostop", "allow_user_autostop", ((False, False), (True, True)), True),
    Setting("schedule.failureTTL", "failure_ttl_ms", (("1h", HOUR), ("0s", 0)), True),
    Setting("schedule.dormantAfter", "time_til_dormant_ms", (("24h", 24 * HOUR), ("48h", 48 * HOUR)), True),
    Setting(
        "schedule.deleteDormantAfter", "time_til_dormant_autodelete_ms", (("72h", 72 * HOUR), ("24h", 24 * HOUR)), True
    ),
)


BY_FIELD = {each.field: each for each in SETTINGS}
Chosen = Mapping[str, int]
"""Which value a field has; other fields are not set."""


def in_spec(chosen: Chosen) -> dict[str, Any]:
    """The settings of a spec with these values; those of the schedule allow Coder to delete workspaces."""
    made: dict[str, Any] = {}
    for field, number in chosen.items():
        *parents, last = BY_FIELD[field].path
        inner = made.setdefault(parents[0], {"allowWorkspaceDeletion": True}) if parents else made
        inner[last] = BY_FIELD[field].values[number][0]
    return made


def in_coder(chosen: Chosen, *, licensed: bool = True) -> dict[str, Any]:
    """The settings that Coder has then."""
    return {
        BY_FIELD[field].name: BY_FIELD[field].values[number][1]
        for field, number in chosen.items()
        if licensed or not BY_FIELD[field].licensed
    }


def every(number: int) -> dict[str, int]:
    return dict.fromkeys(BY_FIELD, number)
