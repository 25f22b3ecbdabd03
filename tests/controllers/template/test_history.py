"""Old versions are archived, also failed ones, and none that is needed."""

from coder_k8s.dev.coderd_server.templates import Version
from tests.support.operators import Operator
from tests.support.templates import TemplateNamespace, inline

BROKEN = "exit status 1"


def kept(place: TemplateNamespace) -> list[Version]:
    return [each for each in place.versions if not each.archived]


async def push(place: TemplateNamespace, operator: Operator, number: int, error: str = "") -> Version:
    """Change the content, and complete its import."""
    place.clock.advance(seconds=60)  # uploads are limited, and versions are ordered by time
    await place.change(source=inline(f"# {number}"))
    version = await place.pending_version(number)
    await place.condition("Imported", "Importing", "False")
    await operator.wait_idle()
    place.finish(version, error)
    await operator.later(seconds=6)
    return version


async def test_old_versions_are_archived(place: TemplateNamespace) -> None:
    foreign = place.coderd.state.templates.add_template("foreign")
    async with place.operator() as operator:
        await place.make(source=inline("# 2"), history=2)
        first = await place.import_next(operator, 2)
        await place.condition("Ready", "AllReady", "True")
        template = place.coderd.state.templates.templates[first_template(place, first)]
        used = await push(place, operator, 3)
        place.coderd.state.templates.use_versions(template.id, [used.id])
        newest = [await push(place, operator, number) for number in (4, 5)]
        await place.condition("Ready", "AllReady", "True")
        assert await place.note("VersionsArchived") == f"Archived 1 old version of template go: {first.name}"
        by_hand = place.versions[0]
        assert [each.id for each in kept(place)] == [by_hand.id, used.id, *(each.id for each in newest)]
        assert place.coderd.state.templates.templates[foreign].active == by_hand.id
        await place.change(source=inline("# 2"))
        await place.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        active = place.coderd.state.templates.templates[template.id].active
        assert (active, len(place.versions)) == (first.id, 5), "an archived version is not imported again"
        assert not place.coderd.state.templates.versions[first.id].archived


def first_template(place: TemplateNamespace, version: Version) -> str:
    return place.coderd.state.templates.versions[version.id].template


async def test_failed_versions_are_archived_without_a_success(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(source=inline("# 1"), history=2)
        await place.ready(operator)
        active = place.template.active
        failed = [await push(place, operator, number, BROKEN) for number in (2, 3, 4, 5)]
        await place.condition("Stalled", "ImportFailed", "True")
        assert [each.id for each in kept(place)] == [active, failed[-2].id, failed[-1].id]
        writes = place.writes()
        for _ in range(3):
            await operator.later(minutes=2)
        assert place.writes() == writes
        await place.change(source=inline("# 2"))
        message = f"The import of version {failed[0].name} failed; correct the template: {BROKEN}"
        await place.message("Imported", "ImportFailed", message)
        await operator.wait_idle()
        assert len(place.versions) == 5, "a version that failed is not imported again, also if it is archived"


async def test_a_shorter_history(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(source=inline("# 1"))
        await place.ready(operator)
        pushed = [await push(place, operator, number) for number in (2, 3)]
        await place.condition("Ready", "AllReady", "True")
        assert len(kept(place)) == 3
        by_hand = place.coderd.state.templates.add_version("by-hand", template=place.template.id)
        place.finish(by_hand)
        await place.change(history=1)
        await place.note("VersionsArchived")
        await operator.wait_idle()
        assert [each.id for each in kept(place)] == [pushed[-1].id, by_hand.id], "it belongs to someone else"


async def test_versions_that_wait_for_promotion(place: TemplateNamespace) -> None:
    async with place.operator() as operator:
        await place.make(source=inline("# 1"), history=2, promotion={"policy": "Manual"})
        await place.ready(operator)
        active = place.template.active
        pushed = [await push(place, operator, number) for number in (2, 3, 4)]
        await place.condition("Promoted", "PromotionPending", "False")
        assert [each.id for each in kept(place)] == [active, pushed[-2].id, pushed[-1].id]
