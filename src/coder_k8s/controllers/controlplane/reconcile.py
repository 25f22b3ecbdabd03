"""The steps that bring a CoderControlPlane to its desired state, in order."""

from functools import partial

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, ControlPlaneCondition, events, reasons
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.controllers.children import controlled_by
from coder_k8s.controllers.cleanup import BOUND, CONTROL_PLANE_FINALIZER
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.pods import failing
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.rejections import as_condition
from coder_k8s.controllers.report import StatusReport
from coder_k8s.controllers.rollout import Rollout, report_counts, rollout
from coder_k8s.controllers.urls import access_url, status_url
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Manifest, Unstructured

from . import sources
from .access import OperatorAccess
from .deletion import Deletion
from .deployment import ACCESS_URL, CHECKSUM, CONTAINER, PodInputs, defines, deployment, has_variable
from .entitlements import EntitlementWatcher
from .exposure import Exposure
from .license import LicenseApplier
from .objects import NAME, exposed_url, owns_account, service, service_account, service_account_name
from .rbac import FINALIZER, WorkspaceRBAC
from .rollout import judge
from .tokens import generates_token


class ControlPlaneSteps(Steps[CoderControlPlane, ControlPlaneStatus]):
    """Brings one CoderControlPlane at a time to its desired state."""

    conditions = frozenset(ControlPlaneCondition)

    def __init__(
        self,
        context: Context[CoderControlPlane],
        environment: sources.Sources,
        rbac: WorkspaceRBAC,
        access: OperatorAccess,
        license: LicenseApplier,
        entitlements: EntitlementWatcher,
        deletion: Deletion,
    ) -> None:
        self._context = context
        self._children = context.children
        self._sources = environment
        self._rbac = rbac
        self._exposure = Exposure(context)
        self._access = access
        self._license = license
        self._entitlements = entitlements
        self._deletion = deletion
        self.finalize = {CONTROL_PLANE_FINALIZER: deletion.clean_up, FINALIZER: self._remove_roles}

    async def steps(self, plane: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> CoderControlPlane:
        environment = await self._sources.environment(plane)
        plane = await self._add_finalizers(plane, report)  # before the first Role in another namespace
        await self._ensure_service_account(plane, report)
        await self._rbac.ensure(plane, report)
        checksum, live = await self._deploy(plane, environment, report)
        backend = await self._apply_service(plane, report)
        await as_condition(self._exposure.ensure(plane, backend, report), report, ControlPlaneCondition.EXPOSED)
        found = self._observe_rollout(plane, live, environment, report)
        if found.complete:  # pods of the last rollout need their account until they are gone
            await self._children.prune(SERVICE_ACCOUNT, plane, keep=[service_account_name(plane)])
        owned = controlled_by(plane, backend) is not None
        await self._reconcile_coderd(plane, live is not None and owned, found.ready > 0, report)

        report.status.url = status_url(plane) if owned else plane.status.url
        report.status.access_url = user_url(plane, environment)
        report.status.config_checksum = checksum
        report.status.image = found.running_image or plane.status.image
        return plane

    def needs(self, finalizer: str, plane: CoderControlPlane) -> bool:
        if finalizer == CONTROL_PLANE_FINALIZER:
            return self._deletion.is_needed(plane)
        return bool(self._rbac.allowed_elsewhere(plane) or self._rbac.elsewhere(plane.key))

    async def forget(self, key: Key) -> None:
        """Also remove Roles in other namespaces: the object may have been deleted while its finalizer was added."""
        for each in (self._sources, self._access, self._license, self._entitlements):
            each.forget(key)
        if self._rbac.elsewhere(key):
            await self._context.client.confirm(CONTROL_PLANE, key, None)
        if left := await self._rbac.remove_elsewhere(key):
            raise next(iter(left.values()))

    async def _reconcile_coderd(
        self, plane: CoderControlPlane, owned: bool, serving: bool, report: StatusReport[ControlPlaneStatus]
    ) -> None:
        """Reconcile what needs coderd. It comes last, because coderd may be slow or unavailable.

        `owned`: whether this object controls the Deployment and the Service.
        """
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
        if report.has_reason(
            reasons.FORBIDDEN, ControlPlaneCondition.LICENSE_APPLIED, ControlPlaneCondition.ENTITLEMENTS_KNOWN
        ):
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

    async def _apply_service(
        self, plane: CoderControlPlane, report: StatusReport[ControlPlaneStatus]
    ) -> Unstructured | None:
        """Apply the Service; returns the live one, which may belong to another owner."""
        await as_condition(self._children.apply(SERVICE, plane, service(plane)), report)
        return await self._children.fetch(SERVICE, plane.key, expected=True)

    async def _ensure_service_account(self, plane: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> None:
        """Apply the ServiceAccount. An existing one belongs to the user, unless the operator released it before."""
        if plane.spec.service_account.disable_create:
            for account in self._children.owned(SERVICE_ACCOUNT, plane):
                await self._children.release(SERVICE_ACCOUNT, plane, account)
            return
        desired, owned = service_account(plane), partial(owns_account, plane)
        await as_condition(self._children.apply(SERVICE_ACCOUNT, plane, desired, owned), report)

    async def _deploy(
        self, plane: CoderControlPlane, environment: sources.Environment, report: StatusReport[ControlPlaneStatus]
    ) -> tuple[str, Unstructured | None]:
        """Apply the Deployment; returns the checksum of its environment to record, and the live Deployment."""
        known = await self._children.fetch(DEPLOYMENT, plane.key, expected=bool(plane.status.observed_generation))
        live = controlled_by(plane, known)
        template = live.manifest["spec"]["template"] if live else {}
        annotation = template.get("metadata", {}).get("annotations", {}).get(CHECKSUM, "")
        checksum = sources.judge(plane.status.config_checksum, environment, annotation)
        inputs = PodInputs(_injects_access_url(plane, environment, template), checksum.annotation)
        applied = await as_condition(self._children.apply(DEPLOYMENT, plane, deployment(plane, inputs)), report)
        return (plane.status.config_checksum, live) if applied is None else (checksum.recorded, applied)

    def _observe_rollout(
        self,
        plane: CoderControlPlane,
        live: Unstructured | None,
        environment: sources.Environment,
        report: StatusReport[ControlPlaneStatus],
    ) -> Rollout:
        found, own = rollout(live, plane.spec.replicas, CONTAINER), labels(NAME, plane)
        pods = self._children.labelled(POD, own, plane.metadata.namespace)
        judge(found, report, environment.missing, failing(pods))
        report_counts(found, own, report)
        return found

    async def _add_finalizers(
        self, plane: CoderControlPlane, report: StatusReport[ControlPlaneStatus]
    ) -> CoderControlPlane:
        """Add the finalizers that the object needs. Steps that need a finalizer that is rejected are skipped."""
        wanted = {
            FINALIZER: self._rbac.allowed_elsewhere(plane),
            CONTROL_PLANE_FINALIZER: self._deletion.is_needed(plane),
        }
        for name in [name for name, needed in wanted.items() if needed]:
            plane = await as_condition(self._context.finalizers.add(plane, name), report) or plane
        return plane

    def _has_finalizer(self, plane: CoderControlPlane) -> bool:
        return CONTROL_PLANE_FINALIZER in plane.metadata.finalizers or not self._deletion.is_needed(plane)

    async def _remove_roles(self, plane: CoderControlPlane) -> None:
        """Remove Roles in other namespaces; an event names those that cannot be removed in time."""
        if left := await self._rbac.remove_elsewhere(plane.key):
            error = next(iter(left.values()))
            if self._context.cleanup.age(plane) < BOUND:
                raise error
            note = f"Could not delete {', '.join(left)}: {error}"
            self._context.recorder.record(CONTROL_PLANE, plane, events.CLEANUP_GIVEN_UP, note)


def user_url(plane: CoderControlPlane, environment: sources.Environment) -> str:
    """The URL that users open.

    | `CODER_ACCESS_URL` of the spec        | `expose` | URL                     |
    |---------------------------------------|----------|-------------------------|
    | in `extraEnv` or a ConfigMap          | any      | this value              |
    | in a Secret, or not set               | set      | that of the host        |
    | in a Secret                           | not set  | not known               |
    | not set, the operator sets it         | not set  | that inside the cluster |
    | not set, nor by the operator          | not set  | not known               |
    """
    if known := environment.access_url or exposed_url(plane):
        return known
    return access_url(plane) if _injects_access_url(plane, environment, {}) else ""


def _injects_access_url(plane: CoderControlPlane, environment: sources.Environment, template: Manifest) -> bool:
    """Whether the operator sets the access URL. While a source is missing, this does not change."""
    if not plane.spec.env_use_cluster_access_url or defines(plane, ACCESS_URL) or environment.defines_access_url:
        return False
    if environment.missing and template:
        return has_variable(template, ACCESS_URL)
    return True
