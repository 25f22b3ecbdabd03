"""A change of settings is complete, converges in every version of Coder, and deletes no workspaces without consent."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.api.template_settings import Settings, TemplateSchedule
from coder_k8s.coderd.types import Entitlements, Feature
from coder_k8s.controllers.template.settings import (
    SENT,
    SettingsPlan,
    creation,
    entitled_features,
    explain,
    plan,
)
from coder_k8s.dev.coderd_server import template_wire
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.dev.coderd_server.template_settings import changed_settings, new_settings
from coder_k8s.dev.coderd_server.templates import DEFAULTS, WEEKDAYS

LICENSED = frozenset({"advanced_template_scheduling", "access_control"})
CURRENT = {**DEFAULTS, "name": "go", "max_port_share_level": "public"}
HOUR = 3_600_000


def wanted(**fields: Any) -> Settings:
    return msgspec.convert(fields, Settings)


def schedule(**fields: Any) -> Settings:
    return wanted(schedule=fields)


def test_nothing_is_managed() -> None:
    assert plan(wanted(), CURRENT, LICENSED) == SettingsPlan()
    assert plan(wanted(schedule={}), CURRENT, LICENSED) == SettingsPlan()


CHANGES = [
    ({"displayName": "Go"}, "displayName", {"display_name": "Go"}),
    ({"description": "x"}, "description", {"description": "x"}),
    ({"icon": "/icon/go.svg"}, "icon", {"icon": "/icon/go.svg"}),
    ({"defaultTTL": "8h"}, "defaultTTL", {"default_ttl_ms": 8 * HOUR}),
    ({"activityBump": "0s"}, "activityBump", {"activity_bump_ms": 0}),
    (
        {"allowUserCancelWorkspaceJobs": True},
        "allowUserCancelWorkspaceJobs",
        {"allow_user_cancel_workspace_jobs": True},
    ),
    ({"requireActiveVersion": True}, "requireActiveVersion", {"require_active_version": True}),
    (
        {"schedule": {"autostopRequirement": {"daysOfWeek": ["sunday", "monday"], "weeks": 2}}},
        "schedule.autostopRequirement",
        {"autostop_requirement": {"days_of_week": ["monday", "sunday"], "weeks": 2}},
    ),
    (
        {"schedule": {"autostartRequirement": {"daysOfWeek": ["friday"]}}},
        "schedule.autostartRequirement",
        {"autostart_requirement": {"days_of_week": ["friday"]}},
    ),
    ({"schedule": {"allowUserAutostart": False}}, "schedule.allowUserAutostart", {"allow_user_autostart": False}),
    ({"schedule": {"allowUserAutostop": False}}, "schedule.allowUserAutostop", {"allow_user_autostop": False}),
    ({"schedule": {"failureTTL": "1h"}}, "schedule.failureTTL", {"failure_ttl_ms": HOUR}),
    ({"schedule": {"dormantAfter": "1h"}}, "schedule.dormantAfter", {"time_til_dormant_ms": HOUR}),
    (
        {"schedule": {"deleteDormantAfter": "1h", "allowWorkspaceDeletion": True}},
        "schedule.deleteDormantAfter",
        {"time_til_dormant_autodelete_ms": HOUR},
    ),
]


@pytest.mark.parametrize(("fields", "changed", "sent"), CHANGES, ids=[changed for _, changed, _ in CHANGES])
def test_one_setting(fields: dict[str, Any], changed: str, sent: dict[str, Any]) -> None:
    found = plan(wanted(**fields), CURRENT, LICENSED)
    assert (found.changed, found.not_entitled, found.needs_consent) == ((changed,), (), ())
    assert found.body == {key: CURRENT[key] for key in SENT} | sent
    assert "max_port_share_level" not in found.body


def test_every_setting_of_the_spec_is_covered() -> None:
    """A field that the table does not have would be accepted and ignored."""
    fields = {field.encode_name for field in msgspec.structs.fields(Settings)} - {"schedule"}
    of_schedule = {field.encode_name for field in msgspec.structs.fields(TemplateSchedule)}
    fields |= {f"schedule.{name}" for name in of_schedule - {"allowWorkspaceDeletion"}}
    assert {changed for _, changed, _ in CHANGES} == fields


@pytest.mark.parametrize(
    ("fields", "entitled", "not_entitled"),
    [
        ({"requireActiveVersion": True}, LICENSED - {"access_control"}, ("requireActiveVersion",)),
        ({"requireActiveVersion": False}, set(), ()),
        (
            {"schedule": {"failureTTL": "1h", "allowUserAutostop": False}},
            {"access_control"},
            ("schedule.allowUserAutostop", "schedule.failureTTL"),
        ),
        ({"schedule": {"failureTTL": "0s", "autostartRequirement": {"daysOfWeek": list(WEEKDAYS)}}}, set(), ()),
    ],
)
def test_settings_without_a_license(fields: Any, entitled: Any, not_entitled: tuple[str, ...]) -> None:
    assert plan(wanted(**fields), CURRENT, entitled) == SettingsPlan(not_entitled=not_entitled)
    found = plan(wanted(**fields, displayName="Go"), CURRENT, entitled)
    assert (found.changed, found.not_entitled) == (("displayName",), not_entitled)
    assert found.body == {key: CURRENT[key] for key in SENT} | {"display_name": "Go"}


@pytest.mark.parametrize(
    ("current", "fields", "needs_consent"),
    [
        ((0, 0), {"dormantAfter": "1h"}, ()),
        ((0, 0), {"deleteDormantAfter": "1h"}, ("schedule.deleteDormantAfter",)),
        ((0, 9), {"deleteDormantAfter": "1h"}, ("schedule.deleteDormantAfter",)),
        ((0, 9), {"deleteDormantAfter": "9h"}, ()),
        ((0, 9), {"deleteDormantAfter": "10h"}, ()),
        ((0, 9), {"deleteDormantAfter": "0s"}, ()),
        ((0, 9), {"dormantAfter": "1h"}, ("schedule.dormantAfter",)),
        ((5, 9), {"dormantAfter": "1h"}, ("schedule.dormantAfter",)),
        ((5, 9), {"dormantAfter": "6h"}, ()),
        ((5, 9), {"dormantAfter": "0s"}, ()),
        ((5, 9), {"dormantAfter": "1h", "deleteDormantAfter": "0s"}, ()),
        ((5, 0), {"dormantAfter": "1h"}, ()),
        ((5, 9), {"failureTTL": "1h"}, ()),
    ],
)
def test_consent_to_the_deletion_of_workspaces(
    current: tuple[int, int], fields: dict[str, Any], needs_consent: tuple[str, ...]
) -> None:
    dormant, deleted = (hours * HOUR for hours in current)
    template = {**CURRENT, "time_til_dormant_ms": dormant, "time_til_dormant_autodelete_ms": deleted}
    found = plan(schedule(**fields), template, LICENSED)
    assert found.needs_consent == needs_consent
    assert not set(found.changed) & set(needs_consent)
    allowed = plan(schedule(**fields, allowWorkspaceDeletion=True), template, LICENSED)
    assert allowed.needs_consent == ()
    assert set(allowed.changed) == {*found.changed, *needs_consent}


def test_dormancy_that_coder_returns_as_null() -> None:
    template = {**CURRENT, "time_til_dormant_ms": None, "time_til_dormant_autodelete_ms": HOUR}
    assert plan(schedule(dormantAfter="1h"), template, LICENSED).needs_consent == ("schedule.dormantAfter",)


def test_a_name() -> None:
    assert plan(wanted(), CURRENT, LICENSED, "go") == SettingsPlan()
    found = plan(wanted(), CURRENT, LICENSED, "golang")
    assert (found.changed, found.body) == (("name",), {key: CURRENT[key] for key in SENT} | {"name": "golang"})


def test_names_at_creation() -> None:
    fields = {"dormantAfter": "1h", "deleteDormantAfter": "2h", "failureTTL": "3h", "allowWorkspaceDeletion": True}
    assert creation(schedule(**fields), LICENSED) == {
        "allow_user_cancel_workspace_jobs": True,
        "dormant_ttl_ms": HOUR,
        "delete_ttl_ms": 2 * HOUR,
        "failure_ttl_ms": 3 * HOUR,
    }
    assert creation(wanted(allowUserCancelWorkspaceJobs=False, requireActiveVersion=True), set()) == {
        "allow_user_cancel_workspace_jobs": False
    }


def test_explanations() -> None:
    assert explain(SettingsPlan()) == ""
    assert explain(SettingsPlan(not_entitled=("a", "b"), needs_consent=("c",))) == (
        "The license does not cover a, b; use one that does, or remove it from the spec."
        " Coder would delete workspaces because of c; set settings.schedule.allowWorkspaceDeletion to allow that"
    )


def test_entitled_features() -> None:
    features = {
        "a": Feature("entitled", True),
        "b": Feature("grace_period", True),
        "c": Feature("not_entitled", True),
        "d": Feature("entitled", False),
    }
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert entitled_features(Entitlements(features, True, False, now, [], [])) == {"a", "b"}


durations = st.sampled_from(["0s", "1m", "90m", "24h"])
booleans = st.booleans()
days = st.lists(st.sampled_from(WEEKDAYS), unique=True)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "displayName": st.sampled_from(["", "Go"]),
        "description": st.sampled_from(["", "Go workspaces"]),
        "icon": st.sampled_from(["", "/icon/go.svg"]),
        "defaultTTL": durations,
        "activityBump": durations,
        "allowUserCancelWorkspaceJobs": booleans,
        "requireActiveVersion": booleans,
        "schedule": st.fixed_dictionaries(
            {"allowWorkspaceDeletion": booleans},
            optional={
                "autostopRequirement": st.fixed_dictionaries({"daysOfWeek": days, "weeks": st.integers(1, 16)}),
                "autostartRequirement": st.fixed_dictionaries({"daysOfWeek": days}),
                "allowUserAutostart": booleans,
                "allowUserAutostop": booleans,
                "failureTTL": durations,
                "dormantAfter": durations,
                "deleteDormantAfter": durations,
            },
        ),
    },
)


@pytest.mark.parametrize("version", ["2.30.0", "2.36.1"])
@pytest.mark.parametrize("licensed", [True, False])
@given(first=SETTINGS, second=SETTINGS)
def test_a_change_converges(version: str, licensed: bool, first: Any, second: Any) -> None:
    """After the change, nothing is left to do, and what is not managed is as before."""
    state = State(version, lambda: datetime(2026, 1, 1, tzinfo=UTC))
    if licensed:
        state.install_license()
    entitled = LICENSED if licensed else frozenset[str]()
    settings = new_settings(state, creation(wanted(**first), entitled))
    seen = shown(state, settings)
    assert plan(wanted(**first), seen, entitled).body is None
    found = plan(wanted(**second), seen, entitled)
    if found.body is not None:
        settings = changed_settings(state, settings, found.body)
    after = shown(state, settings)
    assert plan(wanted(**second), after, entitled) == found._replace(body=None, changed=())
    managed = {key for key in SENT if key in seen and seen[key] != after[key]}
    assert len(managed) == len(found.changed)


def shown(state: State, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as a response has them."""
    hidden = template_wire.NEW_FIELDS if state.is_old else ()
    return {key: value for key, value in settings.items() if key not in hidden}
