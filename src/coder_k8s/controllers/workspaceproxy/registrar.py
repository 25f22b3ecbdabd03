"""Takes the steps that `registration` decides on: registers, adopts and changes proxies, and stores their tokens."""

from collections.abc import Awaitable, Callable

from coder_k8s.api import WORKSPACE_PROXY, CoderWorkspaceProxy
from coder_k8s.api.workspaceproxy import RetiringProxy
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.types import WorkspaceProxy
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.conditions import find
from coder_k8s.kube.events import Recorder

from . import registration
from .metrics import ProxyMetrics
from .places import Place
from .registration import ICON, Recorded, filled, proxy_of, wanted_by
from .tokens import SecretRefused, Tokens
from .verdicts import HEALTHY, REGISTERED, Answer, Answers, Verdict, health, refusal, tell

STEPS = 8
"""More than any state needs to come to rest."""

NOTHING = {
    "registered": False,
    "proxy_id": "",
    "proxy_name": "",
    "coder_url": "",
    "control_plane_ref_name": "",
    "credentials_secret_ref": None,
}

Hold = Callable[[CoderWorkspaceProxy], Awaitable[CoderWorkspaceProxy]]
"""Puts the finalizer on an object."""


class Registrar:
    """Keeps one proxy per object in coderd and its token in a Secret."""

    def __init__(
        self,
        proxies: Cache[CoderWorkspaceProxy],
        tokens: Tokens,
        status: StatusWriter[CoderWorkspaceProxy],
        recorder: Recorder,
        metrics: ProxyMetrics,
        answers: Answers,
        hold: Hold,
    ) -> None:
        self._proxies = proxies
        self._tokens = tokens
        self._status = status
        self._recorder = recorder
        self._metrics = metrics
        self._answers = answers
        self._hold = hold

    async def ensure(self, proxy: CoderWorkspaceProxy, place: Place, report: Report) -> CoderWorkspaceProxy:
        """The object with what was recorded; how it went is told as `Registered` and `ProxyHealthy`."""
        answer = self._answers.get(proxy.key, await self._about(proxy, place))
        if answer is None:
            proxy, answer = await self._ask(proxy, place)
            self._announce(proxy, answer.healthy)
        tell(report, REGISTERED, answer.registered)
        tell(report, HEALTHY, answer.healthy)
        report.again(self._answers.left(answer))
        return proxy

    async def leave(self, proxy: CoderWorkspaceProxy) -> CoderWorkspaceProxy:
        """Let the recorded proxy retire, if there is one."""
        if (made := recorded(proxy)) is None:
            return proxy
        return await self._status.record(proxy, retiring_proxies=[*proxy.status.retiring_proxies, made], **NOTHING)

    async def _about(self, proxy: CoderWorkspaceProxy, place: Place) -> tuple[object, ...]:
        held = proxy_of(await self._tokens.stored(proxy))
        return place.coderd.identity, place.licence, proxy.metadata.generation, held

    async def _ask(self, proxy: CoderWorkspaceProxy, place: Place) -> tuple[CoderWorkspaceProxy, Answer]:
        try:
            proxy, found = await self._settle(proxy, place)
        except coderd_errors.CoderdError as trouble:
            return await self._refused(proxy, place, refusal(trouble, given=place.credentials is not None))
        except SecretRefused as trouble:
            return await self._refused(proxy, place, Verdict(False, "SecretRefused", str(trouble), stalled=True))
        verdict = health(found, proxy.spec.replicas, await self._tokens.stored(proxy))
        self._metrics.show(proxy.key, verdict.holds is True)
        return proxy, self._answers.found(proxy.key, await self._about(proxy, place), verdict)

    async def _refused(
        self, proxy: CoderWorkspaceProxy, place: Place, verdict: Verdict
    ) -> tuple[CoderWorkspaceProxy, Answer]:
        proxy = self._proxies.get(proxy.key) or proxy  # with what was recorded on the way
        return proxy, self._answers.refused(proxy.key, await self._about(proxy, place), verdict)

    async def _settle(self, proxy: CoderWorkspaceProxy, place: Place) -> tuple[CoderWorkspaceProxy, WorkspaceProxy]:
        """Take one step after the other until there is none left."""
        wanted = wanted_by(proxy)
        begun_now = False
        stored = await place.coderd.workspace_proxies()
        for _ in range(STEPS):
            held = proxy_of(await self._tokens.stored(proxy))
            match registration.next_step(wanted, recorded_in(proxy, place), held, stored):
                case registration.Keep(found):
                    return await self._keep(proxy, place, found), found
                case registration.Blocked(name):
                    taken = f"coderd has a workspace proxy {name} that is not ours: delete it there or rename this one"
                    raise coderd_errors.Conflict(taken)
                case registration.Leave():
                    proxy = await self.leave(proxy)
                    continue
                case registration.Adopt(found):
                    proxy = await self._keep(proxy, place, found)
                    continue
                case registration.Begin():
                    proxy = await self._begin(proxy, place, wanted.name)
                    begun_now = True
                    continue
                case registration.Create():
                    proxy = await self._create(proxy, place, begun_now)
                case registration.Regenerate(found):
                    await self._regenerate(proxy, place, found)
                case registration.Change(found):
                    await self._change(proxy, place, found)
            stored = await place.coderd.workspace_proxies()
        raise coderd_errors.Unavailable("the registration changes faster than it can be recorded")

    async def _keep(self, proxy: CoderWorkspaceProxy, place: Place, found: WorkspaceProxy) -> CoderWorkspaceProxy:
        """Record that this proxy is ours, which takes no write when the status says so already."""
        return await self._status.record(
            await self._hold(proxy),
            registered=True,
            proxy_id=found.id,
            proxy_name=found.name,
            retiring_proxies=[each for each in proxy.status.retiring_proxies if each.proxy_id != found.id],
            **place.fields,
        )

    async def _begin(self, proxy: CoderWorkspaceProxy, place: Place, name: str) -> CoderWorkspaceProxy:
        """Record what is about to be registered; the finalizer is there before it is."""
        intention = NOTHING | {"proxy_name": name} | place.fields
        return await self._status.record(await self._hold(proxy), **intention)

    async def _create(self, proxy: CoderWorkspaceProxy, place: Place, begun_now: bool) -> CoderWorkspaceProxy:
        """Register. Where coderd surely did not, and never was asked before, there is nothing to remember."""
        wanted = wanted_by(proxy)
        await self._tokens.reserve(proxy)
        try:
            made = await place.coderd.create_workspace_proxy(
                wanted.name, wanted.display_name or wanted.name, wanted.icon or ICON
            )
        except coderd_errors.CoderdError as trouble:
            if begun_now and _is_certain(trouble):
                proxy = await self._status.record(proxy, **NOTHING)
            if isinstance(trouble, coderd_errors.Conflict):
                return proxy  # a look at the list tells whether it is ours
            raise
        await self._tokens.store(proxy, made.proxy_token)
        self._metrics.issued(proxy.key, "Registered")
        note = f"workspace proxy {wanted.name} is registered at {place.url}"
        self._recorder.normal(WORKSPACE_PROXY, proxy, "WorkspaceProxyRegistered", note)
        return await self._keep(proxy, place, made.proxy)

    async def _regenerate(self, proxy: CoderWorkspaceProxy, place: Place, found: WorkspaceProxy) -> None:
        """Make a new token, and change nothing else."""
        await self._tokens.confirm(proxy)
        if proxy_of(await self._tokens.stored(proxy)) == found.id:
            return  # it has come back since we decided
        await self._tokens.reserve(proxy)
        made = await place.coderd.update_workspace_proxy(
            found.id, found.name, found.display_name or found.name, found.icon_url or ICON, regenerate_token=True
        )
        await self._tokens.store(proxy, made.proxy_token)
        self._metrics.issued(proxy.key, "Regenerated")
        note = f"the Secret had no token of workspace proxy {found.name}: it has a new one"
        self._recorder.warning(WORKSPACE_PROXY, proxy, "WorkspaceProxyTokenRegenerated", note)

    async def _change(self, proxy: CoderWorkspaceProxy, place: Place, found: WorkspaceProxy) -> None:
        wanted = filled(wanted_by(proxy), found)
        await place.coderd.update_workspace_proxy(
            found.id, wanted.name, wanted.display_name or wanted.name, wanted.icon or ICON
        )
        note = f"workspace proxy {wanted.name} has the name, display name and icon of the spec"
        self._recorder.normal(WORKSPACE_PROXY, proxy, "WorkspaceProxyUpdated", note)

    def _announce(self, proxy: CoderWorkspaceProxy, healthy: Verdict) -> None:
        """Say it once when coderd has lost a proxy that it saw as healthy."""
        before = find(proxy.status.conditions, HEALTHY)
        lost = healthy.holds is False and not healthy.settled
        if lost and before is not None and before.status == "True":
            self._recorder.warning(WORKSPACE_PROXY, proxy, f"Proxy{healthy.reason}", healthy.message)


def recorded_in(proxy: CoderWorkspaceProxy, place: Place) -> Recorded:
    status = proxy.status
    return Recorded(
        begun=recorded(proxy) is not None,
        id=status.proxy_id,
        here=place.is_of(proxy),
        retiring=frozenset(each.proxy_id for each in status.retiring_proxies),
    )


def recorded(proxy: CoderWorkspaceProxy) -> RetiringProxy | None:
    """The proxy that the status says exists, or may exist."""
    status = proxy.status
    if not (status.registered or status.proxy_name or status.proxy_id):
        return None
    return RetiringProxy(
        proxy_id=status.proxy_id,
        proxy_name=status.proxy_name,
        coder_url=status.coder_url,
        control_plane_ref_name=status.control_plane_ref_name,
        credentials_secret_ref=status.credentials_secret_ref,
    )


def _is_certain(trouble: coderd_errors.CoderdError) -> bool:
    """Whether coderd surely did not do what it was asked to."""
    return isinstance(trouble, coderd_errors.RateLimited) or not isinstance(trouble, coderd_errors.Unavailable)
