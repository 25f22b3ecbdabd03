"""What is done about a CoderWorkspaceProxy: the boxes of the flowchart, in order."""

from coder_k8s.api import WORKSPACE_PROXY, CoderControlPlane, CoderWorkspaceProxy, reasons
from coder_k8s.api.conditions import WorkspaceProxyCondition
from coder_k8s.api.shared import SecretKey, TokenSecret
from coder_k8s.controllers import refusals
from coder_k8s.controllers.children import Children, controlled_by
from coder_k8s.controllers.cleanup import PROXY_FINALIZER as FINALIZER
from coder_k8s.controllers.cleanup import RETRY
from coder_k8s.controllers.labels import labels, paused
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.pods import failing
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.rollout import Rollout, rollout, tell_counts, tell_pods
from coder_k8s.controllers.secrets import SecretReader
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.kube import finalizers
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SERVICE
from coder_k8s.kube.objects import Key, Unstructured

from . import objects
from .metrics import ProxyMetrics
from .places import CoderdResolver
from .records import is_for_wanted_coderd, recorded
from .registrar import Registrar
from .retirement import Retirement
from .tokens import Tokens
from .verdicts import HEALTHY, NOT_ASKED, NOT_MANAGED, REGISTERED, Answers, tell

CONDITIONS = frozenset(WorkspaceProxyCondition)
TOKEN_SECRET_READY = WorkspaceProxyCondition.TOKEN_SECRET_READY
DEPLOYMENT_READY = WorkspaceProxyCondition.DEPLOYMENT_READY


