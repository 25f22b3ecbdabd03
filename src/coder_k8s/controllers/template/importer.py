"""Takes the steps that `versions` decides on: imports and promotes versions, and creates and adopts templates."""

from collections.abc import Mapping
from typing import NamedTuple

from coder_k8s.api import events
from coder_k8s.api.reasons.template import TemplateCondition
from coder_k8s.api.template import TEMPLATE, CoderTemplate
from coder_k8s.coderd import errors
from coder_k8s.coderd.templates import NewVersion, log_tail
from coder_k8s.controllers.cleanup import TEMPLATE_FINALIZER
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.labels import ADOPT, PROMOTE, adopts
from coder_k8s.kube.conditions import find
from coder_k8s.kube.objects import Key

from .access import FEATURE as ACCESS
from .access import hides_from_everyone
from .applier import entitled_to
from .claims import other_claim
from .contents import ContentCheck
from .identity import has_secrets, message_of, own_version, template_name, version_prefix
from .metrics import TemplateMetrics
from .outcomes import NotApplied
from .settings import creation
from .sources import SourceReader, Summary
from .versions import (
    Absent,
    Adopt,
    Create,
    Fail,
    Hold,
    Import,
    Keep,
    NameConflict,
    Promote,
    Recorded,
    Step,
    Version,
    Wanted,
    next_step,
    outdated,
)
from .views import Target, View, ViewReader

STEPS = 8
"""More steps than any state needs."""
NAMES = 20
"""Names of versions that are tried if others have them."""
LOG_LIMIT = 700
"""Characters of the log in an event."""
DONE: Mapping[type, str] = {
    Import: "it created a version",
    Create: "it created the template",
    Promote: "it made a version active",
}
WRITES = (Adopt, Import, Create, Promote, Absent, NameConflict)
"""Steps that need the current state of coderd."""


class UploadLimited(Exception):
    """The operator uploads no more archives for now."""


class Result(NamedTuple):
    """The last step, what coderd has, and which version was made active last."""

    template: CoderTemplate
    step: Step
    view: View
    promoted: str


