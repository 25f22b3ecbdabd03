"""Which workspace proxies of coderd belong to other objects, by what these have recorded.

coderd does not know who registered a proxy, so the records of all objects that the operator watches decide. An ID in a
status is a claim, also that of a proxy that retires. Of several objects without an ID that ask for one name at one
coderd, the oldest comes first.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.controllers.labels import adopts

from .registration import Claims, wanted_by


def claims_beside(proxy: CoderWorkspaceProxy, objects: Iterable[CoderWorkspaceProxy]) -> Claims:
    """What all other objects claim."""
    others = [each for each in objects if each.metadata.uid != proxy.metadata.uid]
    older = [each for each in others if _age(each) < _age(proxy)]
    return Claims(
        ids=frozenset(made for each in others for made in _ids(each)),
        older_ids=frozenset(each.status.proxy_id for each in older if each.status.proxy_id),
        names=frozenset(
            (each.status.proxy_name or wanted_by(each).name).lower()
            for each in older
            if _where(each) == _where(proxy) and not each.status.proxy_id and (each.status.proxy_name or adopts(each))
        ),
    )


def _ids(proxy: CoderWorkspaceProxy) -> set[str]:
    return {proxy.status.proxy_id, *(each.proxy_id for each in proxy.status.retiring_proxies)} - {""}


def _age(proxy: CoderWorkspaceProxy) -> tuple[datetime, str]:
    return proxy.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC), proxy.metadata.uid


def _where(proxy: CoderWorkspaceProxy) -> tuple[str, str] | None:
    """The coderd that an object asks, as its spec names it."""
    if proxy.spec.bootstrap is not None:
        return "", proxy.spec.bootstrap.coder_url
    if proxy.spec.control_plane_ref is not None:
        return proxy.metadata.namespace, proxy.spec.control_plane_ref.name
    return None
