"""The settings of a template: what to send to Coder, and what cannot be applied.

Coder before 2.34 writes zero or false for a setting that a change does not have. So a change always has all settings:
those that Coder returned, with those of the spec in their place.

| a setting of the spec | |
|---|---|
| is not set | is not managed, and sent as Coder returned it |
| is the same in Coder | needs no change |
| differs, and the license does not cover it | is not sent, because Coder would ignore it: reported |
| differs, and would delete workspaces without consent | is not sent: reported |
| differs otherwise | is sent |

The maximum level of port sharing is the exception: it is not sent, because Coder keeps it and, without a license,
returns another one than it stores.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from coder_k8s.api.shared import seconds
from coder_k8s.api.template_settings import Settings, TemplateSchedule
from coder_k8s.coderd.types import Entitlements

SCHEDULING = "advanced_template_scheduling"
ACCESS_CONTROL = "access_control"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DORMANT, DELETE_DORMANT = "time_til_dormant_ms", "time_til_dormant_autodelete_ms"
CANCEL_JOBS = "allow_user_cancel_workspace_jobs"
SENT = (
    "display_name",
    "description",
    "icon",
    "default_ttl_ms",
    "activity_bump_ms",
    "time_til_autostop_notify_ms",
    "autostop_requirement",
    "autostart_requirement",
    "allow_user_autostart",
    "allow_user_autostop",
    CANCEL_JOBS,
    "failure_ttl_ms",
    DORMANT,
    DELETE_DORMANT,
    "require_active_version",
    "deprecation_message",
    "cors_behavior",
    "use_classic_parameter_flow",
    "disable_module_cache",
)
"""The settings of a change. Older versions of Coder do not return all of them."""
AT_CREATION = {DORMANT: "dormant_ttl_ms", DELETE_DORMANT: "delete_ttl_ms"}
"""Settings that have another name when a template is created."""


class Setting(msgspec.Struct, frozen=True):
    """A setting of the spec: its field, its value as Coder has it, and the feature of the license that it needs."""

    field: str
    value: Any
    feature: str = ""


class SettingsPlan(NamedTuple):
    """What to do about the settings of a template."""

    body: Mapping[str, Any] | None = None
    """The complete change; `None` if there is none."""
    changed: tuple[str, ...] = ()
    """Fields of the spec that the change applies."""
    not_entitled: tuple[str, ...] = ()
    """Fields that differ and that the license does not cover."""
    needs_consent: tuple[str, ...] = ()
    """Fields that would delete workspaces, without `allowWorkspaceDeletion`."""


def plan(
    wanted: Settings, current: Mapping[str, Any], entitled: Collection[str], name: str | None = None
) -> SettingsPlan:
    """Compare the settings of the spec with those of a template that Coder returned; `name` renames it."""
    managed = settings(wanted)
    different = {key: each for key, each in managed.items() if normalized(key, current.get(key)) != each.value}
    not_entitled = {key for key, each in different.items() if each.feature and each.feature not in entitled}
    possible = {key: each for key, each in different.items() if key not in not_entitled}
    needs_consent = deletions(possible, wanted, current)
    applied = [key for key in possible if key not in needs_consent]
    changed = [different[key].field for key in applied]
    body = {key: current[key] for key in SENT if key in current} | {key: different[key].value for key in applied}
    if name is not None and name != current.get("name"):
        changed.append("name")
        body["name"] = name
    return SettingsPlan(
        body if changed else None,
        tuple(changed),
        tuple(different[key].field for key in different if key in not_entitled),
        tuple(different[key].field for key in different if key in needs_consent),
    )


def creation(wanted: Settings, entitled: Collection[str]) -> dict[str, Any]:
    """Return the settings for the request that creates a template.

    Coder documents that users can cancel jobs by default. Without the setting, it does not allow that.
    """
    managed = settings(wanted)
    sent = {key: each.value for key, each in managed.items() if not each.feature or each.feature in entitled}
    return {AT_CREATION.get(key, key): value for key, value in {CANCEL_JOBS: True, **sent}.items()}


def settings(wanted: Settings) -> dict[str, Setting]:
    """Return the settings that are set, by their name in Coder."""
    schedule = wanted.schedule or TemplateSchedule()
    stop, start = schedule.autostop_requirement, schedule.autostart_requirement
    found = {
        "display_name": Setting("displayName", wanted.display_name),
        "description": Setting("description", wanted.description),
        "icon": Setting("icon", wanted.icon),
        "default_ttl_ms": Setting("defaultTTL", milliseconds(wanted.default_ttl)),
        "activity_bump_ms": Setting("activityBump", milliseconds(wanted.activity_bump)),
        CANCEL_JOBS: Setting("allowUserCancelWorkspaceJobs", wanted.allow_user_cancel_workspace_jobs),
        "require_active_version": Setting("requireActiveVersion", wanted.require_active_version, ACCESS_CONTROL),
        "autostop_requirement": Setting(
            "schedule.autostopRequirement",
            {"days_of_week": ordered(stop.days_of_week), "weeks": stop.weeks} if stop else None,
            SCHEDULING,
        ),
        "autostart_requirement": Setting(
            "schedule.autostartRequirement",
            {"days_of_week": ordered(start.days_of_week)} if start else None,
            SCHEDULING,
        ),
        "allow_user_autostart": Setting("schedule.allowUserAutostart", schedule.allow_user_autostart, SCHEDULING),
        "allow_user_autostop": Setting("schedule.allowUserAutostop", schedule.allow_user_autostop, SCHEDULING),
        "failure_ttl_ms": Setting("schedule.failureTTL", milliseconds(schedule.failure_ttl), SCHEDULING),
        DORMANT: Setting("schedule.dormantAfter", milliseconds(schedule.dormant_after), SCHEDULING),
        DELETE_DORMANT: Setting("schedule.deleteDormantAfter", milliseconds(schedule.delete_dormant_after), SCHEDULING),
    }
    return {key: each for key, each in found.items() if each.value is not None}


def deletions(different: Mapping[str, Setting], wanted: Settings, current: Mapping[str, Any]) -> set[str]:
    """Return the settings that would delete workspaces, unless the spec allows that.

    | Coder deletes dormant workspaces after the change | time until dormancy or deletion | |
    |---|---|---|
    | no | any | allowed |
    | yes | longer, or the same | allowed |
    | yes | shorter, or new | needs `allowWorkspaceDeletion` |
    """
    if wanted.schedule is not None and wanted.schedule.allow_workspace_deletion:
        return set()
    if not (different[DELETE_DORMANT].value if DELETE_DORMANT in different else current.get(DELETE_DORMANT)):
        return set()
    times = {key: different[key].value for key in (DORMANT, DELETE_DORMANT) if key in different}
    return {key for key, value in times.items() if value and not 0 < (current.get(key) or 0) <= value}


def entitled_features(entitlements: Entitlements) -> frozenset[str]:
    """Return the features that the license covers, also in its grace period."""
    return frozenset(
        name
        for name, feature in entitlements.features.items()
        if feature.enabled and feature.entitlement in ("entitled", "grace_period")
    )


def explain(found: SettingsPlan) -> str:
    """Return what cannot be applied and what to do, as one or two sentences; empty if everything can."""
    texts = []
    if found.not_entitled:
        texts.append(
            f"The license does not cover {listed(found.not_entitled)}; use one that does, or remove it from the spec"
        )
    if found.needs_consent:
        texts.append(
            f"Coder would delete workspaces because of {listed(found.needs_consent)};"
            " set settings.schedule.allowWorkspaceDeletion to allow that"
        )
    return ". ".join(texts)


def listed(fields: Collection[str]) -> str:
    return ", ".join(fields)


def milliseconds(duration: str | None) -> int | None:
    return None if duration is None else round(seconds(duration) * 1000)


def ordered(days: Collection[str]) -> list[str]:
    """Return days of the week in Coder's order."""
    return [day for day in WEEKDAYS if day in days]


def normalized(key: str, value: Any) -> Any:
    """Return a value of Coder in a form that can be compared."""
    if not isinstance(value, Mapping):
        return value
    days = {"days_of_week": ordered(value.get("days_of_week") or [])}
    return {**days, "weeks": value.get("weeks") or 1} if key == "autostop_requirement" else days
