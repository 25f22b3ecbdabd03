"""How Coder is reached from outside of the cluster, told as the condition `Exposed`."""

from collections.abc import Iterator
from typing import Any

from coder_k8s.api import CoderControlPlane
from coder_k8s.api.conditions import ControlPlaneCondition
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.report import Report
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import HTTP_ROUTE, INGRESS
from coder_k8s.kube.objects import Child

from .objects import http_route, ingress

EXPOSED = ControlPlaneCondition.EXPOSED
GATEWAY_API_POLL = 10.0
GOING = "custom resource definition is terminating"
"""How the API server refuses an object of a kind that is being removed."""


class Exposure:
    """Keeps the Ingress or the HTTPRoute, and removes what is no longer asked for."""

    def __init__(self, children: Children) -> None:
        self._children = children

    async def ensure(self, plane: CoderControlPlane, report: Report) -> None:
        expose = plane.spec.expose
        by_ingress = expose.ingress if expose else None
        by_gateway = expose.gateway if expose else None
        # The new way in is there before the old one goes.
        if by_ingress is not None:
            await self._children.apply(INGRESS, ingress(plane, by_ingress))
            report.add(EXPOSED, True, "Applied")
        if by_gateway is not None:
            try:
                judge(await self._children.apply(HTTP_ROUTE, http_route(plane, by_gateway)), report)
            except (errors.NotFound, errors.Forbidden) as refusal:
                if isinstance(refusal, errors.Forbidden) and GOING not in refusal.message:
                    raise
                report.add(EXPOSED, False, "GatewayAPIMissing", "the cluster has no Gateway API: install its CRDs")
                report.again(GATEWAY_API_POLL)
        await self._children.prune(INGRESS, plane, keep=[plane.metadata.name] if by_ingress else [])
        await self._children.prune(HTTP_ROUTE, plane, keep=[plane.metadata.name] if by_gateway else [])


def judge(route: Child, report: Report) -> None:
    """A route is as good as its parents say; one that nobody has looked at yet is waited for."""
    manifest = route.manifest
    wanted = {_identity(parent, route) for parent in manifest["spec"]["parentRefs"]}
    answers = [answer for answer in _answers(manifest.get("status") or {}, route) if answer[0] in wanted]
    for (name, *_), accepted in answers:
        if accepted["status"] == "False":
            said = accepted.get("message") or accepted.get("reason", "")
            return report.add(EXPOSED, False, "NotAccepted", f"Gateway {name} does not accept the route: {said}")
    answered = len({who for who, _ in answers})
    words = "accepted" if answered == len(wanted) else f"{answered} of {len(wanted)} Gateways have answered"
    return report.add(EXPOSED, True, "Applied", words)


def _answers(status: dict[str, Any], route: Child) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """What the parents have made up their minds about: an answer to an older route says nothing about this one."""
    generation = route.metadata.generation
    for parent in status.get("parents") or []:
        for found in parent.get("conditions") or []:
            current = found.get("observedGeneration", generation) >= generation
            if found["type"] == "Accepted" and found["status"] != "Unknown" and current:
                yield _identity(parent["parentRef"], route), found


def _identity(reference: dict[str, Any], route: Child) -> tuple[str, ...]:
    namespace = reference.get("namespace", route.metadata.namespace)
    return reference["name"], namespace, reference.get("sectionName", "")
