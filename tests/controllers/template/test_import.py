"""A template is imported from its source, and made active when the import succeeded."""

from tests.support.templates import NAME, TemplateNamespace, inline


async def test_first_import(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        version = await place.pending_version()
        await place.condition("Imported", "Importing", "False")
        assert place.coderd.state.templates.templates == {}, "there is no template before its version is imported"
        await operator.wait_idle()
        place.finish(version)
        await operator.later(seconds=6)
        await place.condition("Ready", "AllReady", "True")
        made = await place.get()
        assert (place.template.name, place.template.active) == (NAME, version.id)
        assert made.status.template_id == place.template.id
        active = made.status.active_version
        assert active is not None
        assert (active.id, active.name) == (version.id, f"{active.digest[:12]}-1")
        assert version.message.startswith(f"coder-k8s: CoderTemplate {place.namespace}/{NAME}, digest sha256:")
        assert (made.status.phase, made.metadata.finalizers) == ("Ready", [])


async def test_new_content_replaces_the_active_version_and_old_content_is_not_imported_again(
    place: TemplateNamespace,
) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        first = place.template.active
        await place.change(source=inline("# two"))
        second = await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        assert place.template.active == second.id
        await place.change(source=inline("# one"))
        await place.condition("Promoted", "Promoted", "True")
        await operator.wait_idle()
        assert (place.template.active, len(place.versions)) == (first, 2)