class Importer:
    """Keeps the version of a template in coderd."""

    def __init__(self, context: Context[CoderTemplate], sources: SourceReader, metrics: TemplateMetrics) -> None:
        self._queries = context.runtime.queries
        self._finalizers = context.finalizers
        self._recorder = context.recorder
        self._now = context.now
        self._objects = context.objects
        self._contents = ContentCheck(sources)
        self._named: dict[Key, str] = {}
        """The version that the annotation of a template named when all its versions were read."""
        self._changed: set[Key] = set()
        """Templates whose spec changed, until a reconcile succeeds; the status of an error has the new generation."""
        self._metrics = metrics
        self.views = ViewReader(context.runtime.queries)

    def forget(self, key: Key) -> None:
        self._contents.forget(key)
        self._named.pop(key, None)
        self._changed.discard(key)

    async def run(self, template: CoderTemplate, target: Target, source: Summary) -> Result:
        """Take steps until none is left, unless the template is that of another object."""
        if claimed_by := other_claim(template, self._objects):
            return Result(template, NameConflict(claimed_by), View(None, owned=False), "")
        if template.status.observed_generation != template.metadata.generation:
            self._changed.add(template.key)
        result = await self._take_steps(template, target, source, _recorded(template, target))
        self._changed.discard(template.key)
        if result.view.complete:
            self._named[template.key] = wanted_by(template, source.digest).named
        return result

    async def _take_steps(self, template: CoderTemplate, target: Target, source: Summary, recorded: Recorded) -> Result:
        wanted, taken = wanted_by(template, source.digest), set[type]()
        view = await self.views.known(template, target, source.digest)
        for _ in range(STEPS):
            step = next_step(wanted, recorded, view.found, view.versions, self._now(), served=view.served)
            if not view.complete and self._needs_all_versions(template, wanted, step, view):
                view = await self.views.current(template, target, source.digest)
                continue
            if (other := await self._relabeled(template, target, source, step)) is not None:
                view = view._replace(versions=[each for each in view.versions if each != other])
                continue
            _check_repeated(step, taken)
            match step:
                case Import(number):
                    template = await self._hold(template)
                    await self._import(template, target, source, view, number)
                case Create(version):
                    template = await self._hold(template)
                    recorded = await self._create(template, target, version)
                case Promote(version) if view.template is not None:
                    recorded = Recorded(view.template.id, version.id)
                    await self._promote(template, target, view.template.id, step)
                case Adopt() if view.template is not None:
                    template = await self._hold(template)
                    recorded = Recorded(view.template.id)
                    note = f"Adopted template {view.template.name} because of the annotation {ADOPT}"
                    self._recorder.record(TEMPLATE, template, events.TEMPLATE_ADOPTED, note)
                    view = view._replace(owned=True)
                    continue
                case _:
                    await self._finish(template, target, step, view)
                    promoted = step.version.id if isinstance(step, Keep) else recorded.promoted
                    return Result(template, step, view, promoted)
            self._queries.forget_templates(target.coderd, target.organization)
            view = await self.views.current(template, target, source.digest)
            view = view._replace(owned=view.owned or (view.found is not None and view.found.id == recorded.template))
        raise errors.Unavailable("the template changes faster than it can be reconciled")

    def _needs_all_versions(self, template: CoderTemplate, wanted: Wanted, step: Step, view: View) -> bool:
        """Whether the versions that the status has are not enough. A version that the annotation names is read once."""
        if template.key in self._changed or isinstance(step, WRITES) or is_news(template, step):
            return True
        known = {"", self._named.get(template.key), *(each.name for each in view.versions)}
        return view.found is not None and wanted.named not in known

    async def _relabeled(self, template: CoderTemplate, target: Target, source: Summary, step: Step) -> Version | None:
        """The version of a step, if it has another content than its message claims."""
        if not isinstance(step, Create | Promote | Keep | Fail):
            return None
        version, active = step.version, template.status.active_version
        recorded = active is not None and (active.id, active.digest) == (version.id, version.digest)
        if version.digest != source.digest or not version.file or recorded:
            return None
        return None if await self._contents.has_content(template, target, source, version) else version

    async def _hold(self, template: CoderTemplate) -> CoderTemplate:
        """Add the finalizer, before there is something that it has to delete."""
        if template.spec.deletion_policy != "Delete":
            return template
        return await self._finalizers.add(template, TEMPLATE_FINALIZER)

    async def _import(self, template: CoderTemplate, target: Target, source: Summary, view: View, number: int) -> None:
        """Upload the files and create a version."""
        if not self._queries.admits_upload(target.coderd):
            raise UploadLimited
        content = await self._contents.content(template, source)
        file = await target.coderd.upload(content.archive)
        self._contents.keep(template, source, file)
        message = message_of(template, source.digest, source.revision)
        new = NewVersion("", message, file, content.tags, content.variables, view.template.id if view.template else "")
        for each in range(number, number + NAMES):
            try:
                made = await target.coderd.create_version(
                    target.organization, new._replace(name=f"{version_prefix(source.digest)}{each}")
                )
            except errors.Conflict:
                continue  # a version of another owner has the name
            if own_version(template, made, target.user) is None or made.job.file_id not in ("", file):
                raise NotApplied(f"version {made.name} has another message, author or file than requested")
            note = f"Created version {made.name} of template {template_name(template)} from {source.revision}"
            self._recorder.record(TEMPLATE, template, events.VERSION_CREATED, note)
            return
        raise errors.Unavailable("other versions have all names for this version")

    async def _create(self, template: CoderTemplate, target: Target, version: Version) -> Recorded:
        """Create the template, now that its first version is imported."""
        name = template_name(template)
        settings = creation(template.spec.settings, ())
        if hides_from_everyone(template.spec.access) and ACCESS in await entitled_to(self._queries, template, target):
            settings["disable_everyone_group_access"] = True
        made = await target.coderd.create_template(target.organization, name, version.id, settings)
        self._count_success(template, version)
        note = f"Created template {name} with version {version.name}"
        self._recorder.record(TEMPLATE, template, events.TEMPLATE_CREATED, note)
        return Recorded(made.id, version.id)

    async def _promote(self, template: CoderTemplate, target: Target, template_id: str, step: Promote) -> None:
        version = step.version
        if version.archived:
            await target.coderd.set_archived(version.id, archived=False)
        await target.coderd.promote(template_id, version.id)
        if step.reverts:
            note = f"Made version {version.name} active again; someone had made another version active in Coder"
            self._recorder.record(TEMPLATE, template, events.DRIFT_REVERTED, note)
            self._metrics.count_revert(template.key)
            return
        self._count_success(template, version)
        note = f"Made version {version.name} the active version of template {template_name(template)}"
        self._recorder.record(TEMPLATE, template, events.VERSION_PROMOTED, note)

    def _count_success(self, template: CoderTemplate, version: Version) -> None:
        """Count an import, unless it is a return to an earlier version."""
        if template.status.importing is not None and template.status.importing.id == version.id:
            self._metrics.count_import(template.key, "succeeded")

    async def _finish(self, template: CoderTemplate, target: Target, step: Step, view: View) -> None:
        """Report a failure once, and archive old versions after a change or a failure."""
        status = template.status
        if isinstance(step, Fail) and is_news(template, step):
            self._metrics.count_import(template.key, "failed")
            lines = [] if has_secrets(template) else await target.coderd.version_logs(step.version.id)
            note = (
                f"The import of version {step.version.name} failed: {log_tail(lines, LOG_LIMIT) or step.version.error}"
            )
            self._recorder.record(TEMPLATE, template, events.VERSION_IMPORT_FAILED, note)
        if isinstance(step, Keep | Hold | Fail) and view.complete and view.found is not None:
            await self._archive(template, target, view, {view.found.active, status.promoted_version, step.version.id})

    async def _archive(self, template: CoderTemplate, target: Target, view: View, used: set[str]) -> None:
        """Archive old versions of this object; coderd refuses to archive one that a workspace uses."""
        archived = []
        for each in outdated(view.versions, template.spec.history, used):
            try:
                await target.coderd.set_archived(each.id, archived=True)
            except (errors.Invalid, errors.Unavailable):
                continue
            archived.append(each.name)
        if archived:
            noun = "version" if len(archived) == 1 else "versions"
            names = ", ".join(archived)
            note = f"Archived {len(archived)} old {noun} of template {template_name(template)}: {names}"
            self._recorder.record(TEMPLATE, template, events.VERSIONS_ARCHIVED, note)


