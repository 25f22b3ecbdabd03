"""Deregisters proxies that the operator registered, at the coderd where it did."""

from coder_k8s.api import WORKSPACE_PROXY, CoderWorkspaceProxy
from coder_k8s.api.workspaceproxy import RetiringProxy
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.controllers.cleanup import Cleanup
from coder_k8s.controllers.report import Report
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder

from .places import NoWay, Places
from .registrar import recorded
from .registration import proxy_of

RETRY = 30.0


class Retirement:
    """Waits until no pod runs with the token of a proxy; an object that goes waits for coderd, but not for ever."""

    def __init__(self, client: Client, places: Places, recorder: Recorder, cleanup: Cleanup) -> None:
        self._client = client
        self._places = places
        self._recorder = recorder
        self._cleanup = cleanup

    async def proceed(self, proxy: CoderWorkspaceProxy, token: str, report: Report) -> list[RetiringProxy]:
        """The proxies that still have to wait, now that all pods run with this token."""
        left = []
        for made in proxy.status.retiring_proxies:
            if made.proxy_id and made.proxy_id == proxy_of(token):
                left.append(made)  # the pods use it still, whoever wrote its token down for them
                continue
            await self._client.confirm(WORKSPACE_PROXY, proxy.key, proxy)  # what retired may be in use again
            try:
                await self._deregister(proxy, made)
            except coderd_errors.CoderdError:
                left.append(made)
                report.again(RETRY)
        return left

    async def clean_up(self, proxy: CoderWorkspaceProxy) -> bool:
        """Deregister all proxies of an object that goes; whether that is settled, one way or the other."""
        current = recorded(proxy)
        settled = True
        for made in [*([current] if current else []), *proxy.status.retiring_proxies]:
            try:
                await self._deregister(proxy, made)
            except coderd_errors.CoderdError as trouble:
                if await self._cleanup.may_wait(proxy):
                    settled = False
                else:
                    self._leaked(proxy, made, str(trouble))
        return settled

    async def _deregister(self, proxy: CoderWorkspaceProxy, made: RetiringProxy) -> None:
        try:
            coderd = await self._places.of(proxy, made)
            await coderd.delete_workspace_proxy(made.proxy_id or made.proxy_name)
        except (coderd_errors.NotFound, coderd_errors.NotSupported):
            return
        except NoWay as reason:
            self._leaked(proxy, made, str(reason))
            return
        note = f"workspace proxy {made.proxy_name} is deregistered at {made.coder_url}"
        self._recorder.normal(WORKSPACE_PROXY, proxy, "WorkspaceProxyDeregistered", note)

    def _leaked(self, proxy: CoderWorkspaceProxy, made: RetiringProxy, why: str) -> None:
        note = f"workspace proxy {made.proxy_name} is left in coderd at {made.coder_url}: {why}"
        self._recorder.warning(WORKSPACE_PROXY, proxy, "WorkspaceProxyLeaked", note)
