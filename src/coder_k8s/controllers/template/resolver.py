"""The coderd and the organization of a template."""

from coder_k8s.api import CoderControlPlane, reasons
from coder_k8s.api.template import CoderTemplate
from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.images import stops_provisioners
from coder_k8s.controllers.report import Outcome
from coder_k8s.controllers.resolver import CoderdResolver
from coder_k8s.kube.objects import Key

from .outcomes import IMPORTED
from .views import Target


class NotAvailable(Exception):
    """There is no coderd to query, as a condition; `paused` if that is only for now and nothing is wrong."""

    def __init__(self, outcome: Outcome, *, paused: bool = False) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome
        self.paused = paused


class TargetResolver(CoderdResolver):
    """Creates clients for the control plane of a template."""

    def __init__(self, context: Context[CoderTemplate]) -> None:
        super().__init__(context)
        self._queries = context.runtime.queries

    async def wanted(self, template: CoderTemplate) -> Target:
        """The target of a template; raise `NotAvailable` while there is none."""
        key = Key(template.metadata.namespace, template.spec.control_plane_ref.name)
        if (plane := self.get(key)) is None:
            missing = await self.why_absent(key)
            raise NotAvailable(Outcome(IMPORTED, False, reasons.CONTROL_PLANE_MISSING, missing, stalled=True))
        if (outcome := _stopped(plane)) is not None:
            raise NotAvailable(outcome, paused=True)
        return await self.target(template, plane)

    async def target(self, template: CoderTemplate, plane: CoderControlPlane) -> Target:
        """The target of a template at a control plane, which may be terminating."""
        coderd = await self.with_operator_token(plane)
        if coderd is None:
            waiting, disabled = self.waiting_for_access(plane), plane.spec.operator_access.disabled
            reason = reasons.OPERATOR_ACCESS_NOT_READY
            raise NotAvailable(Outcome(IMPORTED, False, reason, waiting, stalled=disabled))
        name = template.spec.organization_name
        try:
            organization = await self._organization(coderd, template.status.organization_id, name)
        except errors.NotFound:
            message = (
                f"Coder has no organization {name}, or the operator's user of CoderControlPlane {plane.metadata.name} "
                "cannot see it; correct organizationName, or add the user to the organization"
            )
            raise NotAvailable(
                Outcome(IMPORTED, False, reasons.ORGANIZATION_NOT_FOUND, message, stalled=True)
            ) from None
        return Target(coderd, organization, plane.metadata.name, (await self._queries.me(coderd)).id)

    async def _organization(self, coderd: Coderd, recorded: str, name: str) -> str:
        """The ID of the organization: the recorded one, unless Coder does not have it, such as a new database.

        Whether Coder has it follows from the list of its templates, which is needed anyway.
        """
        if recorded:
            try:
                await self._queries.templates_of(coderd, recorded)
            except errors.NotFound:
                pass
            else:
                return recorded
        return (await self._queries.organization(coderd, name)).id


def _stopped(plane: CoderControlPlane) -> Outcome | None:
    """Why a control plane does not answer at the moment, although nothing is wrong."""
    name = plane.metadata.name
    if stops_provisioners(plane):
        message = f"CoderControlPlane {name} is being updated; the template is reconciled afterwards"
        return Outcome(IMPORTED, None, reasons.UPGRADING, message)
    if plane.spec.replicas == 0:
        message = f"CoderControlPlane {name} is scaled to zero; the template is reconciled when it has pods"
        return Outcome(IMPORTED, None, reasons.SCALED_TO_ZERO, message)
    return None
