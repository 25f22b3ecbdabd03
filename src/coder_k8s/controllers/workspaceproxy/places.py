"""At which coderd a proxy is registered, and with whose credentials."""

from collections.abc import Hashable
from typing import NamedTuple

from coder_k8s.api import CoderControlPlane, CoderWorkspaceProxy, reasons
from coder_k8s.api.workspaceproxy import ProxyBootstrap, RetiringProxy, UsedSecret, WorkspaceProxyStatus
from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.planes import ControlPlaneResolver
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.objects import Key

from .outcomes import REGISTERED


class NoCredentials(Exception):
    """There is no way to a coderd any more."""


class CoderdTarget(NamedTuple):
    """A coderd to register at."""

    coderd: Coderd
    url: str
    plane: str = ""
    credentials: UsedSecret | None = None
    license: Hashable = ()
    """What is known of its license: when that changes, a refusal for want of one is old."""

    def record_in(self, status: WorkspaceProxyStatus) -> None:
        """Record it in the draft of a status."""
        status.coder_url, status.control_plane_ref_name = self.url, self.plane
        status.credentials_secret_ref = self.credentials

    @property
    def user(self) -> str:
        """Whose rights count there."""
        if self.credentials is not None:
            return f"The user of the token in Secret {self.credentials.name}"
        return f"The operator's user of CoderControlPlane {self.plane}"

    def is_of(self, proxy: CoderWorkspaceProxy) -> bool:
        """Whether the status speaks of this place, or of none."""
        recorded = proxy.status.control_plane_ref_name or proxy.status.coder_url
        return recorded in ("", self.plane or self.url)


class CoderdResolver:
    """Finds the way to a coderd; a token goes only to the one that it was given for."""

    def __init__(self, context: Context[CoderWorkspaceProxy]) -> None:
        self._planes = ControlPlaneResolver(context)
        self._secrets = context.reader
        self._connections = context.runtime.coderd

    def plane(self, proxy: CoderWorkspaceProxy) -> CoderControlPlane | None:
        """The control plane that the object names, if it names one and that is there."""
        reference = proxy.spec.control_plane_ref
        return self._planes.get(Key(proxy.metadata.namespace, reference.name)) if reference else None

    async def wanted(
        self, proxy: CoderWorkspaceProxy, plane: CoderControlPlane | None, report: Report
    ) -> CoderdTarget | None:
        """Where the object is to be registered; why it cannot be is told as the condition `Registered`."""
        if proxy.spec.bootstrap is not None:
            return await self._given(proxy, proxy.spec.bootstrap, report)
        if plane is None:
            name = proxy.spec.control_plane_ref.name if proxy.spec.control_plane_ref else ""
            missing = self._planes.why_absent(Key(proxy.metadata.namespace, name))
            report.add(REGISTERED, False, reasons.CONTROL_PLANE_MISSING, missing, stalled=True)
            return None
        coderd = await self._planes.coderd(plane)
        if coderd is None:
            waiting = f"waiting for operator access of CoderControlPlane {plane.metadata.name}"
            report.add(REGISTERED, False, reasons.OPERATOR_ACCESS_NOT_READY, waiting)
            return None
        license = (plane.status.license_tier, plane.status.license_last_applied_hash)
        return CoderdTarget(coderd, api_url(plane), plane=plane.metadata.name, license=license)

    async def _given(self, proxy: CoderWorkspaceProxy, given: ProxyBootstrap, report: Report) -> CoderdTarget | None:
        where = UsedSecret(name=given.credentials_secret_ref.name, key=given.credentials_secret_ref.key)
        token = await self._secrets.read(Key(proxy.metadata.namespace, where.name), where.key)
        if not token:
            missing = f"there is no token under key {where.key} in Secret {where.name}"
            report.add(REGISTERED, False, reasons.CREDENTIALS_MISSING, missing, stalled=True)
            return None
        coderd = Coderd(self._connections, given.coder_url, token)
        return CoderdTarget(coderd, given.coder_url, credentials=where)

    async def of(self, proxy: CoderWorkspaceProxy, made: RetiringProxy) -> Coderd:
        """The coderd at which a proxy was registered, perhaps not the one that the object names now."""
        namespace = proxy.metadata.namespace
        if made.control_plane_ref_name:
            plane = self._planes.find(Key(namespace, made.control_plane_ref_name))
            if plane is None or self._planes.has_lost_access(plane):
                raise NoCredentials(
                    f"there is no operator access to CoderControlPlane {made.control_plane_ref_name} any more"
                )
            coderd = await self._planes.coderd(plane)
            if coderd is None:
                raise coderd_errors.Unavailable("there is no operator access")
            return coderd
        where = made.credentials_secret_ref
        if where is None or _serves_another(proxy, made):
            raise NoCredentials("the credentials for that deployment are gone")
        token = await self._secrets.read(Key(namespace, where.name), where.key)
        if not token:
            raise coderd_errors.Unavailable(f"there is no token under key {where.key} in Secret {where.name}")
        return Coderd(self._connections, made.coder_url, token)


def _serves_another(proxy: CoderWorkspaceProxy, made: RetiringProxy) -> bool:
    """Whether the Secret that a proxy was registered with is now meant for another deployment."""
    now = proxy.spec.bootstrap
    if now is None or made.credentials_secret_ref is None:
        return False
    reference = now.credentials_secret_ref
    same = UsedSecret(name=reference.name, key=reference.key) == made.credentials_secret_ref
    return same and now.coder_url != made.coder_url
