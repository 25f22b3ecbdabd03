"""Deregisters proxies that the operator registered, at the coderd where it did."""

from collections.abc import Callable
from datetime import datetime, timedelta

from coder_k8s.api import WORKSPACE_PROXY, CoderWorkspaceProxy
from coder_k8s.api.workspaceproxy import RetiringProxy
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.controllers.report import Report
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import NAMESPACE_METADATA
from coder_k8s.kube.objects import Key
from coder_k8s.kube.rules import Rule

from .places import ControlPlaneGone, NoWay, Places
from .registrar import recorded
from .registration import proxy_of

RETRY = 30.0
BOUND = timedelta(minutes=5)
"""How long the deletion of an object may wait for coderd."""

RULES = (
    # To ask for one's own namespace by its name is a right that a Role can give.
    Rule(("",), (NAMESPACE_METADATA.plural,), ("get",)),
)


class Retirement:
    """Waits until no pod runs with the token of a proxy; an object that goes waits for coderd, but not for ever."""

    def __init__(self, client: Client, places: Places, recorder: Recorder, now: Callable[[], datetime]) -> None:
        self._client = client
        self._places = places
        self._recorder = recorder
        self._now = now

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
                if await self._may_wait(proxy):
                    settled = False
                else:
                    self._leaked(proxy, made, str(trouble))
        return settled

    async def _deregister(self, proxy: CoderWorkspaceProxy, made: RetiringProxy) -> None:
        try:
            coderd = await self._places.of(proxy, made)
            await coderd.delete_workspace_proxy(made.proxy_id or made.proxy_name)
        except (ControlPlaneGone, coderd_errors.NotFound, coderd_errors.NotSupported):
            return
        except NoWay as reason:
            self._leaked(proxy, made, str(reason))
            return
        note = f"workspace proxy {made.proxy_name} is deregistered at {made.coder_url}"
        self._recorder.normal(WORKSPACE_PROXY, proxy, "WorkspaceProxyDeregistered", note)

    async def _may_wait(self, proxy: CoderWorkspaceProxy) -> bool:
        """Whether the deletion may take longer; that of a whole namespace may not."""
        since = proxy.metadata.deletion_timestamp
        if since is not None and self._now() - since >= BOUND:
            return False
        try:
            return not (await self._client.get(NAMESPACE_METADATA, Key("", proxy.metadata.namespace))).deleting
        except errors.Forbidden:
            return True

    def _leaked(self, proxy: CoderWorkspaceProxy, made: RetiringProxy, why: str) -> None:
        note = f"workspace proxy {made.proxy_name} is left in coderd at {made.coder_url}: {why}"
        self._recorder.warning(WORKSPACE_PROXY, proxy, "WorkspaceProxyLeaked", note)
