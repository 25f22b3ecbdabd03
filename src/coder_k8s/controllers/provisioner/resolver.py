"""Clients for the coderd that has the keys of a provisioner."""

from coder_k8s.api import CoderControlPlane, CoderProvisioner, reasons
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.resolver import CoderdResolver
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.objects import Key

from .outcomes import BOOTSTRAP_SECRET_READY, OPERATOR_ACCESS_READY


class KeyResolver(CoderdResolver):
    """Creates clients for the control plane of a key; the token of one is never sent to another."""

    async def for_key(self, provisioner: CoderProvisioner, name: str) -> Coderd | None:
        """A client for keys of that control plane, which may be terminating, or not the one of the spec."""
        plane = self.find(Key(provisioner.metadata.namespace, name))
        if plane is None:
            return None
        return await self._with_bootstrap_token(provisioner, plane) or await self.with_operator_token(plane)

    def unrecoverable(self, provisioner: CoderProvisioner, name: str) -> str:
        """Why there will never be a client for keys of that control plane; empty if there may be one."""
        plane = self.find(Key(provisioner.metadata.namespace, name))
        if plane is None:
            return "its control plane does not exist"
        given = provisioner.spec.bootstrap is not None and name == provisioner.spec.control_plane_ref.name
        if not given and self.has_lost_access(plane):
            return "there is no operator access to its control plane"
        return ""

    async def ensure(self, provisioner: CoderProvisioner, plane: CoderControlPlane, report: Report) -> Coderd | None:
        """The client for the key of the spec, reported as a condition."""
        if provisioner.spec.bootstrap is not None:
            where = provisioner.spec.bootstrap.credentials_secret_ref
            coderd = await self._with_bootstrap_token(provisioner, plane)
            if coderd is None:
                missing = self._secrets.missing(Key(provisioner.metadata.namespace, where.name), where.key)
                report.add(BOOTSTRAP_SECRET_READY, False, reasons.SECRET_MISSING, missing, stalled=True)
            else:
                found = f"Secret {where.name} has a token under key {where.key}"
                report.add(BOOTSTRAP_SECRET_READY, True, reasons.SECRET_READY, found)
            return coderd
        coderd = await self.with_operator_token(plane)
        if coderd is None:
            report.add(
                OPERATOR_ACCESS_READY,
                False,
                reasons.OPERATOR_ACCESS_NOT_READY,
                self.waiting_for_access(plane),
                stalled=plane.spec.operator_access.disabled,
            )
        else:
            access = f"The operator has a token for CoderControlPlane {plane.metadata.name}"
            report.add(OPERATOR_ACCESS_READY, True, reasons.OPERATOR_ACCESS_READY, access)
        return coderd

    async def _with_bootstrap_token(self, provisioner: CoderProvisioner, plane: CoderControlPlane) -> Coderd | None:
        """A client with the token of the spec, which is for the control plane of the spec."""
        if provisioner.spec.bootstrap is None or plane.metadata.name != provisioner.spec.control_plane_ref.name:
            return None
        where = provisioner.spec.bootstrap.credentials_secret_ref
        return await self.with_given_token(api_url(plane), Key(provisioner.metadata.namespace, where.name), where.key)
