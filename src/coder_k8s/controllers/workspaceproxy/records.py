"""What the status of an object says about the proxies that it registered, and where."""

from typing import Any

from msgspec.structs import replace

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.api.workspaceproxy import RetiringProxy, UsedSecret

from .places import CoderdTarget
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


def recorded_in(proxy: CoderWorkspaceProxy, place: CoderdTarget) -> Recorded:
    status = proxy.status
    return Recorded(
        name=status.proxy_name,
        id=status.proxy_id,
        since=status.registration_started,
        here=place.is_of(proxy),
        retiring=frozenset(each.proxy_id for each in status.retiring_proxies),
    )


def recorded(proxy: CoderWorkspaceProxy) -> RetiringProxy | None:
    """The proxy that the status says exists, or may exist; where the status names no coderd, at that of the spec."""
    status = proxy.status
    if not (status.registered or status.proxy_name or status.proxy_id):
        return None
    if not (status.coder_url or status.control_plane_ref_name):
        status = replace(status, **_wanted_place(proxy))
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
    place = _wanted_place(proxy)
    return str(place.get("control_plane_ref_name") or place.get("coder_url") or "")


def _wanted_place(proxy: CoderWorkspaceProxy) -> dict[str, Any]:
    """The coderd of the spec, as the status records one."""
    if proxy.spec.control_plane_ref is not None:
        return {"control_plane_ref_name": proxy.spec.control_plane_ref.name}
    if (given := proxy.spec.bootstrap) is None:
        return {}
    where = given.credentials_secret_ref
    return {"coder_url": given.coder_url, "credentials_secret_ref": UsedSecret(name=where.name, key=where.key)}
