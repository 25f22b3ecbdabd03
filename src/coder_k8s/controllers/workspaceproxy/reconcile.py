"""The steps that bring a CoderWorkspaceProxy to its desired state, in order."""

from coder_k8s.api import CoderControlPlane, CoderWorkspaceProxy, WorkspaceProxyCondition, reasons
from coder_k8s.api.shared import SecretKey, TokenSecret
from coder_k8s.api.workspaceproxy import RETIRING_LIMIT, WorkspaceProxyStatus
from coder_k8s.controllers.children import controlled_by
from coder_k8s.controllers.cleanup import PROXY_FINALIZER as FINALIZER
from coder_k8s.controllers.cleanup import RETRY
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.pods import failing
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.rejections import as_condition
from coder_k8s.controllers.report import Outcome, StatusReport
from coder_k8s.controllers.rollout import Rollout, report_counts, report_pods, rollout
from coder_k8s.kube.kinds import DEPLOYMENT, SERVICE
from coder_k8s.kube.objects import Key, Unstructured

from . import objects
from .metrics import ProxyMetrics
from .outcomes import NOT_MANAGED, NOT_QUERIED, REGISTERED
from .records import TooManyRetiring, is_for_wanted_coderd, recorded
from .registrar import Registrar
from .resolver import TargetResolver
from .retirement import RETRY as RETIREMENT_RETRY
from .retirement import Retirement
from .tokens import Tokens

TOKEN_SECRET_READY = WorkspaceProxyCondition.TOKEN_SECRET_READY
DEPLOYMENT_READY = WorkspaceProxyCondition.DEPLOYMENT_READY


