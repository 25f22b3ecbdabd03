"""Exposes Coder outside of the cluster, and reports it in the condition `Exposed`.

After a change between Ingress and HTTPRoute, the old object stays until the new one is accepted: an Ingress when it is
applied, an HTTPRoute when one of its Gateways accepts it.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, ControlPlaneCondition, events, reasons
from coder_k8s.api.exposure import Gateway, Ingress
from coder_k8s.controllers.children import controlled_by
from coder_k8s.controllers.context import Context
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
"""Seconds for a Gateway to accept or reject a route."""
EVENTS: dict[str, events.Event] = {
    reasons.GATEWAY_API_MISSING: events.GATEWAY_API_MISSING,
    reasons.NOT_ACCEPTED: events.NOT_ACCEPTED,
}
TERMINATING = "custom resource definition is terminating"
"""How the API server rejects an object whose CRD is being deleted."""


class Answers(msgspec.Struct, frozen=True):
    """The names of the Gateways that accept, reject or have not processed the current generation of a route."""

    accepted: tuple[str, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    """With the message of each."""
    pending: tuple[str, ...] = ()


class Exposure:
    """Applies the Ingress or the HTTPRoute, and deletes the one that is no longer required."""

    def __init__(self, context: Context[CoderControlPlane]) -> None:
        self._children = context.children
        self._recorder = context.recorder
        self._now = context.now

    async def ensure(self, plane: CoderControlPlane, service: Unstructured | None, report: Report) -> None:
        """Expose the Service if this object controls it; otherwise nothing is written and nothing deleted."""
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
        live = await self._children.apply(INGRESS, plane, ingress(plane, wanted))
        report.add(
            EXPOSED, True, reasons.APPLIED, f"Ingress {plane.metadata.name} serves {' and '.join(hosts(wanted))}"
        )
        if not live.deleting:
            await self._children.prune(HTTP_ROUTE, plane, keep=[])

    async def _by_gateway(self, plane: CoderControlPlane, wanted: Gateway, report: Report) -> None:
        before = self._children.get(HTTP_ROUTE, plane.key)
        try:
            route = await self._children.apply(HTTP_ROUTE, plane, http_route(plane, wanted))
        except (errors.NotFound, errors.Forbidden) as error:
            if isinstance(error, errors.Forbidden) and TERMINATING not in error.message:
                raise
            message = "The cluster has no Gateway API; install its CRDs, or use expose.ingress"
            report.add(EXPOSED, False, reasons.GATEWAY_API_MISSING, message)
            report.requeue_after(GATEWAY_API_POLL)
            self._announce(plane, report)
            return
        found = answers(route)
        changed = before is None or before.metadata.generation != route.metadata.generation
        judge(route, found, report, self._now(), changed=changed)
        self._announce(plane, report)
        if found.accepted:
            await self._children.prune(INGRESS, plane, keep=[])

    def _announce(self, plane: CoderControlPlane, report: Report) -> None:
        """Record an event when the route begins to fail."""
        found, before = report.findings[-1], find(report.before, EXPOSED)
        if found.reason in EVENTS and (before is None or before.reason != found.reason):
            self._recorder.record(CONTROL_PLANE, plane, EVENTS[found.reason], found.message)


def answers(route: Unstructured) -> Answers:
    """The state of each Gateway of a route. Conditions of an older generation, or of a deleted route, do not count."""
    manifest = route.manifest
    accepted = [] if route.deleting else _accepted(manifest.get("status") or {}, route)
    known = dict(sorted(accepted, key=lambda each: each[1]["status"], reverse=True))  # False wins over True
    wanted = {_identity(parent, route): parent["name"] for parent in manifest["spec"]["parentRefs"]}
    conditions = [(name, known.get(identity)) for identity, name in wanted.items()]
    return Answers(
        accepted=tuple(name for name, condition in conditions if condition and condition["status"] == "True"),
        rejected=tuple(
            (name, condition.get("message") or condition.get("reason", ""))
            for name, condition in conditions
            if condition and condition["status"] == "False"
        ),
        pending=tuple(name for name, condition in conditions if condition is None),
    )


def judge(route: Unstructured, found: Answers, report: Report, now: datetime, *, changed: bool) -> None:
    """Add `Exposed`. The minute starts again when this reconcile changed the route.

    | Gateways                                      | status  | reason              |
    |-----------------------------------------------|---------|---------------------|
    | one rejects the route                         | False   | `NotAccepted`       |
    | all accept it                                 | True    | `Applied`           |
    | one has not processed it for under a minute   | Unknown | `WaitingForGateway` |
    | one has not processed it for longer           | False   | `NotAccepted`       |
    """
    name = route.metadata.name
    if found.rejected:
        gateway, cause = found.rejected[0]
        report.add(EXPOSED, False, reasons.NOT_ACCEPTED, f"Gateway {gateway} does not accept HTTPRoute {name}: {cause}")
    elif not found.pending:
        served = " and ".join(route.manifest["spec"]["hostnames"])
        report.add(
            EXPOSED, True, reasons.APPLIED, f"HTTPRoute {name} serves {served} by Gateway {', '.join(found.accepted)}"
        )
    elif (left := ANSWER_TIMEOUT if changed else _left(report, now)) > 0:
        report.add(
            EXPOSED,
            None,
            reasons.WAITING_FOR_GATEWAY,
            f"Waiting for Gateway {found.pending[0]} to accept HTTPRoute {name}",
        )
        report.requeue_after(left)
    else:
        gateway = f"Gateway {found.pending[0]}"
        message = f"{gateway} does not process HTTPRoute {name}; check that it exists and has a controller"
        report.add(EXPOSED, False, reasons.NOT_ACCEPTED, message)


def _left(report: Report, now: datetime) -> float:
    """Seconds that are left for the Gateway, from the transition time of the condition, also after a restart."""
    known = find(report.before, EXPOSED)
    if known is None or known.reason not in (reasons.WAITING_FOR_GATEWAY, reasons.NOT_ACCEPTED):
        return ANSWER_TIMEOUT
    return ANSWER_TIMEOUT - (now - known.last_transition_time).total_seconds() if known.is_true is None else 0.0


def _accepted(status: dict[str, Any], route: Unstructured) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The current condition `Accepted` of each parent."""
    generation = route.metadata.generation
    for parent in status.get("parents") or []:
        for found in parent.get("conditions") or []:
            current = found.get("observedGeneration", generation) >= generation
            if found["type"] == "Accepted" and found["status"] != "Unknown" and current:
                yield _identity(parent["parentRef"], route), found


def _identity(reference: dict[str, Any], route: Unstructured) -> tuple[str, ...]:
    namespace = reference.get("namespace", route.metadata.namespace)
    return reference["name"], namespace, reference.get("sectionName", "")
