"""Who the operator is at coderd when it manages keys, and whether it may."""

from collections.abc import Callable
from datetime import datetime

from coder_k8s.api import CoderControlPlane, CoderProvisioner, ProvisionerCondition, reasons
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.answers import STEADY
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.explanations import explain
from coder_k8s.controllers.planes import ControlPlaneResolver
from coder_k8s.controllers.queries import INTERVAL, CoderdQueries
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.objects import Key

from .outcomes import ENTITLEMENT_ERRORS

FEATURE = "external_provisioner_daemons"
USABLE = ("entitled", "grace_period")


class Credentials:
    """A client for a control plane with a token that belongs to it, and to no other."""

    def __init__(self, context: Context[CoderProvisioner]) -> None:
        self._planes = ControlPlaneResolver(context)
        self._secrets = context.reader
        self._connections = context.runtime.coderd

    def plane(self, provisioner: CoderProvisioner, name: str) -> CoderControlPlane | None:
        """The control plane of that name to make keys at: not one that is being deleted."""
        return self._planes.get(Key(provisioner.metadata.namespace, name))

    def why_absent(self, provisioner: CoderProvisioner, name: str) -> str:
        return self._planes.why_absent(Key(provisioner.metadata.namespace, name))

    async def of_bootstrap(self, provisioner: CoderProvisioner, plane: CoderControlPlane) -> Coderd | None:
        """By the token that the author of the object gave, for the control plane that the object names now."""
        if provisioner.spec.bootstrap is None or plane.metadata.name != provisioner.spec.control_plane_ref.name:
            return None
        where = provisioner.spec.bootstrap.credentials_secret_ref
        token = await self._secrets.read(Key(provisioner.metadata.namespace, where.name), where.key)
        return Coderd(self._connections, api_url(plane), token) if token else None

    async def for_place(self, provisioner: CoderProvisioner, name: str) -> Coderd | None:
        """For a key that was made at a control plane: perhaps one that is being deleted, or not the one of the spec."""
        plane = self._planes.find(Key(provisioner.metadata.namespace, name))
        if plane is None:
            return None
        return await self.of_bootstrap(provisioner, plane) or await self._planes.coderd(plane)

    def unrecoverable(self, provisioner: CoderProvisioner, name: str) -> str:
        """Why there will never be a client for keys at a control plane; empty when there may be one yet."""
        plane = self._planes.find(Key(provisioner.metadata.namespace, name))
        if plane is None:
            return "its control plane is gone"
        given = provisioner.spec.bootstrap is not None and name == provisioner.spec.control_plane_ref.name
        if not given and self._planes.has_lost_access(plane):
            return "there is no operator access to its control plane"
        return ""

    async def ensure(self, provisioner: CoderProvisioner, plane: CoderControlPlane, report: Report) -> Coderd | None:
        """The client to manage this object's key with, told as a condition."""
        if provisioner.spec.bootstrap is not None:
            where = provisioner.spec.bootstrap.credentials_secret_ref
            coderd = await self.of_bootstrap(provisioner, plane)
            if coderd is None:
                missing = f"there is no token under key {where.key} in Secret {where.name}"
                report.add(
                    ProvisionerCondition.BOOTSTRAP_SECRET_READY, False, reasons.SECRET_MISSING, missing, stalled=True
                )
            else:
                found = f"Secret {where.name} has a token under {where.key}."
                report.add(ProvisionerCondition.BOOTSTRAP_SECRET_READY, True, reasons.SECRET_READY, found)
            return coderd
        coderd = await self._planes.coderd(plane)
        if coderd is None:
            waiting = f"waiting for operator access of CoderControlPlane {plane.metadata.name}"
            report.add(ProvisionerCondition.OPERATOR_ACCESS_READY, False, reasons.OPERATOR_ACCESS_NOT_READY, waiting)
        else:
            access = f"The operator's token for CoderControlPlane {plane.metadata.name} is used."
            report.add(ProvisionerCondition.OPERATOR_ACCESS_READY, True, reasons.OPERATOR_ACCESS_READY, access)
        return coderd


class EntitlementGate:
    """Checks that the license of a control plane covers external provisioners."""

    def __init__(self, now: Callable[[], datetime], queries: CoderdQueries) -> None:
        self._now = now
        self._queries = queries

    async def passes(self, plane: CoderControlPlane, coderd: Coderd, report: Report) -> bool:
        """Whether the license covers them, reported as a condition."""
        condition = ProvisionerCondition.EXTERNAL_PROVISIONERS_ENTITLED
        try:
            known, recheck = await self._entitlement(plane, coderd)
        except coderd_errors.RateLimited:
            raise
        except coderd_errors.CoderdError as error:
            explanation = explain(error, ENTITLEMENT_ERRORS)
            report.add_outcome(explanation.outcome)
            report.requeue_after(explanation.seconds)
            return False
        if known in USABLE:
            ending = ", but is in its grace period: renew it." if known == "grace_period" else "."
            report.add(condition, True, reasons.ENTITLED, f"The license covers external provisioners{ending}")
            return True
        message = "the license does not cover external provisioners"
        report.add(condition, False, reasons.NOT_ENTITLED, message, stalled=True)
        report.requeue_after(recheck)
        return False

    async def _entitlement(self, plane: CoderControlPlane, coderd: Coderd) -> tuple[str, float]:
        """The entitlement, and in how many seconds to check it again.

        The status of the control plane decides if it is younger than two minutes. If not, coderd does.
        """
        known = plane.status.external_provisioner_daemons_entitlement
        checked = plane.status.entitlements_last_checked
        if checked is not None and self._now() - checked < INTERVAL and known not in ("", "unknown"):
            return known, STEADY
        feature = (await self._queries.entitlements(coderd)).features.get(FEATURE)
        return feature.entitlement if feature else "not_entitled", self._queries.entitlements_left(coderd)
