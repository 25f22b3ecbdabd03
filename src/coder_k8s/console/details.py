"""What `status` shows of one kind only: the fields of `details`, and their text."""

from collections.abc import Iterator
from typing import Any

from coder_k8s.api import (
    CONTROL_PLANE,
    PROVISIONER,
    WORKSPACE_PROXY,
    CoderControlPlane,
    CoderObject,
    CoderProvisioner,
    CoderWorkspaceProxy,
)


def details(of: CoderObject) -> dict[str, Any]:
    """Return the fields that only this kind has, with the names of its status."""
    match of:
        case CoderControlPlane():
            status = of.status
            return {"version": status.version, "url": status.url, "licenseTier": status.license_tier}
        case CoderProvisioner():
            return _provisioner(of)
        case CoderWorkspaceProxy():
            return _proxy(of)
    return {}


def facts(kind: str, details: dict[str, Any]) -> Iterator[str]:
    """Yield the details of an object as text."""
    if kind == CONTROL_PLANE.name:
        yield details["version"]
        yield f"license {details['licenseTier']}" if details["licenseTier"] else ""
        yield details["url"]
    elif kind == PROVISIONER.name:
        if (daemons := details["daemons"]) is not None:
            yield f"{daemons['connected']} connected"
            yield f"{daemons['busy']} busy"
            yield f"{daemons['offline']} offline" if daemons["offline"] else ""
        yield f"key {details['provisionerKeyName']}" if details["provisionerKeyName"] else ""
        yield f"retiring {', '.join(details['retiringKeys'])}" if details["retiringKeys"] else ""
    elif kind == WORKSPACE_PROXY.name:
        yield "registered" if details["registered"] else ""
        yield f"of {details['coderURL']}" if details["coderURL"] else ""


def _provisioner(provisioner: CoderProvisioner) -> dict[str, Any]:
    status = provisioner.status
    daemons = status.daemons
    return {
        "organizationName": status.organization_name or provisioner.spec.organization_name,
        "provisionerKeyName": status.provisioner_key_name,
        "retiringKeys": [key.name for key in status.retiring_keys],
        "daemons": None
        if daemons is None
        else {
            "connected": daemons.connected,
            "busy": daemons.busy,
            "offline": daemons.offline,
            "versions": daemons.versions,
        },
    }


def _proxy(proxy: CoderWorkspaceProxy) -> dict[str, Any]:
    status, bootstrap = proxy.status, proxy.spec.bootstrap
    return {
        "registered": status.registered,
        "proxyName": status.proxy_name,
        "coderURL": status.coder_url or (bootstrap.coder_url if bootstrap else proxy.spec.primary_access_url),
    }
