# ruff: noqa: RUF012 - msgspec copies an empty default
"""CoderWorkspaceProxy: a workspace proxy of a Coder deployment."""

from datetime import datetime
from typing import Annotated, ClassVar

import msgspec

from coder_k8s.kube.objects import Kind

from .events.workspaceproxy import WORKSPACE_PROXY_EVENTS
from .markers import Check, Column, Resource, Schema
from .reasons.workspaceproxy import WORKSPACE_PROXY_REASONS, WorkspaceProxyCondition
from .shared import (
    GROUP,
    SERVICE_NAME,
    URL,
    VERSION,
    CoderObject,
    ControlPlaneRef,
    NoCredentials,
    NotEmpty,
    ObjectName,
    Part,
    Pods,
    PodStatus,
    Replicas,
    SecretKey,
    Service,
    Text,
    TokenSecret,
    pod_columns,
)

RETIRING_LIMIT = 16
"""Proxies of one object that are not yet deregistered."""


class ProxyBootstrap(Part, kw_only=True, frozen=True):
    """Registration of the proxy by the operator."""

    coder_url: Annotated[URL, NotEmpty]
    """URL of the Coder deployment."""
    credentials_secret_ref: TokenSecret
    """Secret with the session token of a user who can manage workspace proxies."""
    proxy_name: Annotated[
        str,
        Schema(maxLength=128),
        Check("self != 'primary'", "primary is reserved for the Coder deployment itself: choose another name"),
    ] = ""
    """Name of the proxy in Coder. Defaults to the name of the object."""
    display_name: Text = ""
    """Display name. If not set, it can be changed in Coder and is initially the name of the proxy."""
    icon: Annotated[Text, NoCredentials] = ""
    """Path or URL of the icon. If not set, it can be changed in Coder and is initially `/emojis/1f5fa.png`."""
    generated_token_secret_name: ObjectName = ""
    """Name of the Secret for the token of the proxy. Defaults to `<name>-proxy-token`."""


class WorkspaceProxySpec(Pods, kw_only=True, frozen=True):
    """Desired state of a workspace proxy."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "[has(self.proxySessionTokenSecretRef), has(self.bootstrap), has(self.controlPlaneRef)]"
            ".filter(given, given).size() == 1",
            "set exactly one of proxySessionTokenSecretRef, bootstrap and controlPlaneRef",
        ),
        Check(
            "!has(self.proxySessionTokenSecretRef) || (has(self.primaryAccessURL) && self.primaryAccessURL != '')",
            "proxySessionTokenSecretRef needs the URL of Coder: set primaryAccessURL too",
        ),
    )

    image: Text = ""
    """Container image. Defaults to `status.image` of the control plane in `controlPlaneRef`, which changes when its
    rollout is complete, otherwise to `ghcr.io/coder/coder:latest`."""
    replicas: Replicas = 1
    """Number of pods."""
    service: Service = Service()
    """The Service, named `wsproxy-<name>`."""
    primary_access_url: URL = ""
    """Access URL of the Coder deployment. Defaults to `bootstrap.coderURL` or the URL of the control plane."""
    proxy_session_token_secret_ref: TokenSecret | None = None
    """Secret with the token of a proxy that you registered yourself."""
    bootstrap: ProxyBootstrap | None = None
    """Register the proxy in any Coder deployment, with the given credentials."""
    control_plane_ref: ControlPlaneRef | None = None
    """Register the proxy in this control plane, with the operator's own access."""
    derp_only: bool = False
    """Only relay connections; do not serve workspace applications."""


class UsedSecret(Part, kw_only=True, frozen=True):
    """A value in a Secret of the same namespace that has been used."""

    name: str
    """Name of the Secret."""
    key: str
    """Key in the Secret."""


class RetiringProxy(Part, kw_only=True, frozen=True):
    """A proxy that the operator registered, that is no longer needed and not yet deregistered."""

    proxy_id: str = ""
    """ID of the proxy in Coder; empty if the response to its registration was lost."""
    proxy_name: str = ""
    """Name of the proxy in Coder."""
    registration_started: datetime | None = None
    """When the registration started, by Coder's clock; recorded before the proxy is registered."""
    coder_url: str = ""
    """URL of the Coder deployment that it was registered in."""
    control_plane_ref_name: str = ""
    """Control plane that it was registered in, if any."""
    credentials_secret_ref: UsedSecret | None = None
    """Credentials that it was registered with, if any."""


class WorkspaceProxyStatus(PodStatus, kw_only=True):
    """Observed state of a workspace proxy."""

    registered: bool = False
    """Whether the operator registered the proxy."""
    primary_access_url: str = ""
    """URL of the Coder deployment that the pods connect to."""
    proxy_id: str = ""
    """ID of the proxy in Coder."""
    proxy_name: str = ""
    """Name of the proxy in Coder; recorded before the proxy is registered."""
    registration_started: datetime | None = None
    """When the registration started, by Coder's clock; recorded before the proxy is registered. Without an ID, only a
    proxy that Coder created after that time belongs to this object."""
    coder_url: str = ""
    """URL of the Coder deployment that it is registered in."""
    control_plane_ref_name: str = ""
    """Control plane that it is registered in, if any."""
    credentials_secret_ref: UsedSecret | None = None
    """Credentials that it is registered with, if any."""
    retiring_proxies: Annotated[list[RetiringProxy], Schema(maxItems=RETIRING_LIMIT)] = []
    """Proxies that the operator registered and has not yet deregistered."""
    proxy_token_secret_ref: SecretKey | None = None
    """Secret with the token of the proxy."""
    token_checksum: str = ""
    """Hash of the token that the pods use."""


class CoderWorkspaceProxy(CoderObject, kw_only=True):
    """A workspace proxy: its registration in Coder, its token in a Secret, its Deployment and Service."""

    checks: ClassVar[tuple[Check, ...]] = (SERVICE_NAME,)

    spec: WorkspaceProxySpec
    status: WorkspaceProxyStatus = msgspec.field(default_factory=WorkspaceProxyStatus)


WORKSPACE_PROXY = Kind(GROUP, VERSION, "CoderWorkspaceProxy", "coderworkspaceproxies", CoderWorkspaceProxy)

WORKSPACE_PROXY_RESOURCE = Resource(
    WORKSPACE_PROXY,
    short_name="cwp",
    noun="proxy",
    columns=pod_columns(
        Column("Registered", ".status.registered", "boolean", wide=True),
        Column("Primary URL", ".status.primaryAccessURL", wide=True),
    ),
    conditions=WorkspaceProxyCondition,
    reasons=WORKSPACE_PROXY_REASONS,
    events=WORKSPACE_PROXY_EVENTS,
)
