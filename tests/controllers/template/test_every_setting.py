"""Every setting reaches Coder, in both versions, and those that are not managed stay as they are."""

import msgspec
import pytest

from coder_k8s.api.template_settings import Settings, TemplateSchedule
from tests.support.operators import Operator
from tests.support.templates import TemplateNamespace

from .settings_table import SETTINGS, Chosen, every, in_coder, in_spec

VERSIONS = pytest.mark.parametrize("place", ["2.30.0", "2.36.1"], indirect=True)
LICENSED = [each for each in SETTINGS if each.licensed]


async def changed(place: TemplateNamespace, operator: Operator, chosen: Chosen) -> dict[str, object]:
    """Replace the settings of the spec, and return those that Coder has then."""
    nothing = {each.field: None for each in SETTINGS if "." not in each.field}
    schedule = {each.path[1]: None for each in SETTINGS if "." in each.field}
    wanted = in_spec(chosen)
    merged = {**schedule, "allowWorkspaceDeletion": None, **wanted.get("schedule", {})}
    await place.change(settings={**nothing, **wanted, "schedule": merged})
    await operator.wait_idle()
    return {each.name: place.template.settings[each.name] for each in SETTINGS}


async def assert_no_writes(place: TemplateNamespace, operator: Operator) -> None:
    writes, coderd_writes = operator.writes(), place.writes()
    for _ in range(3):
        await operator.later(minutes=2)
    assert (operator.writes(), place.writes()) == (writes, coderd_writes)


def test_the_table_is_complete() -> None:
    fields = {each.encode_name for each in msgspec.structs.fields(Settings)} - {"schedule"}
    schedule = {each.encode_name for each in msgspec.structs.fields(TemplateSchedule)} - {"allowWorkspaceDeletion"}
    assert {each.field for each in SETTINGS} == fields | {f"schedule.{name}" for name in schedule}


@VERSIONS
async def test_every_setting(place: TemplateNamespace) -> None:
    place.coderd.state.install_license()
    async with place.operator() as operator:
        await place.make(settings=in_spec(every(0)))
        await place.ready(operator)
        first, second = in_coder(every(0)), in_coder(every(1))
        assert {name: place.template.settings[name] for name in first} == first, "of a new template"
        await assert_no_writes(place, operator)
        assert await changed(place, operator, every(1)) == second
        assert await changed(place, operator, {}) == second, "nothing is managed, and nothing changes"
        for setting in SETTINGS:
            second |= in_coder({setting.field: 0})
            assert await changed(place, operator, {setting.field: 0}) == second, f"only {setting.field} changes"
        await place.condition("SettingsApplied", "SettingsApplied", "True")
        await assert_no_writes(place, operator)


@VERSIONS
async def test_every_setting_without_a_license(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(settings=in_spec(every(0)))
        await place.ready(operator)
        free = in_coder(every(0), licensed=False)
        assert {name: place.template.settings[name] for name in free} == free
        names = ", ".join(each.field for each in LICENSED)
        message = f"The license does not cover {names}; use one that does, or remove it from the spec"
        await place.message("SettingsApplied", "NotEntitled", message)
        await assert_no_writes(place, operator)
        place.coderd.state.install_license()
        await operator.later(minutes=2)
        await place.condition("SettingsApplied", "SettingsApplied", "True")
        assert {name: place.template.settings[name] for name in in_coder(every(0))} == in_coder(every(0))
