"""The steps of a control plane that send requests to coderd."""

from coder_k8s.api import CoderControlPlane, CoderProvisioner, ControlPlaneCondition, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.controllers.cleanup import CONTROL_PLANE_FINALIZER
from coder_k8s.controllers.report import StatusReport
from coder_k8s.controllers.rollout import Rollout
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.objects import Key

from .access import OperatorAccess
from .deletion import Deletion
from .entitlements import EntitlementWatcher
from .health.watcher import HealthWatcher, Surroundings
from .jobs.watcher import JobsWatcher
from .license import LicenseApplier
from .tokens import generates_token
from .updates.updater import is_suspended


class CoderdSteps:
    """Operator access, and what needs its token."""

    def __init__(
        self,
        access: OperatorAccess,
        license: LicenseApplier,
        entitlements: EntitlementWatcher,
        health: HealthWatcher,
        jobs: JobsWatcher,
        deletion: Deletion,
        provisioners: Informer[CoderProvisioner],
    ) -> None:
        self._access = access
        self._license = license
        self._entitlements = entitlements
        self._health = health
        self._jobs = jobs
        self._deletion = deletion
        self._provisioners = provisioners
        self._by_plane = provisioners.index(_plane)

    def forget(self, key: Key) -> None:
        for each in (self._access, self._license, self._entitlements, self._health, self._jobs):
            each.forget(key)

    async def ensure(
        self, plane: CoderControlPlane, owned: bool, found: Rollout, report: StatusReport[ControlPlaneStatus]
    ) -> None:
        """Reconcile what needs coderd.

        `owned`: whether this object controls the Deployment and the Service.
        """
        serving = found.ready > 0
        if is_suspended(plane):
            self._access.invalidate(plane.key)  # the next version is asked again
            message = "Coder is being upgraded; the status is the last known one"
            await self._retain(plane, reasons.UPGRADING, message, report)
            return
        if report.scaled_to_zero:  # the last pods may not respond any more
            message = "Coder is scaled to zero; the status is the last known one"
            await self._retain(plane, reasons.SCALED_TO_ZERO, message, report)
            return
        if generates_token(plane) and not self._has_finalizer(plane):
            message = f"Finalizer {CONTROL_PLANE_FINALIZER} cannot be added; the status is the last known one"
            await self._retain(plane, reasons.FORBIDDEN, message, report)
            return
        coderd = None
        if plane.spec.operator_access.disabled or owned:
            coderd = await self._access.ensure(plane, serving, report)
        else:  # behind a Service of another owner is another coderd
            waiting = f"Waiting for a Deployment and a Service {plane.metadata.name} that belong to this object"
            report.add(ControlPlaneCondition.OPERATOR_ACCESS_READY, None, reasons.PENDING, waiting)
            report.status.operator_access_ready = False
        await self._license.ensure(plane, coderd, serving, report)
        await self._entitlements.check(plane, coderd, serving, report)
        surroundings = self._surroundings(plane, found)
        await self._health.check(plane, coderd, surroundings, report)
        await self._jobs.check(plane, coderd, surroundings, report)
        if report.has_reason(
            reasons.FORBIDDEN, ControlPlaneCondition.LICENSE_APPLIED, ControlPlaneCondition.ENTITLEMENTS_KNOWN
        ) or report.has_reason(reasons.TOKEN_REJECTED, ControlPlaneCondition.HEALTHY):
            self._access.invalidate(plane.key)

    async def _retain(
        self, plane: CoderControlPlane, reason: reasons.Reason, message: str, report: StatusReport[ControlPlaneStatus]
    ) -> None:
        """Keep the conditions that need coderd, which is not queried."""
        if plane.spec.operator_access.disabled:  # this needs only the database
            await self._access.ensure(plane, False, report)
        else:
            report.retain(ControlPlaneCondition.OPERATOR_ACCESS_READY, reason, message)
        if plane.spec.license_secret_ref is None:
            await self._license.ensure(plane, None, False, report)
        else:
            report.retain(ControlPlaneCondition.LICENSE_APPLIED, reason, message)
        report.retain(ControlPlaneCondition.ENTITLEMENTS_KNOWN, reason, message)
        self._health.retain(plane, reason, message, report)
        self._jobs.retain(plane, reason, message, report)

    def _surroundings(self, plane: CoderControlPlane, found: Rollout) -> Surroundings:
        known = (self._provisioners.get(key) for key in sorted(self._by_plane[plane.key]))
        provisioners = [each for each in known if each is not None]
        return Surroundings(found.ready, is_upgrading(plane.status.image, found), provisioners)

    def _has_finalizer(self, plane: CoderControlPlane) -> bool:
        return CONTROL_PLANE_FINALIZER in plane.metadata.finalizers or not self._deletion.is_needed(plane)


def _plane(provisioner: CoderProvisioner) -> list[Key]:
    return [Key(provisioner.metadata.namespace, provisioner.spec.control_plane_ref.name)]


def is_upgrading(image: str, found: Rollout) -> bool:
    """Whether pods with another image than that of the last complete rollout start.

    If they do not start in time, Coder is checked again: the old pods may serve for long.
    """
    return bool(image) and not found.complete and not found.stuck and found.image != image
