"""Takes the steps that `registration` decides on: registers, adopts and changes proxies, and stores their tokens."""

from collections.abc import Sequence
from datetime import datetime

from coder_k8s.api import WORKSPACE_PROXY, CoderWorkspaceProxy, events, reasons
from coder_k8s.api.workspaceproxy import RETIRING_LIMIT, WorkspaceProxyStatus
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.types import ProxyRegistration, WorkspaceProxy
from coder_k8s.controllers.answers import AnswerCache, Recheck
from coder_k8s.controllers.cleanup import PROXY_FINALIZER
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.draft import draft
from coder_k8s.controllers.explanations import Explanation, explain
from coder_k8s.controllers.labels import ADOPT, adopts
from coder_k8s.controllers.report import Outcome, Report
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.conditions import find
from coder_k8s.kube.finalizers import FinalizerRefused
from coder_k8s.kube.objects import Key

from . import registration
from .claims import claims_of_others
from .metrics import ProxyMetrics
from .objects import secret_name
from .outcomes import (
    ERRORS,
    GIVEN_CREDENTIALS_ERRORS,
    HEALTHY,
    NOT_QUERIED,
    REGISTERED,
    Answer,
    health,
    name_taken,
    recheck_interval,
    registered_as,
)
from .records import TooManyRetiring, clear, recorded, recorded_in, restore
from .registration import ICON, NameConflict, Wanted, proxy_of, wanted_by, with_defaults
from .resolver import CoderdTarget
from .tokens import SecretRefused, Tokens

STEPS = 8
"""More steps than any state needs."""


class NameTaken(Exception):
    """coderd has a proxy of the wanted name that does not belong to this object."""

    def __init__(self, found: NameConflict) -> None:
        super().__init__(found.name)
        self.found = found


UNHEALTHY_EVENTS = {
    reasons.PROXY_UNHEALTHY: events.PROXY_UNHEALTHY,
    reasons.PROXY_UNREACHABLE: events.PROXY_UNREACHABLE,
    reasons.PROXY_UNREGISTERED: events.PROXY_UNREGISTERED,
}


