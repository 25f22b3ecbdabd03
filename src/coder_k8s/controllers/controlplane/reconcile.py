"""The steps that bring a CoderControlPlane to its desired state, in order."""

from functools import partial

from msgspec.structs import replace

from coder_k8s.api import CoderControlPlane, ControlPlaneCondition
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.controllers.children import controlled_by
from coder_k8s.controllers.cleanup import CONTROL_PLANE_FINALIZER
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.deployments import typed
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.pods import failing
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.rejections import as_condition
from coder_k8s.controllers.report import StatusReport
from coder_k8s.controllers.rollout import Rollout, report_counts, rollout
from coder_k8s.controllers.urls import access_url, status_url
from coder_k8s.controllers.workspace_rbac import WorkspaceRBAC
from coder_k8s.controllers.workspace_roles import FINALIZER as RBAC_FINALIZER
from coder_k8s.kube.kinds import DEPLOYMENT, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Manifest, Unstructured

from . import sources
from .coderd import CoderdSteps
from .deletion import Deletion
from .deployment import ACCESS_URL, CONTAINER, PodInputs, checksum_in, defines, deployment, has_variable
from .exposure import Exposure
from .objects import NAME, exposed_url, owns_account, service, service_account, service_account_name
from .rollout import judge, judge_suspended
from .updates.outcomes import PodPlan
from .updates.updater import Updater, accepted_patch, hold_patch, is_image_pending, is_suspended, strategy_patch


class ControlPlaneSteps(Steps[CoderControlPlane, ControlPlaneStatus]):
    """Brings one CoderControlPlane at a time to its desired state."""

    conditions = frozenset(ControlPlaneCondition)

    def __init__(
        self,
        context: Context[CoderControlPlane],
        environment: sources.Sources,
        rbac: WorkspaceRBAC[CoderControlPlane],
        coderd: CoderdSteps,
        deletion: Deletion,
        updater: Updater,
    ) -> None:
        self._context = context
        self._children = context.children
        self._sources = environment
        self._rbac = rbac
        self._exposure = Exposure(context)
        self._coderd = coderd
        self._deletion = deletion
        self._updater = updater
        self.finalize = {CONTROL_PLANE_FINALIZER: deletion.clean_up, RBAC_FINALIZER: rbac.clean_up}

    async def steps(self, plane: CoderControlPlane, report: StatusReport[ControlPlaneStatus]) -> CoderControlPlane:
        environment = await self._sources.environment(plane)
        plane = await self._add_finalizers(plane, report)  # before the first Role in another namespace
        await self._ensure_service_account(plane, report)
        await self._rbac.ensure(plane, report)
        plane, checksum, live = await self._deploy(plane, environment, report)
        backend = await self._apply_service(plane, report)
        await as_condition(self._exposure.ensure(plane, backend, report), report, ControlPlaneCondition.EXPOSED)
        found = self._observe_rollout(plane, live, environment, report)
        if found.complete:  # pods of the last rollout need their account until they are gone
            await self._children.prune(SERVICE_ACCOUNT, plane, keep=[service_account_name(plane)])
        if not is_image_pending(plane):
            report.status.image = found.running_image or plane.status.image
        owned = controlled_by(plane, backend) is not None
        # Last, because coderd may be slow or unavailable.
        await self._coderd.ensure(plane, live is not None and owned, found, report)

        report.status.url = status_url(plane) if owned else plane.status.url
        report.status.access_url = user_url(plane, environment)
        report.status.config_checksum = checksum
        return plane

    def needs(self, finalizer: str, plane: CoderControlPlane) -> bool:
        if finalizer == CONTROL_PLANE_FINALIZER:
            return self._deletion.is_needed(plane)
        return self._rbac.needs_finalizer(plane)

    async def forget(self, key: Key) -> None:
        self._sources.forget(key)
        self._coderd.forget(key)
        self._updater.forget(key)
        await self._rbac.forget(key)

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
    ) -> tuple[CoderControlPlane, str, Unstructured | None]:
        """Apply the Deployment, as far as an update permits.

        Returns the checksum of its environment to record, and the live Deployment.
        """
        known = await self._children.fetch(DEPLOYMENT, plane.key, expected=bool(plane.status.observed_generation))
        live = await self._updater.seen(plane, controlled_by(plane, known))
        template = live.manifest["spec"]["template"] if live else {}
        annotation = checksum_in(template)
        checksum = sources.judge(plane.status.config_checksum, environment, annotation)
        inputs = PodInputs(_injects_access_url(plane, environment, template), checksum.annotation, template)
        plane, plan = await self._updater.advance(plane, live, inputs, report)
        if plan is not None and plan.follows_sources:
            checksum = sources.judge_held(plane.status.config_checksum, environment, annotation)
            inputs = inputs._replace(checksum=checksum.annotation)
        applied = await as_condition(self._apply_deployment(plane, live, plan, inputs), report)
        if applied is None:
            return plane, plane.status.config_checksum, await self._keep_template(plane, live, plan, report)
        recorded = checksum.recorded if _has_sources(applied, plan, inputs.checksum) else plane.status.config_checksum
        return plane, recorded, applied

    async def _apply_deployment(
        self, plane: CoderControlPlane, live: Unstructured | None, plan: PodPlan | None, inputs: PodInputs
    ) -> Unstructured:
        """Apply what the spec wants, or what the current step of an update wants."""
        if plan is None:
            return await self._updater.images.apply(plane, deployment(plane, inputs))
        if live is not None and not plan.image:
            patch = hold_patch(plan, plane, live, inputs.checksum)
            return self._updater.images.view(await self._children.merge(DEPLOYMENT, live, patch)) if patch else live
        if live is not None and (strategy := strategy_patch(plan, live)):
            await self._children.merge(DEPLOYMENT, live, {"spec": strategy})
        image = plan.image or (plane.status.update.from_image if plane.status.update else "")
        replicas = plane.spec.replicas if plan.replicas is None else plan.replicas
        wanted = replace(plane, spec=replace(plane.spec, image=image, replicas=replicas))
        known = typed(live) if live else None
        if known is None or (known.image(CONTAINER), known.spec.replicas) != (image, replicas):
            await self._children.confirm(plane)  # the step of an outdated cache may be over
        return await self._updater.images.apply(plane, deployment(wanted, inputs, recreate=plan.recreate))

    async def _keep_template(
        self,
        plane: CoderControlPlane,
        live: Unstructured | None,
        plan: PodPlan | None,
        report: StatusReport[ControlPlaneStatus],
    ) -> Unstructured | None:
        """Continue an update with the pod template that was accepted last; returns the live Deployment."""
        if live is None or plan is None or not plan.image:
            return live
        if not (patch := accepted_patch(plan, plane, live)):
            return live
        changed = await as_condition(self._children.merge(DEPLOYMENT, live, patch), report)
        return self._updater.images.view(changed) if changed else live

    def _observe_rollout(
        self,
        plane: CoderControlPlane,
        live: Unstructured | None,
        environment: sources.Environment,
        report: StatusReport[ControlPlaneStatus],
    ) -> Rollout:
        found, own = rollout(live, plane.spec.replicas, CONTAINER), labels(NAME, plane)
        pods = self._children.pods(NAME, plane)
        if is_suspended(plane):
            judge_suspended(found, report)
        else:
            judge(found, report, environment.missing, failing(pods))
        report_counts(found, own, report)
        report.scaled_to_zero = found.wanted == plane.spec.replicas == 0
        return found

    async def _add_finalizers(
        self, plane: CoderControlPlane, report: StatusReport[ControlPlaneStatus]
    ) -> CoderControlPlane:
        """Add the finalizers that the object needs. Steps that need a finalizer that is rejected are skipped."""
        plane = await self._rbac.add_finalizer(plane, report)
        if self._deletion.is_needed(plane):
            plane = await as_condition(self._context.finalizers.add(plane, CONTROL_PLANE_FINALIZER), report) or plane
        return plane


