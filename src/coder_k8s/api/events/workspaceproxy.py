"""The events of a CoderWorkspaceProxy."""

from .event import Event

WORKSPACE_PROXY_REGISTERED = Event("WorkspaceProxyRegistered", "Normal", "The operator registered the proxy in Coder.")
WORKSPACE_PROXY_ADOPTED = Event(
    "WorkspaceProxyAdopted",
    "Normal",
    "The object took over a proxy of its name because of the annotation `coder.com/adopt`.",
)
WORKSPACE_PROXY_UPDATED = Event(
    "WorkspaceProxyUpdated",
    "Normal",
    "The operator updated name, display name or icon of the proxy in Coder.",
)
WORKSPACE_PROXY_TOKEN_REGENERATED = Event(
    "WorkspaceProxyTokenRegenerated",
    "Warning",
    "The Secret had no token of the proxy, so Coder issued a new one; pods with the previous one are disconnected.",
    "Find out who deleted or overwrote the Secret.",
)
WORKSPACE_PROXY_DEREGISTERED = Event("WorkspaceProxyDeregistered", "Normal", "The operator deleted the proxy in Coder.")
WORKSPACE_PROXY_NOT_DEREGISTERED = Event(
    "WorkspaceProxyNotDeregistered",
    "Warning",
    "The operator cannot delete a proxy in Coder that is no longer needed; it retries.",
    "Fix what the message names: usually the user of the token cannot delete it, or Coder is not reachable.",
)
WORKSPACE_PROXY_LEAKED = Event(
    "WorkspaceProxyLeaked",
    "Warning",
    "The operator could not delete a proxy in Coder that is no longer needed.",
    "Delete the proxy that the message names in Coder.",
)
PROXY_UNHEALTHY = Event(
    "ProxyUnhealthy",
    "Warning",
    "Coder reported the proxy as healthy and now reports errors.",
    "See the condition `ProxyHealthy`.",
)
PROXY_UNREACHABLE = Event(
    "ProxyUnreachable",
    "Warning",
    "Coder reported the proxy as healthy and can no longer reach it.",
    "See the condition `ProxyHealthy`.",
)
PROXY_UNREGISTERED = Event(
    "ProxyUnregistered",
    "Warning",
    "Coder reported the proxy as healthy, and the proxy has not connected since Coder restarted.",
    "See the condition `ProxyHealthy`.",
)

WORKSPACE_PROXY_EVENTS = (
    WORKSPACE_PROXY_REGISTERED,
    WORKSPACE_PROXY_ADOPTED,
    WORKSPACE_PROXY_UPDATED,
    WORKSPACE_PROXY_TOKEN_REGENERATED,
    WORKSPACE_PROXY_DEREGISTERED,
    WORKSPACE_PROXY_NOT_DEREGISTERED,
    WORKSPACE_PROXY_LEAKED,
    PROXY_UNHEALTHY,
    PROXY_UNREACHABLE,
    PROXY_UNREGISTERED,
)
