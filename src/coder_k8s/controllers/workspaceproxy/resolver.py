"""The coderd where a proxy is registered, and the credentials for it."""

from collections.abc import Hashable

import msgspec

from coder_k8s.api import CoderControlPlane, CoderWorkspaceProxy, reasons
from coder_k8s.api.workspaceproxy import ProxyBootstrap, RetiringProxy, UsedSecret, WorkspaceProxyStatus
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.resolver import CoderdResolver
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.objects import Key

from .outcomes import REGISTERED


class NoCredentials(Exception):
    """There are no longer credentials for a coderd."""


class CoderdTarget(msgspec.Struct, frozen=True):
    """A coderd to register at."""

    coderd: Coderd
    url: str
    plane: str = ""
    credentials: UsedSecret | None = None
    license: Hashable = ()
    """Identifies the license; when it changes, an earlier answer that a license is missing is invalid."""

    def record_in(self, status: WorkspaceProxyStatus) -> None:
        """Record it in the draft of a status."""
        status.coder_url, status.control_plane_ref_name = self.url, self.plane
        status.credentials_secret_ref = self.credentials

    @property
    def place(self) -> str:
        """Where it is, as the spec names it."""
        return f"CoderControlPlane {self.plane}" if self.plane else self.url

    @property
    def names(self) -> dict[str, str]:
        """The names for messages about errors."""
        if self.credentials is None:
            return {"coder": self.place, "user": f"The operator's user of {self.place}"}
        where = self.credentials
        user = f"The user of the token in Secret {where.name}"
        return {"coder": f"Coder at {self.url}", "user": user, "secret": where.name, "field": where.key}

    def is_of(self, proxy: CoderWorkspaceProxy) -> bool:
        """Whether the status records this target, or none."""
        recorded = proxy.status.control_plane_ref_name or proxy.status.coder_url
        return recorded in ("", self.plane or self.url)


class TargetResolver(CoderdResolver):
    """Finds the coderd where a proxy is registered; a token is sent only to the one that it is for."""

    def plane(self, proxy: CoderWorkspaceProxy) -> CoderControlPlane | None:
        """The control plane of the spec, if the spec names one that exists."""
        reference = proxy.spec.control_plane_ref
        return self.get(Key(proxy.metadata.namespace, reference.name)) if reference else None

    async def wanted(
        self, proxy: CoderWorkspaceProxy, plane: CoderControlPlane | None, report: Report
    ) -> CoderdTarget | None:
        """Where to register the proxy; if that is not possible, the condition `Registered` reports why."""
        if proxy.spec.bootstrap is not None:
            return await self._given(proxy, proxy.spec.bootstrap, report)
        if plane is None:
            name = proxy.spec.control_plane_ref.name if proxy.spec.control_plane_ref else ""
            missing = await self.why_absent(Key(proxy.metadata.namespace, name))
            report.add(REGISTERED, False, reasons.CONTROL_PLANE_MISSING, missing, stalled=True)
            return None
        coderd = await self.with_operator_token(plane)
        if coderd is None:
            waiting, disabled = self.waiting_for_access(plane), plane.spec.operator_access.disabled
            report.add(REGISTERED, False, reasons.OPERATOR_ACCESS_NOT_READY, waiting, stalled=disabled)
            return None
        license = (plane.status.license_tier, plane.status.license_last_applied_hash)
        return CoderdTarget(coderd, api_url(plane), plane=plane.metadata.name, license=license)

    async def _given(self, proxy: CoderWorkspaceProxy, given: ProxyBootstrap, report: Report) -> CoderdTarget | None:
        where = UsedSecret(name=given.credentials_secret_ref.name, key=given.credentials_secret_ref.key)
        secret = Key(proxy.metadata.namespace, where.name)
        coderd = await self.with_given_token(given.coder_url, secret, where.key)
        if coderd is None:
            missing = self._secrets.missing(secret, where.key)
            report.add(REGISTERED, False, reasons.CREDENTIALS_MISSING, missing, stalled=True)
            return None
        return CoderdTarget(coderd, given.coder_url, credentials=where)

    async def of(self, proxy: CoderWorkspaceProxy, made: RetiringProxy) -> Coderd:
        """A client for the coderd where a proxy is registered, which may not be the one of the spec."""
        namespace = proxy.metadata.namespace
        if made.control_plane_ref_name:
            plane = self.find(Key(namespace, made.control_plane_ref_name))
            if plane is None or self.has_lost_access(plane):
                raise NoCredentials(f"there is no operator access to CoderControlPlane {made.control_plane_ref_name}")
            coderd = await self.with_operator_token(plane)
            if coderd is None:
                raise coderd_errors.Unavailable(self.waiting_for_access(plane))
            return coderd
        where = made.credentials_secret_ref
        if where is None or _used_for_another(proxy, made):
            raise NoCredentials("there are no credentials for this deployment")
        coderd = await self.with_given_token(made.coder_url, Key(namespace, where.name), where.key)
        if coderd is None:
            raise coderd_errors.Unavailable(self._secrets.missing(Key(namespace, where.name), where.key))
        return coderd


def _used_for_another(proxy: CoderWorkspaceProxy, made: RetiringProxy) -> bool:
    """Whether the spec uses the Secret of a registration for another deployment now."""
    now = proxy.spec.bootstrap
    if now is None or made.credentials_secret_ref is None:
        return False
    reference = now.credentials_secret_ref
    same = UsedSecret(name=reference.name, key=reference.key) == made.credentials_secret_ref
    return same and now.coder_url != made.coder_url
