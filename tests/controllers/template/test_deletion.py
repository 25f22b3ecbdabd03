"""What stays in Coder when the object is deleted."""

from dataclasses import replace

from coder_k8s.api import CONTROL_PLANE, TEMPLATE
from coder_k8s.controllers.cleanup import BOUND
from tests.support import eventually
from tests.support.templates import FINALIZER, NAME, PLANE, TemplateNamespace


async def test_a_template_is_retained(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        made = await place.ready(operator)
        assert made.metadata.finalizers == []
        await place.delete(TEMPLATE, NAME)
        await place.gone(TEMPLATE, NAME)
        await operator.wait_idle()
        first, writes = place.template, place.writes()
        await place.make()
        await place.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        assert (place.template, place.writes()) == (first, writes), "the same object takes its template over"


async def test_a_template_is_deleted_when_no_workspace_uses_it(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(deletionPolicy="Delete")
        made = await place.ready(operator)
        assert made.metadata.finalizers == [FINALIZER]
        place.coderd.state.templates.use_versions(place.template.id, [place.template.active] * 2)
        await place.delete(TEMPLATE, NAME)
        note = f"Template {NAME} is not deleted yet: 2 workspaces use it; delete the workspaces first"
        assert await place.note("TemplateNotDeleted") == note
        place.coderd.state.templates.use_versions(place.template.id, [])
        await operator.later(seconds=15)
        await place.gone(TEMPLATE, NAME)
        assert [each.deleted for each in place.coderd.state.templates.templates.values()] == [True]


async def test_deletion_does_not_wait_for_workspaces_for_ever(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(deletionPolicy="Delete")
        await place.ready(operator)
        place.coderd.state.templates.use_versions(place.template.id, [place.template.active])
        await place.delete(TEMPLATE, NAME)
        await place.note("TemplateNotDeleted")
        await operator.later(seconds=BOUND.total_seconds() + 1)
        await place.gone(TEMPLATE, NAME)
        note = f"Template {NAME} stays in Coder: 1 workspace uses it; delete the workspace first"
        assert await place.note("TemplateLeaked") == note
        assert not place.template.deleted


async def test_deletion_without_a_control_plane(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(deletionPolicy="Delete")
        await place.ready(operator)
        await place.delete(CONTROL_PLANE, PLANE)
        await place.condition("Stalled", "ControlPlaneMissing", "True")
        await place.delete(TEMPLATE, NAME)
        await place.gone(TEMPLATE, NAME)
        await place.event("TemplateLeaked")


async def test_the_finalizer_is_removed_when_the_template_is_to_be_retained(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(deletionPolicy="Delete")
        await place.ready(operator)
        await place.change(deletionPolicy="Retain")

        async def released() -> bool:
            return (await place.get()).metadata.finalizers == []

        await eventually(released)
        await place.change(deletionPolicy="Delete")

        async def held() -> bool:
            return (await place.get()).metadata.finalizers == [FINALIZER]

        await eventually(held)


async def test_deletion_of_a_template_that_coder_does_not_return(place: TemplateNamespace) -> None:
    """Someone deleted it, or the operator's user lost its permissions: Coder responds the same."""
    async with place.operator() as operator:
        await place.make(deletionPolicy="Delete")
        await place.ready(operator)
        place.coderd.state.templates.put(replace(place.template, deleted=True))
        await place.delete(TEMPLATE, NAME)
        await place.gone(TEMPLATE, NAME)
        note = f"Template {NAME} was not deleted: Coder has none of that name, or the operator's user cannot read it"
        assert await place.note("TemplateLeaked") == note