class Reconciler:
    """Brings one CoderWorkspaceProxy at a time to rest."""

    def __init__(
        self,
        client: Client,
        proxies: Cache[CoderWorkspaceProxy],
        children: Children,
        secrets: SecretReader,
        *,
        places: CoderdResolver,
        tokens: Tokens,
        registrar: Registrar,
        retirement: Retirement,
        answers: Answers,
        status: StatusWriter[CoderWorkspaceProxy],
        metrics: ProxyMetrics,
        writer: str,
    ) -> None:
        self._client = client
        self._proxies = proxies
        self._children = children
        self._secrets = secrets
        self._places = places
        self._tokens = tokens
        self._registrar = registrar
        self._retirement = retirement
        self._answers = answers
        self._status = status
        self._metrics = metrics
        self._writer = writer

    async def reconcile(self, key: Key) -> float | None:
        """One pass of the flowchart; returns when to look again."""
        proxy = self._proxies.get(key)
        if proxy is None:
            self._metrics.forget(key)
            self._answers.forget(key)
            return None
        if paused(proxy):
            await self._status.pause(proxy)
            return None
        if proxy.deleting:
            return await self._finalize(proxy)

        report = Report()
        async with self._status.report_failure(proxy, report):
            plane = self._places.plane(proxy)
            given = proxy.spec.proxy_session_token_secret_ref
            if given is not None:
                proxy, token = await self._take(proxy, given, report)
            else:
                proxy, token = await self._register(proxy, plane, report)
            # Pods wait by themselves for a Secret that is given; for anything else there is no point in starting them.
            if (token or given) and (url := objects.primary_url(proxy, plane)):
                live = await self._deploy(proxy, plane, url, token, report)
                if token and live is not None and self._rollout(proxy).complete:
                    proxy = await self._settle(proxy, token, report)
            self._look(proxy, report)
        await self._status.write(proxy, report, CONDITIONS)
        return report.requeue

    async def _take(
        self, proxy: CoderWorkspaceProxy, given: TokenSecret, report: Report
    ) -> tuple[CoderWorkspaceProxy, str]:
        """The token that somebody gave; a proxy that we registered before is no longer wanted."""
        proxy = await self._registrar.leave(proxy)
        self._metrics.forget(proxy.key)
        tell(report, REGISTERED, NOT_MANAGED)
        tell(report, HEALTHY, NOT_MANAGED)
        report.fields["proxy_token_secret_ref"] = objects.token_reference(proxy)
        token = await self._secrets.read(Key(proxy.metadata.namespace, given.name), given.key)
        if not token:
            missing = f"there is no token under key {given.key} in Secret {given.name}"
            report.add(TOKEN_SECRET_READY, False, reasons.SECRET_MISSING, missing, stalled=True)
        else:
            report.add(TOKEN_SECRET_READY, True, reasons.SECRET_READY, _holds(objects.token_reference(proxy)))
        return proxy, token

    async def _register(
        self, proxy: CoderWorkspaceProxy, plane: CoderControlPlane | None, report: Report
    ) -> tuple[CoderWorkspaceProxy, str]:
        """A proxy of our own, and its token; coderd may be away while there is one from before."""
        if self._tokens.name_taken(proxy):
            taken = f"Secret {objects.secret_name(proxy)} exists and is not ours: remove it or choose another name"
            report.add(REGISTERED, None, reasons.PENDING, "there is no place for the token")
            report.add(TOKEN_SECRET_READY, False, reasons.NAME_TAKEN, taken, stalled=True)
            return proxy, ""
        place = await self._places.wanted(proxy, plane, report)
        if place is not None:
            proxy = await self._registrar.ensure(proxy, place, report)
        else:
            tell(report, HEALTHY, NOT_ASKED)
        if recorded(proxy) is None and not proxy.status.retiring_proxies:
            proxy = await self._let_go(proxy)  # coderd refused, so nothing is registered
        token = await self._tokens.stored(proxy)
        if not token or not is_for_wanted_coderd(proxy, token):
            # Pods that run with the token of another coderd keep running until there is a token of this one.
            report.add(TOKEN_SECRET_READY, False, reasons.PENDING, "waiting for the registration")
            return proxy, ""
        await self._tokens.store(proxy, token)  # under the name that the spec has for it now
        report.fields["proxy_token_secret_ref"] = where = objects.token_reference(proxy)
        report.add(TOKEN_SECRET_READY, True, reasons.SECRET_READY, _holds(where))
        return proxy, token

    async def _deploy(
        self, proxy: CoderWorkspaceProxy, plane: CoderControlPlane | None, url: str, token: str, report: Report
    ) -> Unstructured | None:
        key = Key(proxy.metadata.namespace, objects.deployment_name(proxy))
        known = await self._children.look(DEPLOYMENT, key, expected=bool(proxy.status.observed_generation))
        live = controlled_by(proxy, known)
        checksum = fnv1a32(token.encode()) if token else proxy.status.token_checksum
        shown = checksum if _shows(live, proxy.status.token_checksum, checksum) else ""
        with refusals.told(report):
            await self._children.apply(SERVICE, objects.service(proxy))
        if not (image := objects.image_of(proxy, plane, live)):
            waiting = f"Waiting for CoderControlPlane {plane.metadata.name if plane else ''} to report status.image"
            report.add(
                DEPLOYMENT_READY, False, reasons.IMAGE_PENDING, f"{waiting}, which it does after its first rollout"
            )
            return None
        applied: Unstructured | None = None
        with refusals.told(report):
            applied = await self._children.apply(DEPLOYMENT, objects.deployment(proxy, url, image, shown))
        if applied is not None:
            report.fields["token_checksum"] = checksum
        return applied

    async def _settle(self, proxy: CoderWorkspaceProxy, token: str, report: Report) -> CoderWorkspaceProxy:
        """What follows when all pods have moved on: old proxies and Secrets go, and so may the finalizer."""
        report.fields["retiring_proxies"] = left = await self._retirement.proceed(proxy, token, report)
        await self._tokens.prune(proxy, keep=objects.token_reference(proxy).name)
        # An earlier version derived other names from some long ones.
        await self._children.prune(DEPLOYMENT, proxy, keep=[objects.deployment_name(proxy)])
        if proxy.spec.proxy_session_token_secret_ref is None or left:
            return proxy
        return await self._let_go(proxy)

    def _look(self, proxy: CoderWorkspaceProxy, report: Report) -> None:
        """The Deployment as it is, whatever could be done about it in this pass."""
        found, own = self._rollout(proxy), labels(objects.NAME, proxy)
        if report.says(reasons.IMAGE_PENDING, DEPLOYMENT_READY):
            tell_counts(found, own, report)
        else:
            cause = failing(self._children.labelled(POD, own, proxy.metadata.namespace))
            tell_pods(found, DEPLOYMENT_READY, own, report, cause)

    def _rollout(self, proxy: CoderWorkspaceProxy) -> Rollout:
        live = self._children.get(DEPLOYMENT, Key(proxy.metadata.namespace, objects.deployment_name(proxy)))
        return rollout(controlled_by(proxy, live), proxy.spec.replicas, objects.CONTAINER)

    async def _let_go(self, proxy: CoderWorkspaceProxy) -> CoderWorkspaceProxy:
        """A finalizer exists only while there is something outside of Kubernetes to clean up."""
        free = await finalizers.remove(self._client, WORKSPACE_PROXY, proxy, FINALIZER) or proxy
        self._proxies.record_write(free, self._writer)
        return free

    async def _finalize(self, proxy: CoderWorkspaceProxy) -> float | None:
        """Deregister what the status says we registered; coderd may be away, but not for ever."""
        if FINALIZER not in proxy.metadata.finalizers:
            return None
        await self._children.confirm(proxy)  # a namesake that followed it has a proxy of the same name
        token = "" if proxy.status.proxy_id else await self._tokens.stored(proxy)
        if not await self._retirement.clean_up(proxy, token):
            return RETRY
        await self._let_go(proxy)
        return None


def _holds(where: SecretKey) -> str:
    return f"Secret {where.name} holds the token of the proxy under key {where.key}"


def _shows(live: Unstructured | None, recorded: str, checksum: str) -> bool:
    """Whether the pods show by which token they run, so that a new one rolls them.

    Pods of a Deployment that we took over do not, and restart for nothing less than a change of the token.
    """
    return live is None or bool(objects.checksum_of(live)) or recorded not in ("", checksum)
