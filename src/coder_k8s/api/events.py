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
    Event(
        "StatusRejected",
        "Warning",
        ALL,
        "The API server rejects the status of the object, by a rule or a webhook, so its conditions are out of date.",
        "Correct the field that the message names, or the webhook.",
    ),
    Event("OperatorTokenIssued", "Normal", (CONTROL_PLANE,), "The operator made a token for Coder's API."),
    Event(
        "OperatorTokenRevoked",
        "Normal",
        (CONTROL_PLANE,),
        "The token that the operator made was deleted in Coder: access is disabled, a given token replaces it, or the "
        "control plane is being deleted.",
    ),
    Event(
        "OperatorAccessFailed",
        "Warning",
        (CONTROL_PLANE,),
        "The operator cannot get a token and tries again.",
        "See the condition `OperatorAccessReady`.",
    ),
    Event(
        "OperatorTokenNotRenewed",
        "Warning",
        (CONTROL_PLANE,),
        "Coder accepts the operator's token, but the database cannot be checked, so the token is not renewed.",
        "Fix what the message names before the token expires, a year after it was made.",
    ),
    Event("LicenseApplied", "Normal", (CONTROL_PLANE,), "The license was uploaded to Coder."),
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
        "CleanupWaiting",
        "Normal",
        (CONTROL_PLANE,),
        "The control plane is being deleted and waits until its provisioners and proxies have deleted their keys and "
        "registrations in Coder.",
    ),
    Event(
        "CleanupGivenUp",
        "Warning",
        (CONTROL_PLANE,),
        "The control plane is deleted, and something outside of its namespace is left: keys or registrations of "
        "objects that still exist, a token in Coder, or Roles in other namespaces.",
        "Remove what the message names.",
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
        "ProvisionerKeyNameTaken",
        "Warning",
        (PROVISIONER,),
        "Coder has a key of that name that this object did not make. It is left alone, and the key gets another name.",
        "Delete the other key in Coder if nobody needs it.",
    ),
    Event(
        "ProvisionerKeyNotDeleted",
        "Warning",
        (PROVISIONER,),
        "Coder refuses to delete a key that no daemon uses any more, or hides its organization; it is tried again.",
        "Give the user of the token the role Organization Admin in the organization, or delete the key in Coder.",
    ),
    Event(
        "ProvisionerKeyLeaked",
        "Warning",
        (PROVISIONER,),
        "A key that is no longer wanted could not be deleted in Coder.",
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
        "WorkspaceProxyAdopted",
        "Normal",
        (WORKSPACE_PROXY,),
        "The object took over a proxy of its name because of the annotation `coder.com/adopt`.",
    ),
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
        "WorkspaceProxyNotDeregistered",
        "Warning",
        (WORKSPACE_PROXY,),
        "A proxy that is no longer wanted could not be deleted in Coder; it is tried again.",
        "Fix what the message names: mostly the user of the token may not delete it, or Coder is not reachable.",
    ),
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
