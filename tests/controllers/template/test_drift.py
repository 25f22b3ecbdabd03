"""What happens when someone changes the template in Coder."""

from coder_k8s.api import TEMPLATE
from tests.support import eventually
from tests.support.templates import NAME, TemplateNamespace, inline


async def test_another_active_version_is_reverted(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        ours = place.template.active
        other = place.coderd.state.templates.add_version("by-hand", template=place.template.id)
        place.finish(other)
        place.coderd.state.templates.activate_version(place.template.id, other.id)
        await operator.later(minutes=2)
        await place.event("DriftReverted")
        assert place.template.active == ours
        await place.condition("InSync", "InSync", "True")


async def test_another_active_version_is_reported(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(drift="Report")
        await place.ready(operator)
        other = place.coderd.state.templates.add_version("by-hand", template=place.template.id)
        place.finish(other)
        place.coderd.state.templates.activate_version(place.template.id, other.id)
        writes = place.writes()
        await operator.later(minutes=2)
        message = f"Template {NAME} in Coder is not as this object describes: version by-hand is active"
        await place.message("InSync", "Drifted", message)
        for _ in range(3):
            await operator.later(minutes=2)
        assert (place.template.active, place.writes()) == (other.id, writes)
        await place.condition("Ready", "AllReady", "True")


async def test_changed_settings_are_reverted(place: TemplateNamespace) -> None:
    settings = {"displayName": "Go", "defaultTTL": "8h", "allowUserCancelWorkspaceJobs": False}
    async with place.operator() as operator:
        await place.make(settings=settings)
        await place.ready(operator)
        assert place.template.settings["display_name"] == "Go"
        assert place.template.settings["default_ttl_ms"] == 8 * 3600 * 1000
        place.template.settings["display_name"] = "Gopher"
        await operator.later(minutes=2)
        assert "displayName" in await place.note("DriftReverted")
        assert place.template.settings["display_name"] == "Go"
        await place.change(settings={"displayName": "Golang"})
        await place.note("TemplateUpdated")
        assert place.template.settings["display_name"] == "Golang"
        assert place.template.settings["activity_bump_ms"] == 3600000


async def test_settings_without_a_license(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(settings={"requireActiveVersion": True, "description": "x"}, access={})
        await place.ready(operator)
        message = (
            "The license does not cover requireActiveVersion, access; use one that does, or remove it from the spec"
        )
        await place.message("SettingsApplied", "NotEntitled", message)
        assert place.template.settings["description"] == "x"
        writes = place.writes()
        for _ in range(5):
            await operator.later(minutes=2)
        assert place.writes() == writes


async def test_deleted_template(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        first = place.template.id
        place.delete_in_coder()
        await operator.later(minutes=2)
        await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        assert place.template.id != first


async def test_observe(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(managementPolicy="Observe")
        await place.condition("InSync", "Drifted", "False")
        await operator.wait_idle()
        assert (place.writes(), place.versions) == (0, [])
        place.coderd.state.templates.add_template(NAME)
        await operator.later(minutes=2)
        message = f"Template {NAME} in Coder is not as this object describes: version v1 is active"
        await place.message("InSync", "Drifted", message)
        assert place.writes() == 0


async def test_name_of_another_owner(place: TemplateNamespace) -> None:
    foreign = place.coderd.state.templates.add_template(NAME)
    async with place.operator() as operator:
        await place.make()
        message = (
            f"Coder already has a template named {NAME} that this object did not create; rename this object, delete "
            'the template in Coder, or take it over with the annotation coder.com/adopt: "true"'
        )
        await place.message("Stalled", "NameTaken", message)
        await operator.wait_idle()
        assert place.writes() == 0
        await place.set_annotations(TEMPLATE, NAME, {"coder.com/adopt": "true"})
        await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        await place.event("TemplateAdopted")
        assert (place.template.id, place.template.active) == (foreign, place.versions[-1].id)


async def test_manual_promotion(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(promotion={"policy": "Manual"})
        await place.ready(operator)
        first = place.template.active
        await place.change(source=inline("# two"))
        second = await place.import_next(operator, 2)
        message = (
            f"Version {second.name} is imported; make it active with the annotation coder.com/promote: {second.name}"
        )
        await place.message("Promoted", "PromotionPending", message)
        assert place.template.active == first
        await place.set_annotations(TEMPLATE, NAME, {"coder.com/promote": second.name})
        await place.condition("Promoted", "Promoted", "True")
        await eventually(lambda: place.template.active == second.id)
        await operator.wait_idle()
        await place.set_annotations(TEMPLATE, NAME, {"coder.com/promote": place.versions[0].name})
        await operator.wait_idle()
        assert place.template.active == first, "also an older version"
