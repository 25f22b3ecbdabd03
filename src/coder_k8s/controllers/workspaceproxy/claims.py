"""Finds the workspace proxies that other objects claim.

coderd does not store who registered a proxy, so the records of all watched objects decide. An ID in a status is a
claim, also for a retiring proxy. If several objects without an ID want one name at one coderd, the oldest wins.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from coder_k8s.api import CoderWorkspaceProxy
from coder_k8s.controllers.labels import adopts

from .registration import Claims, wanted_by


def claims_of_others(proxy: CoderWorkspaceProxy, objects: Iterable[CoderWorkspaceProxy]) -> Claims:
    """The claims of all other objects."""
    others = [each for each in objects if each.metadata.uid != proxy.metadata.uid]
    older = [each for each in others if _age(each) < _age(proxy)]
    return Claims(
        ids=frozenset(found for each in others for found in _ids(each)),
        older_ids=frozenset(each.status.proxy_id for each in older if each.status.proxy_id),
        names=frozenset(
            (each.status.proxy_name or wanted_by(each).name).lower()
            for each in older
            if _target(each) == _target(proxy) and not each.status.proxy_id and (each.status.proxy_name or adopts(each))
        ),
    )


def _ids(proxy: CoderWorkspaceProxy) -> set[str]:
    return {proxy.status.proxy_id, *(each.proxy_id for each in proxy.status.retiring_proxies)} - {""}


def _age(proxy: CoderWorkspaceProxy) -> tuple[datetime, str]:
    return proxy.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC), proxy.metadata.uid


def _target(proxy: CoderWorkspaceProxy) -> tuple[str, str] | None:
    """Identifies the coderd of an object by its spec."""
    if proxy.spec.bootstrap is not None:
        return "", proxy.spec.bootstrap.coder_url
    if proxy.spec.control_plane_ref is not None:
        return proxy.metadata.namespace, proxy.spec.control_plane_ref.name
    return None
