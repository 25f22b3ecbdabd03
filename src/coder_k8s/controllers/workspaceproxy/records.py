"""The records of registered proxies in the status of an object."""

import msgspec

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.api.workspaceproxy import RetiringProxy, UsedSecret, WorkspaceProxyStatus

from .registration import Recorded, proxy_of, wanted_by
from .resolver import CoderdTarget


class TooManyRetiring(Exception):
    """The status has no room for another proxy to deregister."""


class RecordedTarget(msgspec.Struct, frozen=True):
    """A coderd, as a status records it."""

    coder_url: str = ""
    control_plane_ref_name: str = ""
    credentials: UsedSecret | None = None


def restore(status: WorkspaceProxyStatus, before: WorkspaceProxyStatus) -> None:
    """Copy the record of a proxy from another status to a draft."""
    status.registered = before.registered
    status.proxy_id, status.proxy_name = before.proxy_id, before.proxy_name
    status.registration_started = before.registration_started
    status.coder_url, status.control_plane_ref_name = before.coder_url, before.control_plane_ref_name
    status.credentials_secret_ref = before.credentials_secret_ref


def clear(status: WorkspaceProxyStatus) -> None:
    """Remove the record of a proxy from the draft of a status."""
    restore(status, WorkspaceProxyStatus())


def recorded_in(proxy: CoderWorkspaceProxy, target: CoderdTarget) -> Recorded:
    status = proxy.status
    return Recorded(
        name=status.proxy_name,
        id=status.proxy_id,
        since=status.registration_started,
        here=target.is_of(proxy),
        retiring=frozenset(each.proxy_id for each in status.retiring_proxies),
    )


def recorded(proxy: CoderWorkspaceProxy) -> RetiringProxy | None:
    """The proxy that exists, or may exist, by the status; at the coderd of the spec if the status has none."""
    status = proxy.status
    if not (status.registered or status.proxy_name or status.proxy_id):
        return None
    target = RecordedTarget(status.coder_url, status.control_plane_ref_name, status.credentials_secret_ref)
    if not (target.coder_url or target.control_plane_ref_name):
        target = _wanted_target(proxy)
    return RetiringProxy(
        proxy_id=status.proxy_id,
        proxy_name=status.proxy_name or wanted_by(proxy).name,
        registration_started=status.registration_started,
        coder_url=target.coder_url,
        control_plane_ref_name=target.control_plane_ref_name,
        credentials_secret_ref=target.credentials,
    )


def is_for_wanted_coderd(proxy: CoderWorkspaceProxy, token: str) -> bool:
    """Whether a token belongs to the coderd that the spec names, or to none that is recorded.

    A token of another coderd must not be used, because pods would send it to this one.

        records of the proxy of the token    the token is for the coderd of the spec
        -----------------------------------  ---------------------------------------
        one, at the coderd of the spec       yes
        one, without a coderd (taken over)   yes
        one, at another coderd               no
        none                                 if no record is of another coderd
    """
    known = [each for each in (recorded(proxy), *proxy.status.retiring_proxies) if each is not None]
    held = proxy_of(token)
    known = [each for each in known if held and each.proxy_id == held] or known
    return all((each.control_plane_ref_name or each.coder_url) in ("", _wanted_coderd(proxy)) for each in known)


def _wanted_coderd(proxy: CoderWorkspaceProxy) -> str:
    target = _wanted_target(proxy)
    return target.control_plane_ref_name or target.coder_url


def _wanted_target(proxy: CoderWorkspaceProxy) -> RecordedTarget:
    """The coderd of the spec, as the status records one."""
    if proxy.spec.control_plane_ref is not None:
        return RecordedTarget(control_plane_ref_name=proxy.spec.control_plane_ref.name)
    if (given := proxy.spec.bootstrap) is None:
        return RecordedTarget()
    where = given.credentials_secret_ref
    return RecordedTarget(given.coder_url, credentials=UsedSecret(name=where.name, key=where.key))