class ProxySteps(Steps[CoderWorkspaceProxy, WorkspaceProxyStatus]):
    """Brings one CoderWorkspaceProxy at a time to its desired state."""

    conditions = frozenset(WorkspaceProxyCondition)

    def __init__(self, context: Context[CoderWorkspaceProxy], metrics: ProxyMetrics) -> None:
        self._children = context.children
        self._secrets = context.reader
        self._resolver = TargetResolver(context)
        self._tokens = Tokens(context.children, context.secrets)
        self._metrics = metrics
        self._registrar = Registrar(context, self._tokens, self._metrics)
        self._retirement = Retirement(context, self._resolver)
        self.finalize = {FINALIZER: self._deregister}

    async def forget(self, key: Key) -> None:
        self._metrics.forget(key)
        self._registrar.forget(key)

    async def steps(
        self, proxy: CoderWorkspaceProxy, report: StatusReport[WorkspaceProxyStatus]
    ) -> CoderWorkspaceProxy:
        plane = self._resolver.plane(proxy)
        given = proxy.spec.proxy_session_token_secret_ref
        try:
            if given is not None:
                proxy, token, healthy = await self._use_given_token(proxy, given, report)
            else:
                proxy, token, healthy = await self._register(proxy, plane, report)
        except TooManyRetiring:
            return await self._hold_back(proxy, report)
        report.status.primary_access_url = url = objects.primary_url(proxy, plane)
        # Pods wait for a Secret that the user provides. Without any other input they are not started.
        if (token or given) and url:
            live = await self._deploy(proxy, plane, url, token, report)
            if token and live is not None and self._rollout(proxy).complete:
                await self._retire(proxy, token, report)
        self._observe_rollout(proxy, report)
        report.add_outcome(healthy)  # after the pods: one that does not start explains a proxy that is not connected
        return proxy

    async def _hold_back(
        self, proxy: CoderWorkspaceProxy, report: StatusReport[WorkspaceProxyStatus]
    ) -> CoderWorkspaceProxy:
        """Leave the registration and the pods as they are, until one of the proxies that retire is deregistered."""
        report.retain_conditions = True
        message = (
            f"Waiting for one of {RETIRING_LIMIT} workspace proxies in status.retiringProxies to be deregistered; the "
            "events WorkspaceProxyNotDeregistered name them"
        )
        report.add(REGISTERED, None, reasons.PENDING, message)
        report.requeue_after(RETIREMENT_RETRY)
        token = await self._tokens.stored(proxy)
        if self._rollout(proxy).complete and fnv1a32(token.encode()) == proxy.status.token_checksum:
            report.status.retiring_proxies = await self._retirement.proceed(proxy, token, report)
        self._observe_rollout(proxy, report)
        return proxy

    def needs(self, finalizer: str, proxy: CoderWorkspaceProxy) -> bool:  # noqa: ARG002
        return recorded(proxy) is not None or bool(proxy.status.retiring_proxies)

    async def _use_given_token(
        self, proxy: CoderWorkspaceProxy, given: TokenSecret, report: StatusReport[WorkspaceProxyStatus]
    ) -> tuple[CoderWorkspaceProxy, str, Outcome]:
        """Use the token that the user provides; a proxy that the operator registered before retires."""
        proxy = await self._registrar.retire(proxy)
        self._metrics.forget(proxy.key)
        report.add_outcome(NOT_MANAGED.registered)
        report.status.proxy_token_secret_ref = objects.token_reference(proxy)
        token = await self._secrets.read(Key(proxy.metadata.namespace, given.name), given.key)
        if not token:
            missing = self._secrets.missing(Key(proxy.metadata.namespace, given.name), given.key)
            report.add(TOKEN_SECRET_READY, False, reasons.SECRET_MISSING, missing, stalled=True)
        else:
            report.add(TOKEN_SECRET_READY, True, reasons.SECRET_READY, _holds(objects.token_reference(proxy)))
        return proxy, token, NOT_MANAGED.healthy

    async def _register(
        self, proxy: CoderWorkspaceProxy, plane: CoderControlPlane | None, report: StatusReport[WorkspaceProxyStatus]
    ) -> tuple[CoderWorkspaceProxy, str, Outcome]:
        """Register a proxy; returns its token, possibly an earlier one while coderd is unavailable, and its health."""
        healthy = NOT_QUERIED
        if self._tokens.name_taken(proxy):
            name = objects.secret_name(proxy)
            fix = "set bootstrap.generatedTokenSecretName" if proxy.spec.bootstrap else "rename this object"
            taken = f"Secret {name} belongs to another owner; delete it or {fix}"
            report.add(REGISTERED, None, reasons.PENDING, f"Waiting for the name of Secret {name} to become free")
            report.add(TOKEN_SECRET_READY, False, reasons.NAME_TAKEN, taken, stalled=True)
            return proxy, "", healthy
        target = await self._resolver.wanted(proxy, plane, report)
        if target is not None:
            proxy, healthy = await self._registrar.ensure(proxy, target, report)
        token = await self._tokens.stored(proxy)
        if not token or not is_for_wanted_coderd(proxy, token):
            # Pods with a token of another coderd keep running until there is a token of this one.
            report.add(
                TOKEN_SECRET_READY, False, reasons.PENDING, "Waiting for the registration; see the condition Registered"
            )
            return proxy, "", healthy
        await self._tokens.store(proxy, token)  # under the name that the spec has for it now
        report.status.proxy_token_secret_ref = where = objects.token_reference(proxy)
        report.add(TOKEN_SECRET_READY, True, reasons.SECRET_READY, _holds(where))
        return proxy, token, healthy

    async def _deploy(
        self,
        proxy: CoderWorkspaceProxy,
        plane: CoderControlPlane | None,
        url: str,
        token: str,
        report: StatusReport[WorkspaceProxyStatus],
    ) -> Unstructured | None:
        key = Key(proxy.metadata.namespace, objects.deployment_name(proxy))
        known = await self._children.fetch(DEPLOYMENT, key, expected=bool(proxy.status.observed_generation))
        live = controlled_by(proxy, known)
        checksum = fnv1a32(token.encode()) if token else proxy.status.token_checksum
        annotation = checksum if _sets_checksum(live, proxy.status.token_checksum, checksum) else ""
        await as_condition(self._children.apply(SERVICE, proxy, objects.service(proxy)), report)
        if not (image := objects.image_of(proxy, plane, live)):
            name = plane.metadata.name if plane else ""
            waiting = (
                f"Waiting for CoderControlPlane {name} to report status.image after its first rollout; or set image"
            )
            report.add(DEPLOYMENT_READY, False, reasons.IMAGE_PENDING, waiting)
            return None
        wanted = objects.deployment(proxy, url, image, annotation)
        applied = await as_condition(self._children.apply(DEPLOYMENT, proxy, wanted), report)
        if applied is not None:
            report.status.token_checksum = checksum
        return applied

    async def _retire(self, proxy: CoderWorkspaceProxy, token: str, report: StatusReport[WorkspaceProxyStatus]) -> None:
        """Remove old proxies and Secrets, now that all pods use the current ones."""
        report.status.retiring_proxies = await self._retirement.proceed(proxy, token, report)
        await self._tokens.prune(proxy, keep=objects.token_reference(proxy).name)
        # An earlier version derived other names from some long ones.
        await self._children.prune(DEPLOYMENT, proxy, keep=[objects.deployment_name(proxy)])

    def _observe_rollout(self, proxy: CoderWorkspaceProxy, report: StatusReport[WorkspaceProxyStatus]) -> None:
        """Report the live Deployment, whether or not this reconcile applied it."""
        found, own = self._rollout(proxy), labels(objects.NAME, proxy)
        if report.has_reason(reasons.IMAGE_PENDING, DEPLOYMENT_READY):
            report_counts(found, own, report)
        else:
            cause = failing(self._children.pods(objects.NAME, proxy))
            report_pods(found, DEPLOYMENT_READY, own, report, cause)

    def _rollout(self, proxy: CoderWorkspaceProxy) -> Rollout:
        live = self._children.get(DEPLOYMENT, Key(proxy.metadata.namespace, objects.deployment_name(proxy)))
        return rollout(controlled_by(proxy, live), proxy.spec.replicas, objects.CONTAINER)

    async def _deregister(self, proxy: CoderWorkspaceProxy) -> float | None:
        """Deregister the proxies in the status. The time to wait for coderd is limited."""
        token = "" if proxy.status.proxy_id else await self._tokens.stored(proxy)
        return None if await self._retirement.clean_up(proxy, token) else RETRY


def _holds(where: SecretKey) -> str:
    return f"Secret {where.name} has the token of the proxy under key {where.key}"


def _sets_checksum(live: Unstructured | None, recorded: str, checksum: str) -> bool:
    """Whether to set the checksum of the token in the pod template, so that a new token restarts the pods.

    An adopted Deployment gets it only when the token changes, so that adoption restarts no pods.
    """
    return live is None or bool(objects.checksum_of(live)) or recorded not in ("", checksum)