def user_url(plane: CoderControlPlane, environment: sources.Environment) -> str:
    """The URL that users open.

    | `CODER_ACCESS_URL` of the spec        | `expose` | URL                     |
    |---------------------------------------|----------|-------------------------|
    | in `extraEnv` or a ConfigMap          | any      | this value              |
    | perhaps in a source that is missing   | any      | the last known          |
    | in a Secret, or not set               | set      | that of the host        |
    | in a Secret                           | not set  | not known               |
    | not set, the operator sets it         | not set  | that inside the cluster |
    | not set, nor by the operator          | not set  | not known               |
    """
    if environment.access_url:
        return environment.access_url
    if environment.may_define_access_url and plane.status.access_url:
        return plane.status.access_url
    if known := exposed_url(plane):
        return known
    return access_url(plane) if _injects_access_url(plane, environment, {}) else ""


def _has_sources(applied: Unstructured, plan: PodPlan | None, checksum: str) -> bool:
    """Whether the Deployment has the current content of its sources. While an update holds it, it may not."""
    if plan is None or plan.image:
        return True
    return plan.follows_sources and checksum_in(applied.manifest["spec"]["template"]) == checksum


def _injects_access_url(plane: CoderControlPlane, environment: sources.Environment, template: Manifest) -> bool:
    """Whether the operator sets the access URL. While a source is missing, this does not change."""
    if not plane.spec.env_use_cluster_access_url or defines(plane, ACCESS_URL) or environment.defines_access_url:
        return False
    if environment.missing and template:
        return has_variable(template, ACCESS_URL)
    return True