def is_news(template: CoderTemplate, step: Step) -> bool:
    """Whether the status does not have the result of the step yet, so that what follows from it is still to be done."""
    status = template.status
    if isinstance(step, Keep):
        return step.version.id != status.promoted_version
    if isinstance(step, Hold):
        imported = find(status.conditions, TemplateCondition.IMPORTED)
        return imported is None or not imported.is_true
    return isinstance(step, Fail) and (status.failed is None or status.failed.id != step.version.id)


def _check_repeated(step: Step, taken: set[type]) -> None:
    """Raise `NotApplied` if a step that changes coderd is needed again after it was taken."""
    if isinstance(step, Import | Create | Promote):
        if type(step) in taken:
            raise NotApplied(f"{DONE[type(step)]}, and it does not return that")
        taken.add(type(step))


def _recorded(template: CoderTemplate, target: Target) -> Recorded:
    """What the status has, unless that is about another database."""
    status = template.status
    if status.organization_id not in ("", target.organization):
        return Recorded()
    return Recorded(status.template_id, status.promoted_version)


def wanted_by(template: CoderTemplate, digest: str) -> Wanted:
    """What the spec and the annotations ask for."""
    spec = template.spec
    return Wanted(
        digest,
        manual=spec.promotion.policy == "Manual",
        promote=template.metadata.annotations.get(PROMOTE, ""),
        revert=spec.drift == "Revert",
        observe=spec.management_policy == "Observe",
        adopt=adopts(template),
    )
