"""What the status of an object says about the proxies that it registered, and where."""

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.api.workspaceproxy import RetiringProxy

from .places import Place
from .registration import Recorded, proxy_of, wanted_by

NOTHING = {
    "registered": False,
    "proxy_id": "",
    "proxy_name": "",
    "registration_started": None,
    "coder_url": "",
    "control_plane_ref_name": "",
    "credentials_secret_ref": None,
}


def recorded_in(proxy: CoderWorkspaceProxy, place: Place) -> Recorded:
    status = proxy.status
    return Recorded(
        name=status.proxy_name,
        id=status.proxy_id,
        since=status.registration_started,
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
        proxy_name=status.proxy_name or wanted_by(proxy).name,
        registration_started=status.registration_started,
        coder_url=status.coder_url,
        control_plane_ref_name=status.control_plane_ref_name,
        credentials_secret_ref=status.credentials_secret_ref,
    )


def is_for_wanted_coderd(proxy: CoderWorkspaceProxy, token: str) -> bool:
    """Whether a token belongs to the coderd that the spec names, or to none that is recorded.

    A token goes only to the coderd that it belongs to: with that of another one, pods would show it to this one.

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
    if proxy.spec.control_plane_ref is not None:
        return proxy.spec.control_plane_ref.name
    return proxy.spec.bootstrap.coder_url if proxy.spec.bootstrap is not None else ""
