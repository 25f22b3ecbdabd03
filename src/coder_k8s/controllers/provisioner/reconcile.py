"""The steps that bring a CoderProvisioner to its desired state, in order."""

from collections.abc import Sequence

from coder_k8s.api import PROVISIONER, CoderControlPlane, CoderProvisioner, ProvisionerCondition, events, reasons
from coder_k8s.api.provisioner import ProvisionerStatus
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.answers import AnswerCache, Recheck
from coder_k8s.controllers.children import controlled_by
from coder_k8s.controllers.cleanup import PROVISIONER_FINALIZER as FINALIZER
from coder_k8s.controllers.cleanup import RETRY as RETRY_CLEANUP
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.explanations import Explanations
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.pods import failing
from coder_k8s.controllers.queries import INTERVAL
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.rejections import as_condition
from coder_k8s.controllers.report import Outcome, Report, StatusReport
from coder_k8s.controllers.rollout import Rollout, report_pods, rollout
from coder_k8s.controllers.workspace_rbac import WorkspaceRBAC
from coder_k8s.controllers.workspace_roles import FINALIZER as RBAC_FINALIZER
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.conditions import Finding
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Unstructured

from . import daemons, objects, records, scaling_outcomes
from .draining import Draining
from .entitlement import EntitlementGate
from .keysecret import KeySecret
from .metrics import ProvisionerMetrics
from .outcomes import DAEMON_ERRORS, ENTITLED, KEY_ERRORS, explain_error
from .resolver import KeyResolver
from .retirement import Retirement
from .rotation import KEY_READY, Rotation
from .scaling import Autoscaler, Plan
from .scaling_metrics import ScalingMetrics

CONTROL_PLANE_READY = ProvisionerCondition.CONTROL_PLANE_READY
DEPLOYMENT_READY = ProvisionerCondition.DEPLOYMENT_READY


