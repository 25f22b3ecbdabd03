# ruff: noqa: RUF012 - msgspec copies an empty default
"""CoderWorkspaceProxy: a workspace proxy of a Coder deployment."""

from datetime import datetime
from typing import Annotated, ClassVar

from coder_k8s.kube.objects import Kind, Object

from .conditions import WorkspaceProxyCondition
from .markers import Check, Column, Resource, Schema
from .shared import (
    GROUP,
    SERVICE_NAME,
    URL,
    VERSION,
    ControlPlaneRef,
    NoCredentials,
    NotEmpty,
    ObjectName,
    Part,
    Pods,
    Replicas,
    SecretKey,
    Service,
    Status,
    Text,
    TokenSecret,
    columns,
)


class ProxyBootstrap(Part, kw_only=True, frozen=True):
    """Where and as what the operator registers the proxy."""

    coder_url: Annotated[URL, NotEmpty]
    """URL of the Coder deployment."""
    credentials_secret_ref: TokenSecret
    """Session token of a user who may manage workspace proxies."""
    proxy_name: Annotated[
        str,
        Schema(maxLength=128),
        Check("self != 'primary'", "primary is the Coder deployment itself: choose another name"),
    ] = ""
    """Name of the proxy in Coder. Default: the name of the object."""
    display_name: Text = ""
    """Name that people see. Without it, the name of the proxy until somebody chooses another one in Coder."""
    icon: Annotated[Text, NoCredentials] = ""
    """Icon that people see, by its path or URL. Without it, `/emojis/1f5fa.png` until somebody chooses another one in
    Coder."""
    generated_token_secret_name: ObjectName = ""
    """Secret to keep the token of the proxy in. Default: `<name>-proxy-token`."""


class WorkspaceProxySpec(Pods, kw_only=True, frozen=True):
    """The workspace proxy that is wanted."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "[has(self.proxySessionTokenSecretRef), has(self.bootstrap), has(self.controlPlaneRef)]"
            ".filter(given, given).size() == 1",
            "set exactly one of proxySessionTokenSecretRef, bootstrap and controlPlaneRef",
        ),
        Check(
            "!has(self.proxySessionTokenSecretRef) || (has(self.primaryAccessURL) && self.primaryAccessURL != '')",
            "proxySessionTokenSecretRef does not say where Coder is: set primaryAccessURL too",
        ),
    )

    image: Text = ""
    """Container image. Default: the `status.image` of the control plane of `controlPlaneRef`, which changes when its
    rollout is complete; else `ghcr.io/coder/coder:latest`."""
    replicas: Replicas = 1
    """Number of pods."""
    service: Service = Service()
    """The Service, named `wsproxy-<name>`."""
    primary_access_url: URL = ""
    """Access URL of the Coder deployment. Default: `bootstrap.coderURL`, or the URL of the control plane."""
    proxy_session_token_secret_ref: TokenSecret | None = None
    """Token of a proxy that was registered by someone else."""
    bootstrap: ProxyBootstrap | None = None
    """Register the proxy at a Coder deployment that may be anywhere."""
    control_plane_ref: ControlPlaneRef | None = None
    """Register the proxy at this control plane, with the operator's own access."""
    derp_only: bool = False
    """Relay connections only, and serve no workspace applications."""


class UsedSecret(Part, kw_only=True, frozen=True):
    """A value in a Secret of the same namespace that was used."""

    name: str
    """Name of the Secret."""
    key: str
    """Key in the Secret."""


class RetiringProxy(Part, kw_only=True, frozen=True):
    """A proxy that the operator registered, that is no longer wanted and not yet deregistered."""

    proxy_id: str = ""
    """ID of the proxy in Coder; empty when its registration was begun and perhaps not ended."""
    proxy_name: str = ""
    """Name of the proxy in Coder."""
    registration_started: datetime | None = None
    """When the name was recorded, before the proxy was registered; by Coder's clock."""
    coder_url: str = ""
    """URL of the Coder deployment that it was registered at."""
    control_plane_ref_name: str = ""
    """Control plane that it was registered at, if it was one."""
    credentials_secret_ref: UsedSecret | None = None
    """Credentials that it was registered with, if they were given."""


class WorkspaceProxyStatus(Status, kw_only=True, frozen=True):
    """The workspace proxy as it is."""

    registered: bool = False
    """Whether the operator registered the proxy."""
    proxy_id: str = ""
    """ID of the proxy in Coder."""
    proxy_name: str = ""
    """Name of the proxy in Coder, from before it is registered on."""
    registration_started: datetime | None = None
    """When the name was recorded, before the proxy was registered; by Coder's clock. Without an ID, only a proxy that
    Coder created since then counts as this object's."""
    coder_url: str = ""
    """URL of the Coder deployment that it is registered at."""
    control_plane_ref_name: str = ""
    """Control plane that it is registered at, if it is one."""
    credentials_secret_ref: UsedSecret | None = None
    """Credentials that it is registered with, if they are given."""
    retiring_proxies: Annotated[list[RetiringProxy], Schema(maxItems=16)] = []
    """Proxies that the operator registered and has yet to deregister."""
    proxy_token_secret_ref: SecretKey | None = None
    """Where the token of the proxy is."""
    token_checksum: str = ""
    """Hash of the token that the pods run with."""


class CoderWorkspaceProxy(Object, kw_only=True):
    """A workspace proxy: its registration in Coder, its token in a Secret, its Deployment and Service."""

    checks: ClassVar[tuple[Check, ...]] = (SERVICE_NAME,)

    spec: WorkspaceProxySpec
    """What is wanted."""
    status: WorkspaceProxyStatus = WorkspaceProxyStatus()
    """What is; written by the operator."""


WORKSPACE_PROXY = Kind(GROUP, VERSION, "CoderWorkspaceProxy", "coderworkspaceproxies", CoderWorkspaceProxy)

WORKSPACE_PROXY_RESOURCE = Resource(
    WORKSPACE_PROXY,
    short_name="cwp",
    columns=columns(
        Column("Registered", ".status.registered", "boolean", wide=True),
        Column("Primary URL", ".spec.primaryAccessURL", wide=True),
    ),
    conditions=WorkspaceProxyCondition,
)
