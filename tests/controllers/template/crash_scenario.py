"""A crash scenario: a template, and the provisioner that imports its versions."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from coder_k8s.api import CONTROL_PLANE, TEMPLATE, CoderTemplate
from coder_k8s.controllers.labels import PAUSED
from coder_k8s.controllers.template.identity import MESSAGE
from coder_k8s.dev.coderd_server.templates import Version
from tests.support.crash_scenarios import CrashScenario, Event, State
from tests.support.templates import NAME, PLANE, TemplateNamespace, inline

BROKEN = "exit status 1"
FOREIGN = "foreign"
HISTORY = 3


class TemplateCrashScenario(CrashScenario):
    """One template, beside one of another owner."""

    place: TemplateNamespace

    def __init__(self, place: TemplateNamespace) -> None:
        super().__init__(place, place.routes)
        self._number = 0
        self._broken = False
        self.foreign = place.coderd.state.templates.add_template(FOREIGN)
        self._foreign_versions = set(place.coderd.state.templates.versions)

    async def prepare(self) -> None:
        """Create the template; an operator that is a process does not reconcile the control plane."""
        await self.place.set_annotations(CONTROL_PLANE, PLANE, {PAUSED: "true"})
        await self.take(TemplateCrashScenario.make)

    async def make(self) -> None:
        await self.place.make(deletionPolicy="Delete", history=HISTORY, source=self.content())

    async def delete(self) -> None:
        await self.place.delete(TEMPLATE, NAME)

    def content(self) -> dict[str, Any]:
        """Files that no version has yet, after the time that Coder's limit of uploads needs."""
        self.place.clock.advance(minutes=1)
        self._number += 1
        return inline(f"# {self._number}")

    async def change_content(self) -> None:
        await self.place.change(source=self.content())

    async def break_content(self) -> None:
        self._broken = True
        await self.place.change(source=self.content())

    async def repair_content(self) -> None:
        self._broken = False
        await self.place.change(source=self.content())

    async def roll_back(self) -> None:
        """Return to the content of the first version of this template."""
        await self.place.change(source=inline("# 1"))

    async def subject(self) -> CoderTemplate | None:
        found: CoderTemplate | None = await self.place.find(TEMPLATE, NAME)
        return found

    async def state(self) -> State:
        template = await self.subject()
        return {
            "children": set(),
            "conditions": await self.place.conditions() if template else {},
            "finalizers": template.metadata.finalizers if template else None,
            "status": self._recorded(template) if template else None,
            "templates": self._templates(),
            "duplicates": self._duplicates(),
            "surplus": self._surplus(),
            "foreign": self._foreign(),
        }

    async def sync(self) -> bool:
        """Complete all imports."""
        queue = self.place.coderd.state.queue
        pending = [job for job in queue.jobs if job.status == "pending"]
        for job in pending:
            self.place.clock.advance(seconds=1)  # versions are ordered by time
            queue.finish_job(job.id, BROKEN if self._broken else "")
        return bool(pending)

    def advance_clock(self) -> None:
        self.place.clock.advance(seconds=121)

    def _recorded(self, template: CoderTemplate) -> tuple[object, ...]:
        status, made = template.status, self.place.coderd.state.templates
        active, source = status.active_version, status.source
        exists = status.template_id in made.templates and not made.templates[status.template_id].deleted
        current = active is not None and source is not None and active.digest == source.digest
        promoted = active is not None and active.id == status.promoted_version
        return exists, current, promoted, status.importing is None, status.failed is None

    def _templates(self) -> list[tuple[object, ...]]:
        """Every template, and whether its active version is imported."""
        made, queue = self.place.coderd.state.templates, self.place.coderd.state.queue
        return [
            (each.name, each.settings["display_name"], queue.job(made.versions[each.active].job).status)
            for each in made.templates.values()
            if not each.deleted
        ]

    def _own(self) -> list[Version]:
        versions = self.place.coderd.state.templates.versions.values()
        return [each for each in versions if MESSAGE.fullmatch(each.message)]

    def _duplicates(self) -> list[str]:
        """Digests that more than one version has."""
        digests = Counter(each.message.partition(", revision ")[0] for each in self._own())
        return [digest for digest, number in digests.items() if number > 1]

    def _surplus(self) -> int:
        """How many versions should be archived."""
        templates = self.place.coderd.state.templates.templates
        alive = {each.id: each.active for each in templates.values() if not each.deleted}
        kept = [each for each in self._own() if each.template in alive and not each.archived]
        return max(0, len([each for each in kept if each.id not in alive.values()]) - HISTORY)

    def _foreign(self) -> tuple[object, ...]:
        made = self.place.coderd.state.templates
        found = made.templates[self.foreign]
        kept = [each for each in made.versions.values() if each.id in self._foreign_versions]
        return found.deleted, found.active, found.updated_at, [(each.template, each.archived) for each in kept]


def change(**spec: Any) -> Callable[[TemplateCrashScenario], Awaitable[None]]:
    return lambda scenario: scenario.place.change(NAME, **spec)


EVENTS = {
    "life": Event(TemplateCrashScenario.delete, TemplateCrashScenario.make),
    "content": Event(TemplateCrashScenario.change_content, TemplateCrashScenario.change_content),
    "rollback": Event(TemplateCrashScenario.change_content, TemplateCrashScenario.roll_back),
    "failure": Event(TemplateCrashScenario.break_content, TemplateCrashScenario.repair_content),
    "settings": Event(change(settings={"displayName": "Go"}), change(settings={"displayName": "Golang"})),
}
