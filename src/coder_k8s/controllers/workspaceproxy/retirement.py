"""Deregisters proxies at the coderd where the operator registered them."""

from coder_k8s.api import WORKSPACE_PROXY, CoderWorkspaceProxy, events
from coder_k8s.api.workspaceproxy import RetiringProxy
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.report import Report

from .claims import claims_of_others
from .records import recorded
from .registration import Recorded, find_named, proxy_of
from .resolver import NoCredentials, TargetResolver

RETRY = 30.0


class Retirement:
    """Deregisters a proxy when no pod uses its token; the deletion of an object waits for coderd for a limited time."""

    def __init__(self, context: Context[CoderWorkspaceProxy], resolver: TargetResolver) -> None:
        self._client = context.client
        self._proxies = context.objects
        self._resolver = resolver
        self._recorder = context.recorder
        self._cleanup = context.cleanup

    async def proceed(self, proxy: CoderWorkspaceProxy, token: str, report: Report) -> list[RetiringProxy]:
        """Deregister retiring proxies, now that all pods use this token; returns those that have to wait."""
        left = []
        for made in proxy.status.retiring_proxies:
            if made.proxy_id and made.proxy_id == proxy_of(token):
                left.append(made)  # the pods still use it
                continue
            await self._client.confirm(WORKSPACE_PROXY, proxy.key, proxy)  # a retired proxy may be in use again
            try:
                await self._deregister(proxy, made)
            except coderd_errors.CoderdError as error:
                self._report_failed(proxy, made, error)
                left.append(made)
                report.requeue_after(RETRY)
        return left

    async def clean_up(self, proxy: CoderWorkspaceProxy, token: str) -> bool:
        """Deregister all proxies of a deleted object; whether that is done. Leaked proxies are reported."""
        current = recorded(proxy)
        done = True
        for made in [*([current] if current else []), *proxy.status.retiring_proxies]:
            try:
                await self._deregister(proxy, made, proxy_of(token))
            except coderd_errors.CoderdError as error:
                if await self._cleanup.may_wait(proxy):
                    self._report_failed(proxy, made, error)
                    done = False
                else:
                    self._report_leaked(proxy, made, str(error))
        return done

    async def _deregister(self, proxy: CoderWorkspaceProxy, made: RetiringProxy, held: str = "") -> None:
        try:
            coderd = await self._resolver.of(proxy, made)
            deleted = await self._delete(coderd, proxy, made, held)
        except (NoCredentials, coderd_errors.NotSupported) as reason:
            self._report_leaked(proxy, made, str(reason))
            return
        if deleted:
            note = f"Deregistered workspace proxy {made.proxy_name} at {made.coder_url}"
            self._recorder.record(WORKSPACE_PROXY, proxy, events.WORKSPACE_PROXY_DEREGISTERED, note)

    async def _delete(self, coderd: Coderd, proxy: CoderWorkspaceProxy, made: RetiringProxy, held: str) -> bool:
        """Whether the proxy was deleted now; it may be deleted already, or belong to another owner."""
        claims = claims_of_others(proxy, self._proxies)
        proxy_id = made.proxy_id
        if not proxy_id:
            found = find_named(await coderd.workspace_proxies(), made.proxy_name)
            if found is None or not claims.allow(found):
                return False
            if found.id != held and not Recorded(made.proxy_name, since=made.registration_started).accounts_for(found):
                self._report_leaked(
                    proxy, made, "nothing proves that this object registered it; delete it in Coder if it is not used"
                )
                return False
            proxy_id = found.id
        if proxy_id in claims.ids:
            return False
        try:
            await coderd.delete_workspace_proxy(proxy_id)
        except coderd_errors.NotFound as error:
            # coderd also returns 404 to a user who may not delete a listed proxy.
            if any(each.id == proxy_id for each in await coderd.workspace_proxies()):
                needed = "assign the role Owner to the user of the token"
                raise coderd_errors.Forbidden(f"Coder does not permit it; {needed}") from error
            return False
        return True

    def _report_failed(self, proxy: CoderWorkspaceProxy, made: RetiringProxy, error: coderd_errors.CoderdError) -> None:
        note = f"Cannot deregister workspace proxy {made.proxy_name} at {made.coder_url}: {error}"
        self._recorder.record(WORKSPACE_PROXY, proxy, events.WORKSPACE_PROXY_NOT_DEREGISTERED, note)

    def _report_leaked(self, proxy: CoderWorkspaceProxy, made: RetiringProxy, why: str) -> None:
        note = f"Workspace proxy {made.proxy_name} is left in Coder at {made.coder_url}: {why}"
        self._recorder.record(WORKSPACE_PROXY, proxy, events.WORKSPACE_PROXY_LEAKED, note)