class ProvisionerSteps(Steps[CoderProvisioner, ProvisionerStatus]):
    """Brings one CoderProvisioner at a time to its desired state."""

    conditions = frozenset(ProvisionerCondition)

    def __init__(
        self,
        context: Context[CoderProvisioner],
        rbac: WorkspaceRBAC[CoderProvisioner],
        metrics: ProvisionerMetrics,
        scaling_metrics: ScalingMetrics,
    ) -> None:
        secret = KeySecret(context.children, context.secrets)
        self._metrics = metrics
        self._context = context
        self._children = context.children
        self._rbac = rbac
        self._now = context.now
        self._resolver = KeyResolver(context)
        self._gate = EntitlementGate(context.now, context.runtime.queries)
        self._rotation = Rotation(context, secret, self._metrics)
        self._retirement = Retirement(context, secret, self._resolver)
        self._queries = context.runtime.queries
        self._autoscaler = Autoscaler(context, scaling_metrics)
        self._draining = Draining(context.children)
        backoff = Backoff(4.0, 120.0, context.runtime.rng.random)  # with jitter 2 seconds to 2 minutes
        self._rate_limits = AnswerCache[Outcome](context.now, backoff)
        self.finalize = {FINALIZER: self._delete_keys, RBAC_FINALIZER: rbac.clean_up}

    async def forget(self, key: Key) -> None:
        self._metrics.forget(key)
        self._rate_limits.forget(key)
        await self._rbac.forget(key)
        self._autoscaler.forget(key)

    def needs(self, finalizer: str, provisioner: CoderProvisioner) -> bool:
        return finalizer != RBAC_FINALIZER or self._rbac.needs_finalizer(provisioner)

    def paused(self, provisioner: CoderProvisioner) -> Sequence[Finding]:
        return () if provisioner.spec.autoscaling is None else (scaling_outcomes.PAUSED,)

    async def steps(self, provisioner: CoderProvisioner, report: StatusReport[ProvisionerStatus]) -> CoderProvisioner:
        # First: a namespace that no longer opts in waits neither for coderd nor for a control plane.
        provisioner, has_account = await self._ensure_permissions(provisioner, report)
        provisioner, coderd, deployed = await self._reconcile(provisioner, has_account, report)
        self._observe_rollout(
            provisioner, report
        )  # before the daemons: a pod that does not start explains a missing one
        if coderd is not None:
            await self._reconcile_coderd(provisioner, coderd, deployed, report)
        # What coderd was not queried for keeps its last condition.
        report.retain_conditions = report.has_reason(reasons.RATE_LIMITED, KEY_READY)
        return provisioner

    async def _ensure_permissions(
        self, provisioner: CoderProvisioner, report: StatusReport[ProvisionerStatus]
    ) -> tuple[CoderProvisioner, bool]:
        """Apply the ServiceAccount and its Roles; returns whether the ServiceAccount belongs to this object."""
        provisioner = await self._rbac.add_finalizer(provisioner, report)
        account = self._children.apply(SERVICE_ACCOUNT, provisioner, objects.service_account(provisioner))
        if await as_condition(account, report, ProvisionerCondition.WORKSPACE_RBAC_READY) is None:
            await self._rbac.withdraw(provisioner)  # nothing more is granted to the ServiceAccount of another owner
            return provisioner, False
        await self._rbac.ensure(provisioner, report)
        return provisioner, True

    async def _reconcile(
        self, provisioner: CoderProvisioner, has_account: bool, report: StatusReport[ProvisionerStatus]
    ) -> tuple[CoderProvisioner, Coderd | None, bool]:
        """Manage the key and deploy the daemons. Returns the client, if coderd may get more requests, and whether the
        Deployment was applied."""
        plane = await self._plane(provisioner, report)
        if plane is None:
            return provisioner, None, False  # there is no URL and no image for daemons
        coderd, key = None, ""
        try:
            provisioner, coderd, key = await self._manage_key(provisioner, plane, report)
        except coderd_errors.CoderdError as error:
            self._explain(provisioner, error, report, KEY_ERRORS)
        if _unusable(report):
            self._autoscaler.report_not_entitled(provisioner, report)
            return provisioner, None, False  # running daemons are not changed
        # What needs no coderd does not wait for it: the recorded key is valid until coderd rejects it.
        key = key or await self._rotation.recorded(provisioner, plane, report)
        if not (has_account and key):
            return provisioner, coderd, False
        plan = await self._autoscaler.plan(provisioner, plane, coderd, self._deployment(provisioner), report)
        return provisioner, coderd, await self._deploy(provisioner, plane, key, plan, report)

    async def _reconcile_coderd(
        self, provisioner: CoderProvisioner, coderd: Coderd, deployed: bool, report: StatusReport[ProvisionerStatus]
    ) -> None:
        """Delete old keys and observe the daemons."""
        try:
            recorded = bool(provisioner.status.provisioner_key_id)  # if not, pods use the last key that retires
            rolled_out = deployed and recorded and self._rollout(provisioner).complete
            await self._retire_keys(provisioner, rolled_out, report)
            if self._deployment(provisioner) is not None:
                await self._observe(provisioner, coderd, rolled_out, report)
        except coderd_errors.CoderdError as error:
            self._explain(provisioner, error, report, DAEMON_ERRORS)
        else:
            self._rate_limits.forget(provisioner.key)

    async def _manage_key(
        self, provisioner: CoderProvisioner, plane: CoderControlPlane, report: StatusReport[ProvisionerStatus]
    ) -> tuple[CoderProvisioner, Coderd | None, str]:
        """Manage the key in coderd. Returns the client, if coderd may get more requests, and the key."""
        if not plane.status.url:
            return provisioner, None, ""
        if (limited := self._rate_limits.get(provisioner.key, provisioner.metadata.generation)) is not None:
            report.add_outcome(limited)
            report.requeue_after(self._rate_limits.left(provisioner.key))
            return provisioner, None, ""
        coderd = await self._resolver.ensure(provisioner, plane, report)
        if coderd is None or not await self._gate.passes(provisioner, plane, coderd, report):
            return provisioner, None, ""
        # Add the finalizer before the first key is created.
        held = await as_condition(self._context.finalizers.add(provisioner, FINALIZER), report, KEY_READY)
        if held is None:
            return provisioner, None, ""
        provisioner, key = await self._rotation.ensure(held, plane, coderd, report)
        return provisioner, coderd, key

    async def _deploy(
        self,
        provisioner: CoderProvisioner,
        plane: CoderControlPlane,
        key: str,
        plan: Plan,
        report: StatusReport[ProvisionerStatus],
    ) -> bool:
        """Apply the Deployment, if its image is known; returns whether it was applied."""
        if not (image := self._image(provisioner, plane)):
            return False
        desired = objects.deployment(provisioner, plane, key, image, plan.replicas)
        if await as_condition(self._draining.apply(provisioner, plane, desired), report) is None:
            return False
        await self._autoscaler.applied(provisioner, plan, report)
        return True

    def _image(self, provisioner: CoderProvisioner, plane: CoderControlPlane) -> str:
        """The image of the daemons. coderd rejects daemons that are newer than itself, so they follow the image of the
        control plane after its rollout, and keep their image until then."""
        return provisioner.spec.image or plane.status.image or self._rollout(provisioner).image

    async def _retire_keys(
        self, provisioner: CoderProvisioner, rolled_out: bool, report: StatusReport[ProvisionerStatus]
    ) -> None:
        """Delete old keys, and old children once the rollout is complete."""
        live = self._deployment(provisioner)
        present = objects.checksum(live) if live is not None else ""
        left = any(pod.metadata.annotations.get(objects.CHECKSUM) != present for pod in self._pods(provisioner))
        report.status.retiring_keys = await self._retirement.proceed(provisioner, rolled_out, left, report)
        if rolled_out:
            await self._children.prune(SECRET, provisioner, keep=[objects.secret_name(provisioner)])
            # An earlier version derived other names from some long ones.
            await self._children.prune(DEPLOYMENT, provisioner, keep=[objects.deployment_name(provisioner)])
            await self._children.prune(SERVICE_ACCOUNT, provisioner, keep=[objects.service_account_name(provisioner)])

    async def _observe(
        self, provisioner: CoderProvisioner, coderd: Coderd, rolled_out: bool, report: StatusReport[ProvisionerStatus]
    ) -> None:
        """Report the daemons that coderd sees, and restart a pod whose daemon is disconnected."""
        organization = provisioner.status.organization_id or records.organization_name(provisioner)
        wanted = self._rollout(provisioner).wanted
        seen = daemons.of_provisioner(provisioner, await self._queries.daemons(coderd, organization, INTERVAL))
        if not daemons.complete(seen, wanted):
            seen = daemons.of_provisioner(
                provisioner, await self._queries.daemons(coderd, organization, daemons.CONNECTING_POLL)
            )
        shown = daemons.expected(provisioner, seen, self._pods(provisioner))
        report.status.daemons = summary = daemons.summary(shown)
        daemons.report_daemons(provisioner, summary, wanted, report)
        self._metrics.set_daemons(provisioner.key, summary)
        if provisioner.status.key_created is not None:
            self._metrics.set_key_created(provisioner.key, provisioner.status.key_created)
        report.requeue_after(INTERVAL.total_seconds())
        if not rolled_out or not daemons.are_named_after_pods(provisioner):
            return
        if (lost := daemons.find_disconnected(self._pods(provisioner), seen, self._now())) is not None:
            await self._children.delete(POD, lost)
            note = f"Deleted pod {lost.metadata.name}: it is ready, but its daemon is not connected to Coder"
            self._context.recorder.record(PROVISIONER, provisioner, events.DAEMON_RESTARTED, note)

    async def _plane(
        self, provisioner: CoderProvisioner, report: StatusReport[ProvisionerStatus]
    ) -> CoderControlPlane | None:
        name = provisioner.spec.control_plane_ref.name
        key = Key(provisioner.metadata.namespace, name)
        plane = self._resolver.get(key)
        if plane is None:
            missing = await self._resolver.why_absent(key)
            report.add(CONTROL_PLANE_READY, False, reasons.CONTROL_PLANE_MISSING, missing, stalled=True)
            return None
        if not plane.status.url:
            waiting = f"Waiting for CoderControlPlane {name} to report status.url"
            report.add(CONTROL_PLANE_READY, False, reasons.CONTROL_PLANE_NOT_READY, waiting)
        elif not self._image(provisioner, plane):
            waiting = (
                f"Waiting for CoderControlPlane {name} to report status.image after its first rollout; or set image"
            )
            report.add(CONTROL_PLANE_READY, False, reasons.CONTROL_PLANE_NOT_READY, waiting)
        else:
            available = f"CoderControlPlane {name} has a URL and an image"
            report.add(CONTROL_PLANE_READY, True, reasons.CONTROL_PLANE_AVAILABLE, available)
        return plane

    def _observe_rollout(self, provisioner: CoderProvisioner, report: StatusReport[ProvisionerStatus]) -> None:
        """Report the live Deployment, whether or not this reconcile applied it."""
        own = labels(objects.NAME, provisioner)
        cause = failing(self._pods(provisioner))
        report_pods(self._rollout(provisioner), DEPLOYMENT_READY, own, report, cause)

    def _rollout(self, provisioner: CoderProvisioner) -> Rollout:
        return rollout(self._deployment(provisioner), provisioner.spec.replicas, objects.CONTAINER)

    def _deployment(self, provisioner: CoderProvisioner) -> Unstructured | None:
        key = Key(provisioner.metadata.namespace, objects.deployment_name(provisioner))
        return controlled_by(provisioner, self._children.get(DEPLOYMENT, key))

    def _pods(self, provisioner: CoderProvisioner) -> list[Unstructured]:
        return self._children.pods(objects.NAME, provisioner)

    def _explain(
        self,
        provisioner: CoderProvisioner,
        error: coderd_errors.CoderdError,
        report: Report,
        explanations: Explanations,
    ) -> None:
        """Report an error of coderd; send it no more requests for a while if it limits their rate."""
        explanation = explain_error(provisioner, error, explanations)
        report.add_outcome(explanation.outcome)
        if explanation.recheck is Recheck.BACKOFF:
            generation = provisioner.metadata.generation
            self._rate_limits.fail(provisioner.key, generation, explanation.outcome, Recheck.BACKOFF)
            report.requeue_after(self._rate_limits.left(provisioner.key))
        else:
            self._rate_limits.forget(provisioner.key)
            report.requeue_after(explanation.seconds)

    async def _delete_keys(self, provisioner: CoderProvisioner) -> float | None:
        """Delete the keys in the status. The time to wait for coderd is limited."""
        return None if await self._retirement.clean_up(provisioner) else RETRY_CLEANUP


def _unusable(report: Report) -> bool:
    """Whether the control plane does not support external provisioners, or has no license for them."""
    return any(report.has_reason(reason, ENTITLED) for reason in (reasons.NOT_ENTITLED, reasons.NOT_SUPPORTED))
