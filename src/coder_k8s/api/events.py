"""The events that the operator writes about objects, for the reference."""

from typing import Literal, NamedTuple

from coder_k8s.kube.objects import Kind, Object

from .controlplane import CONTROL_PLANE
from .provisioner import PROVISIONER
from .workspaceproxy import WORKSPACE_PROXY

ALL: tuple[Kind[Object], ...] = (CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY)


class Event(NamedTuple):
    """Something that is told once, when it happens."""

    reason: str
    type: Literal["Normal", "Warning"]
    kinds: tuple[Kind[Object], ...]
    when: str
    remedy: str = ""
    """What to do about it; empty when there is nothing to be done."""


EVENTS = (
    Event("Ready", "Normal", ALL, "The object became ready."),
    Event("OperatorTokenIssued", "Normal", (CONTROL_PLANE,), "The operator made a token for Coder's API."),
    Event(
        "OperatorTokenRevoked",
        "Normal",
        (CONTROL_PLANE,),
        "The token was deleted because `operatorAccess.disabled` is set.",
    ),
    Event(
        "OperatorAccessFailed",
        "Warning",
        (CONTROL_PLANE,),
        "The operator cannot get a token, or the one that it was given does not work.",
        "See the condition `OperatorAccessReady`.",
    ),
    Event("LicenseApplied", "Normal", (CONTROL_PLANE,), "The license was uploaded to Coder."),
    Event(
        "LicenseRejected",
        "Warning",
        (CONTROL_PLANE,),
        "Coder refused the license.",
        "Put a license for this deployment that has not expired into the Secret of `licenseSecretRef`.",
    ),
    Event(
        "LicenseExpiring",
        "Warning",
        (CONTROL_PLANE,),
        "The last license expires within 30, 14 or 3 days; told once each.",
        "Put a new license into the Secret of `licenseSecretRef`.",
    ),
    Event(
        "EntitlementLost",
        "Warning",
        (CONTROL_PLANE,),
        "The license no longer covers external provisioners.",
        "Renew the license. Daemons that run are left alone.",
    ),
    Event(
        "CleanupGivenUp",
        "Warning",
        (CONTROL_PLANE,),
        "Roles or RoleBindings in other namespaces could not be removed within 5 minutes after the deletion.",
        "Remove those that the message names.",
    ),
    Event("ProvisionerKeyCreated", "Normal", (PROVISIONER,), "The first key was made in Coder."),
    Event(
        "ProvisionerKeyRotated",
        "Normal",
        (PROVISIONER,),
        "Another key was made in place of the last one; the message has the cause.",
    ),
    Event("ProvisionerKeyRetired", "Normal", (PROVISIONER,), "A key that no daemon uses any more was deleted."),
    Event(
        "ProvisionerKeyLeaked",
        "Warning",
        (PROVISIONER,),
        "A key of an object that was deleted could not be deleted in Coder.",
        "Delete the key that the message names in Coder.",
    ),
    Event(
        "DaemonRestarted",
        "Warning",
        (PROVISIONER,),
        "A pod was deleted because it is ready while Coder has not seen its daemon for minutes.",
        "If it happens often: look at the network between the pods and Coder.",
    ),
    Event("WorkspaceProxyRegistered", "Normal", (WORKSPACE_PROXY,), "The proxy was registered in Coder."),
    Event(
        "WorkspaceProxyUpdated",
        "Normal",
        (WORKSPACE_PROXY,),
        "The proxy in Coder got the name, display name and icon of the spec.",
    ),
    Event(
        "WorkspaceProxyTokenRegenerated",
        "Warning",
        (WORKSPACE_PROXY,),
        "The Secret had no token of the proxy, so Coder made a new one; pods with the old one are thrown out.",
        "Find out who deleted or overwrote the Secret.",
    ),
    Event("WorkspaceProxyDeregistered", "Normal", (WORKSPACE_PROXY,), "The proxy was deleted in Coder."),
    Event(
        "WorkspaceProxyLeaked",
        "Warning",
        (WORKSPACE_PROXY,),
        "A proxy that is no longer wanted could not be deleted in Coder.",
        "Delete the proxy that the message names in Coder.",
    ),
    Event(
        "ProxyUnhealthy",
        "Warning",
        (WORKSPACE_PROXY,),
        "Coder saw the proxy as healthy and now finds something wrong.",
        "See the condition `ProxyHealthy`.",
    ),
    Event(
        "ProxyUnreachable",
        "Warning",
        (WORKSPACE_PROXY,),
        "Coder saw the proxy as healthy and does not reach it any more.",
        "See the condition `ProxyHealthy`.",
    ),
    Event(
        "ProxyUnregistered",
        "Warning",
        (WORKSPACE_PROXY,),
        "Coder saw the proxy as healthy and has not heard from it since it restarted.",
        "See the condition `ProxyHealthy`.",
    ),
)
