"""Deletes the template in coderd when its object is deleted, if the spec asks for that."""

from coder_k8s.api import events
from coder_k8s.api.template import TEMPLATE, CoderTemplate
from coder_k8s.coderd import errors
from coder_k8s.controllers.cleanup import RETRY
from coder_k8s.controllers.context import Context
from coder_k8s.kube.objects import Key

from .claims import other_claim
from .identity import template_name
from .resolver import NotAvailable, TargetResolver
from .views import Target, ViewReader

WORKSPACES_RETRY = 15.0
"""Seconds between two attempts while workspaces use the template."""


class Deletion:
    """Deletes templates, within a limited time."""

    def __init__(self, context: Context[CoderTemplate], resolver: TargetResolver, views: ViewReader) -> None:
        self._recorder = context.recorder
        self._objects = context.objects
        self._cleanup = context.cleanup
        self._resolver = resolver
        self._views = views

    async def clean_up(self, template: CoderTemplate) -> float | None:
        """Delete the template; seconds until the next attempt, or `None` when it is done or given up."""
        if template.spec.deletion_policy != "Delete" or template.spec.management_policy == "Observe":
            return None
        plane = self._resolver.find(Key(template.metadata.namespace, template.spec.control_plane_ref.name))
        if plane is None or self._resolver.has_lost_access(plane):
            self._give_up(template, "there is no operator access to its control plane")
            return None
        try:
            workspaces = await self._delete(template, await self._resolver.target(template, plane))
        except (errors.CoderdError, NotAvailable) as error:
            return await self._retry(template, str(error), RETRY)
        if workspaces:
            used = "1 workspace uses it" if workspaces == 1 else f"{workspaces} workspaces use it"
            noun = "workspace" if workspaces == 1 else "workspaces"
            return await self._retry(template, f"{used}; delete the {noun} first", WORKSPACES_RETRY)
        return None

    async def _delete(self, template: CoderTemplate, target: Target) -> int:
        """Delete the template if it belongs to this object; returns the number of workspaces that prevent that."""
        if other_claim(template, self._objects):
            return 0
        view = await self._views.current(template, target, "")
        if view.template is None and template.status.template_id:
            self._report_unseen(template)
        if view.template is None or not view.owned:
            return 0
        found = view.template
        try:
            await target.coderd.delete_template(found.id)
        except errors.Invalid:
            return max(1, await target.coderd.count_workspaces(target.organization, found.name))
        self._recorder.record(TEMPLATE, template, events.TEMPLATE_DELETED, f"Deleted template {found.name} in Coder")
        return 0

    def _report_unseen(self, template: CoderTemplate) -> None:
        """coderd responds the same for a template that is gone and for one that the operator's user cannot read."""
        name = template_name(template)
        note = f"Template {name} was not deleted: Coder has none of that name, or the operator's user cannot read it"
        self._recorder.record(TEMPLATE, template, events.TEMPLATE_LEAKED, note)

    async def _retry(self, template: CoderTemplate, cause: str, seconds: float) -> float | None:
        if not await self._cleanup.may_wait(template):
            self._give_up(template, cause)
            return None
        note = f"Template {template_name(template)} is not deleted yet: {cause}"
        self._recorder.record(TEMPLATE, template, events.TEMPLATE_NOT_DELETED, note)
        return seconds

    def _give_up(self, template: CoderTemplate, cause: str) -> None:
        note = f"Template {template_name(template)} stays in Coder: {cause}"
        self._recorder.record(TEMPLATE, template, events.TEMPLATE_LEAKED, note)
