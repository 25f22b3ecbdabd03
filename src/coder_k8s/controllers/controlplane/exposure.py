"""How Coder is reached from outside of the cluster, told as the condition `Exposed`.

After a change from one way to the other, the old one stays until the new one is accepted: an Ingress when it is
applied, a route when one of its Gateways accepts it.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from coder_k8s.api import CoderControlPlane, ControlPlaneCondition, reasons
from coder_k8s.api.controlplane import Gateway, Ingress
from coder_k8s.controllers.children import Children, controlled_by
from coder_k8s.controllers.report import Report
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import HTTP_ROUTE, INGRESS, SERVICE
from coder_k8s.kube.objects import Unstructured

from .objects import hosts, http_route, ingress

EXPOSED = ControlPlaneCondition.EXPOSED
GATEWAY_API_POLL = 10.0
ANSWER_TIMEOUT = 60.0
"""Seconds that a Gateway has to answer."""
GOING = "custom resource definition is terminating"
"""How the API server refuses an object of a kind that is being removed."""


class Answers(NamedTuple):
    """What the Gateways of a route say about its present generation, by their names."""

    accepted: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """With the reason that each gives."""
    silent: tuple[str, ...] = ()


class Exposure:
    """Keeps the Ingress or the HTTPRoute, and removes what is no longer asked for."""

    def __init__(self, children: Children, now: Callable[[], datetime]) -> None:
        self._children = children
        self._now = now

    async def ensure(self, plane: CoderControlPlane, service: Unstructured | None, report: Report) -> None:
        """Keep what leads to the Service, if this object controls it. Else nothing is written, and nothing removed."""
        expose = plane.spec.expose
        if expose and service and controlled_by(plane, service) is None:
            raise OwnedByOther(SERVICE, service)
        if expose and service is None:
            report.add(EXPOSED, False, reasons.PENDING, f"Waiting for Service {plane.metadata.name}")
        elif expose and expose.ingress:
            await self._by_ingress(plane, expose.ingress, report)
        elif expose and expose.gateway:
            await self._by_gateway(plane, expose.gateway, report)
        else:
            await self._children.prune(INGRESS, plane, keep=[])
            await self._children.prune(HTTP_ROUTE, plane, keep=[])

    async def _by_ingress(self, plane: CoderControlPlane, wanted: Ingress, report: Report) -> None:
        made = await self._children.apply(INGRESS, plane, ingress(plane, wanted))
        report.add(
            EXPOSED, True, reasons.APPLIED, f"Ingress {plane.metadata.name} serves {' and '.join(hosts(wanted))}"
        )
        if not made.deleting:
            await self._children.prune(HTTP_ROUTE, plane, keep=[])

    async def _by_gateway(self, plane: CoderControlPlane, wanted: Gateway, report: Report) -> None:
        before = self._children.get(HTTP_ROUTE, plane.key)
        try:
            route = await self._children.apply(HTTP_ROUTE, plane, http_route(plane, wanted))
        except (errors.NotFound, errors.Forbidden) as refusal:
            if isinstance(refusal, errors.Forbidden) and GOING not in refusal.message:
                raise
            report.add(EXPOSED, False, reasons.GATEWAY_API_MISSING, "the cluster has no Gateway API: install its CRDs")
            report.requeue_after(GATEWAY_API_POLL)
            return
        found = answers(route)
        changed = before is None or before.metadata.generation != route.metadata.generation
        judge(route, found, report, self._now(), changed=changed)
        if found.accepted:
            await self._children.prune(INGRESS, plane, keep=[])


def answers(route: Unstructured) -> Answers:
    """What the Gateways say; an answer to an older generation of the route, or to one that goes, says nothing."""
    manifest = route.manifest
    verdicts = [] if route.deleting else _verdicts(manifest.get("status") or {}, route)
    known = dict(sorted(verdicts, key=lambda each: each[1]["status"], reverse=True))  # a refusal counts most
    wanted = {_identity(parent, route): parent["name"] for parent in manifest["spec"]["parentRefs"]}
    said = [(name, known.get(identity)) for identity, name in wanted.items()]
    return Answers(
        accepted=tuple(name for name, verdict in said if verdict and verdict["status"] == "True"),
        refused=tuple(
            (name, verdict.get("message") or verdict.get("reason", ""))
            for name, verdict in said
            if verdict and verdict["status"] == "False"
        ),
        silent=tuple(name for name, verdict in said if verdict is None),
    )


def judge(route: Unstructured, found: Answers, report: Report, now: datetime, *, changed: bool) -> None:
    """Add `Exposed`. A Gateway has another minute to answer a route that this reconcile changed.

    | Gateways                                              | status  | reason              |
    |-------------------------------------------------------|---------|---------------------|
    | one refuses the route                                 | False   | `NotAccepted`       |
    | all accept it                                         | True    | `Applied`           |
    | one has not answered, and is asked for under a minute | Unknown | `WaitingForGateway` |
    | one has not answered for longer                       | False   | `NotAccepted`       |
    """
    name = route.metadata.name
    if found.refused:
        gateway, words = found.refused[0]
        report.add(EXPOSED, False, reasons.NOT_ACCEPTED, f"Gateway {gateway} does not accept the route: {words}")
    elif not found.silent:
        served = " and ".join(route.manifest["spec"]["hostnames"])
        report.add(
            EXPOSED, True, reasons.APPLIED, f"HTTPRoute {name} serves {served} by Gateway {', '.join(found.accepted)}"
        )
    elif (left := ANSWER_TIMEOUT if changed else _left(report, now)) > 0:
        report.add(
            EXPOSED,
            None,
            reasons.WAITING_FOR_GATEWAY,
            f"waiting for Gateway {found.silent[0]} to accept HTTPRoute {name}",
        )
        report.requeue_after(left)
    else:
        message = f"Gateway {found.silent[0]} has not answered HTTPRoute {name}: look whether it and its controller run"
        report.add(EXPOSED, False, reasons.NOT_ACCEPTED, message)


def _left(report: Report, now: datetime) -> float:
    """For how many seconds more an answer is waited for. The condition remembers since when, also through a restart."""
    known = find(report.before, EXPOSED)
    if known is None or known.reason not in (reasons.WAITING_FOR_GATEWAY, reasons.NOT_ACCEPTED):
        return ANSWER_TIMEOUT
    return ANSWER_TIMEOUT - (now - known.last_transition_time).total_seconds() if known.holds is None else 0.0


def _verdicts(status: dict[str, Any], route: Unstructured) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    generation = route.metadata.generation
    for parent in status.get("parents") or []:
        for found in parent.get("conditions") or []:
            current = found.get("observedGeneration", generation) >= generation
            if found["type"] == "Accepted" and found["status"] != "Unknown" and current:
                yield _identity(parent["parentRef"], route), found


def _identity(reference: dict[str, Any], route: Unstructured) -> tuple[str, ...]:
    namespace = reference.get("namespace", route.metadata.namespace)
    return reference["name"], namespace, reference.get("sectionName", "")