class Registrar:
    """Keeps one proxy per object in coderd and its token in a Secret."""

    def __init__(self, context: Context[CoderWorkspaceProxy], tokens: Tokens, metrics: ProxyMetrics) -> None:
        self._proxies = context.objects
        self._tokens = tokens
        self._status = context.status
        self._finalizers = context.finalizers
        self._recorder = context.recorder
        self._metrics = metrics
        self._answers = AnswerCache[Answer](context.now, Backoff(2.0, 120.0, context.runtime.rng.random))

    def forget(self, key: Key) -> None:
        self._answers.forget(key)

    async def ensure(
        self, proxy: CoderWorkspaceProxy, target: CoderdTarget, report: Report
    ) -> tuple[CoderWorkspaceProxy, Outcome]:
        """Register the proxy and report `Registered`; returns the object as recorded, and the health of the proxy."""
        answer = self._answers.get(proxy.key, await self._version(proxy, target))
        if answer is None:
            proxy, answer = await self._query(proxy, target)
            self._record_event(proxy, answer.healthy)
        report.add_outcome(answer.registered)
        report.requeue_after(self._answers.left(proxy.key))
        return proxy, answer.healthy

    async def retire(self, proxy: CoderWorkspaceProxy) -> CoderWorkspaceProxy:
        """Retire the recorded proxy, if there is one; raises `TooManyRetiring`."""
        if (made := recorded(proxy)) is None:
            return proxy
        if len(proxy.status.retiring_proxies) >= RETIRING_LIMIT:
            raise TooManyRetiring
        status = draft(proxy.status)
        clear(status)
        status.retiring_proxies = [*status.retiring_proxies, made]
        return await self._status.record(proxy, status)

    async def _version(self, proxy: CoderWorkspaceProxy, target: CoderdTarget) -> tuple[object, ...]:
        held = proxy_of(await self._tokens.stored(proxy))
        return target.coderd.identity, target.license, proxy.metadata.generation, adopts(proxy), held

    async def _query(self, proxy: CoderWorkspaceProxy, target: CoderdTarget) -> tuple[CoderWorkspaceProxy, Answer]:
        try:
            proxy, found = await self._take_steps(proxy, target)
        except coderd_errors.CoderdError as error:
            table = ERRORS if target.credentials is None else GIVEN_CREDENTIALS_ERRORS
            names = {**target.names, "proxy": wanted_by(proxy).name}
            return await self._failed(proxy, target, explain(error, table, **names))
        except SecretRefused as error:
            message = f"Cannot create Secret {secret_name(proxy)} for the token: {error}"
            refused = Outcome(REGISTERED, False, reasons.SECRET_REFUSED, message, stalled=True)
            return await self._failed(proxy, target, Explanation(refused))
        except FinalizerRefused as error:
            refused = Outcome(REGISTERED, False, reasons.FORBIDDEN, str(error), stalled=True)
            return await self._failed(proxy, target, Explanation(refused, Recheck.STEADY))
        except NameTaken as error:
            return await self._failed(proxy, target, Explanation(name_taken(error.found)))
        healthy = health(found, proxy.spec.replicas, await self._tokens.stored(proxy))
        if proxy.spec.replicas:
            self._metrics.set_health(proxy.key, healthy.status is True)
        else:
            self._metrics.remove_health(proxy.key)
        answer = Answer(registered_as(found, target.place), healthy)
        return proxy, self._answers.keep(
            proxy.key, await self._version(proxy, target), answer, recheck_interval(healthy)
        )

    async def _failed(
        self, proxy: CoderWorkspaceProxy, target: CoderdTarget, explanation: Explanation
    ) -> tuple[CoderWorkspaceProxy, Answer]:
        proxy = self._proxies.get(proxy.key) or proxy  # as last recorded
        answer = Answer(explanation.outcome, NOT_QUERIED)
        return proxy, self._answers.fail(proxy.key, await self._version(proxy, target), answer, explanation.recheck)

    async def _take_steps(
        self, proxy: CoderWorkspaceProxy, target: CoderdTarget
    ) -> tuple[CoderWorkspaceProxy, WorkspaceProxy]:
        """Take steps until none is left."""
        wanted = wanted_by(proxy, adopt=adopts(proxy))
        before = WorkspaceProxyStatus()
        stored = await target.coderd.workspace_proxies()
        for _ in range(STEPS):
            held = proxy_of(await self._tokens.stored(proxy))
            claims = claims_of_others(proxy, self._proxies)
            step = registration.next_step(wanted, recorded_in(proxy, target), held, stored, claims)
            match step:
                case registration.Keep(found):
                    return await self._keep(proxy, target, found), found
                case registration.NameConflict():
                    raise NameTaken(step)
                case registration.RecordIntent():
                    before = proxy.status
                    proxy = await self._record_intent(proxy, target, wanted.name, clock_of(stored))
                case registration.Retire() | registration.Forget() | registration.Adopt():
                    proxy = await self._record(proxy, target, step)
                case registration.Create():
                    # The name is free, so no earlier request registered the proxy.
                    proxy = await self._record_intent(proxy, target, wanted.name, clock_of(stored))
                    proxy = await self._create(proxy, target, before)
                    stored = await target.coderd.workspace_proxies()
                case registration.Regenerate(found) | registration.Change(found):
                    change = self._regenerate if isinstance(step, registration.Regenerate) else self._change
                    await change(proxy, target, found)
                    stored = await target.coderd.workspace_proxies()
        raise coderd_errors.Unavailable("the registration changes faster than it can be recorded")

    async def _keep(
        self, proxy: CoderWorkspaceProxy, target: CoderdTarget, found: WorkspaceProxy
    ) -> CoderWorkspaceProxy:
        """Record the proxy of this object; no write if the status has it."""
        status = draft(proxy.status)
        status.registered, status.proxy_id, status.proxy_name = True, found.id, found.name
        status.registration_started = None
        status.retiring_proxies = [each for each in status.retiring_proxies if each.proxy_id != found.id]
        target.record_in(status)
        return await self._status.record(await self._finalizers.add(proxy, PROXY_FINALIZER), status)

    async def _record(
        self,
        proxy: CoderWorkspaceProxy,
        target: CoderdTarget,
        step: registration.Retire | registration.Forget | registration.Adopt,
    ) -> CoderWorkspaceProxy:
        """Take a step that changes only the status."""
        match step:
            case registration.Retire():
                return await self.retire(proxy)
            case registration.Forget():
                return await self._restore(proxy, WorkspaceProxyStatus())
            case registration.Adopt(found, requested):
                proxy = await self._keep(proxy, target, found)
                if requested:
                    note = f"Adopted workspace proxy {found.name} at {target.url} because of the annotation {ADOPT}"
                    self._recorder.record(WORKSPACE_PROXY, proxy, events.WORKSPACE_PROXY_ADOPTED, note)
                return proxy

    async def _record_intent(
        self, proxy: CoderWorkspaceProxy, target: CoderdTarget, name: str, started: datetime | None
    ) -> CoderWorkspaceProxy:
        """Add the finalizer and record the name to register, if there is a Secret for the token.

        Without a Secret nothing is requested; a record without a request would match the proxy of another user.
        """
        try:
            await self._tokens.reserve(proxy)
        except SecretRefused:
            if proxy.status.proxy_name and not proxy.status.proxy_id:
                await self._restore(proxy, WorkspaceProxyStatus())
            raise
        status = draft(proxy.status)
        clear(status)
        status.proxy_name, status.registration_started = name, started
        target.record_in(status)
        return await self._status.record(await self._finalizers.add(proxy, PROXY_FINALIZER), status)

    async def _restore(self, proxy: CoderWorkspaceProxy, before: WorkspaceProxyStatus) -> CoderWorkspaceProxy:
        """Restore an earlier record."""
        status = draft(proxy.status)
        restore(status, before)
        return await self._status.record(proxy, status)

    async def _create(
        self, proxy: CoderWorkspaceProxy, target: CoderdTarget, before: WorkspaceProxyStatus
    ) -> CoderWorkspaceProxy:
        """Register the proxy. If coderd rejects that, restore `before`, the status before the name was recorded."""
        wanted = wanted_by(proxy)
        try:
            made = await target.coderd.create_workspace_proxy(
                wanted.name, wanted.display_name or wanted.name, wanted.icon or ICON
            )
        except coderd_errors.Conflict:
            proxy = await self._restore(proxy, before)
            if registration.find_named(await target.coderd.workspace_proxies(), wanted.name) is None:
                if before.proxy_id:
                    hidden = f"workspace proxy {wanted.name} exists, but is not listed for this user"
                    raise coderd_errors.Forbidden(hidden) from None
                raise NameTaken(NameConflict(wanted.name)) from None  # not listed, but taken: a retry does not help
            return proxy
        except coderd_errors.CoderdError as error:
            if _is_rejection(error):
                await self._restore(proxy, before)
            raise
        await self._tokens.store(proxy, made.proxy_token)
        self._metrics.count_token(proxy.key, "Registered")
        note = f"Registered workspace proxy {wanted.name} at {target.url}"
        self._recorder.record(WORKSPACE_PROXY, proxy, events.WORKSPACE_PROXY_REGISTERED, note)
        return await self._keep(proxy, target, made.proxy)

    async def _regenerate(self, proxy: CoderWorkspaceProxy, target: CoderdTarget, found: WorkspaceProxy) -> None:
        """Regenerate the token, and change nothing else."""
        await self._tokens.confirm(proxy)
        if proxy_of(await self._tokens.stored(proxy)) == found.id:
            return  # the Secret was restored since the decision
        await self._tokens.reserve(proxy)
        current = Wanted(found.name, found.display_name, found.icon_url)
        made = await _update(target, found, current, regenerate_token=True)
        await self._tokens.store(proxy, made.proxy_token)
        self._metrics.count_token(proxy.key, "Regenerated")
        note = f"Regenerated the token of workspace proxy {found.name}: Secret {secret_name(proxy)} did not have it"
        self._recorder.record(WORKSPACE_PROXY, proxy, events.WORKSPACE_PROXY_TOKEN_REGENERATED, note)

    async def _change(self, proxy: CoderWorkspaceProxy, target: CoderdTarget, found: WorkspaceProxy) -> None:
        wanted = with_defaults(wanted_by(proxy), found)
        await _update(target, found, wanted)
        note = f"Updated name, display name and icon of workspace proxy {wanted.name}"
        self._recorder.record(WORKSPACE_PROXY, proxy, events.WORKSPACE_PROXY_UPDATED, note)

    def _record_event(self, proxy: CoderWorkspaceProxy, healthy: Outcome) -> None:
        """Record an event when a healthy proxy becomes unhealthy."""
        before = find(proxy.status.conditions, HEALTHY)
        lost = healthy.status is False and not healthy.satisfied
        if lost and before is not None and before.status == "True":
            self._recorder.record(WORKSPACE_PROXY, proxy, UNHEALTHY_EVENTS[healthy.reason], healthy.message)


async def _update(
    target: CoderdTarget, found: WorkspaceProxy, wanted: Wanted, *, regenerate_token: bool = False
) -> ProxyRegistration:
    """Update a listed proxy; coderd returns 404 to a user who may see it but not change it."""
    name, icon = wanted.display_name or wanted.name, wanted.icon or ICON
    try:
        return await target.coderd.update_workspace_proxy(
            found.id, wanted.name, name, icon, regenerate_token=regenerate_token
        )
    except coderd_errors.NotFound as error:
        raise coderd_errors.Forbidden(str(error)) from error


def clock_of(stored: Sequence[WorkspaceProxy]) -> datetime | None:
    """The time by coderd's clock: coderd lists itself as created at the time of the response."""
    primary = registration.find_named(stored, registration.PRIMARY)
    return primary.created_at if primary is not None else None


def _is_rejection(error: coderd_errors.CoderdError) -> bool:
    """Whether an error proves that coderd did not execute the request."""
    return isinstance(error, coderd_errors.RateLimited) or not isinstance(error, coderd_errors.Unavailable)
