"""What `status` shows of one kind only: the fields of `details`, and their text."""

from collections.abc import Iterator
from typing import Any

from coder_k8s.api import (
    CONTROL_PLANE,
    PROVISIONER,
    TEMPLATE,
    WORKSPACE_PROXY,
    CoderControlPlane,
    CoderObject,
    CoderProvisioner,
    CoderTemplate,
    CoderWorkspaceProxy,
)
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.api.updates import Step
from coder_k8s.kube.conditions import find


def details(of: CoderObject) -> dict[str, Any]:
    """Return the fields that only this kind has, with the names of its status."""
    match of:
        case CoderControlPlane():
            status = of.status
            return {
                "version": status.version,
                "url": status.url,
                "licenseTier": status.license_tier,
                "health": _health(status),
                "unservedJobs": sum(each.count for each in status.unserved_jobs),
                "update": _update(of),
            }
        case CoderProvisioner():
            return _provisioner(of)
        case CoderWorkspaceProxy():
            return _proxy(of)
        case CoderTemplate():
            return _template(of)
    return {}


def facts(kind: str, details: dict[str, Any]) -> Iterator[str]:
    """Yield the details of an object as text."""
    if kind == CONTROL_PLANE.name:
        yield details["version"]
        yield f"license {details['licenseTier']}" if details["licenseTier"] else ""
        if (health := details["health"]) is not None:
            codes = f" ({', '.join(health['codes'])})" if health["codes"] else ""
            yield f"health {health['severity']}{codes}"
        yield f"{details['unservedJobs']} jobs without a provisioner" if details["unservedJobs"] else ""
        yield details["url"]
        if update := details["update"]:
            yield f"update to {update['image']}: {update['step']}"
    elif kind == PROVISIONER.name:
        if (daemons := details["daemons"]) is not None:
            yield f"{daemons['connected']} connected"
            yield f"{daemons['busy']} busy"
            yield f"{daemons['offline']} offline" if daemons["offline"] else ""
        if (scaling := details["autoscaling"]) is not None:
            yield f"autoscaled to {scaling['desiredReplicas']} of at most {scaling['maxReplicas']}"
            yield f"{scaling['pendingJobs']} waiting" if scaling["pendingJobs"] else ""
            yield f"limited by {scaling['limitedBy']}" if scaling["limitedBy"] else ""
        yield f"key {details['provisionerKeyName']}" if details["provisionerKeyName"] else ""
        yield f"retiring {', '.join(details['retiringKeys'])}" if details["retiringKeys"] else ""
    elif kind == WORKSPACE_PROXY.name:
        yield "registered" if details["registered"] else ""
        yield f"of {details['coderURL']}" if details["coderURL"] else ""
    elif kind == TEMPLATE.name:
        yield f"active version {details['activeVersion']}" if details["activeVersion"] else ""
        yield f"importing {details['importing']}" if details["importing"] else ""
        yield f"failed version {details['failed']}" if details["failed"] else ""
        yield f"source {details['revision']}" if details["revision"] else ""


def _health(status: ControlPlaneStatus) -> dict[str, Any] | None:
    """What Coder's own health check found; unknown while it has no result."""
    condition, health = find(status.conditions, "Healthy"), status.health
    if condition is None:
        return None
    if condition.status == "Unknown" or health is None:
        return {"severity": "unknown", "codes": [], "reason": condition.reason}
    return {"severity": health.severity, "codes": health.codes, "reason": condition.reason}


def _update(plane: CoderControlPlane) -> dict[str, Any] | None:
    """Return the update, unless the last one is complete."""
    update = plane.status.update
    if update is None or update.step == Step.COMPLETE:
        return None
    return {"image": update.image, "step": update.step, "to": update.to}


def _provisioner(provisioner: CoderProvisioner) -> dict[str, Any]:
    status = provisioner.status
    daemons = status.daemons
    return {
        "organizationName": status.organization_name or provisioner.spec.organization_name,
        "provisionerKeyName": status.provisioner_key_name,
        "retiringKeys": [key.name for key in status.retiring_keys],
        "autoscaling": _autoscaling(provisioner),
        "daemons": None
        if daemons is None
        else {
            "connected": daemons.connected,
            "busy": daemons.busy,
            "offline": daemons.offline,
            "versions": daemons.versions,
        },
    }


def _autoscaling(provisioner: CoderProvisioner) -> dict[str, Any] | None:
    spec, status = provisioner.spec.autoscaling, provisioner.status.autoscaling
    if spec is None or status is None:
        return None
    return {
        "desiredReplicas": status.desired_replicas,
        "maxReplicas": spec.max_replicas,
        "pendingJobs": status.pending_jobs,
        "limitedBy": status.limited_by,
    }


def _proxy(proxy: CoderWorkspaceProxy) -> dict[str, Any]:
    status, bootstrap = proxy.status, proxy.spec.bootstrap
    return {
        "registered": status.registered,
        "proxyName": status.proxy_name,
        "coderURL": status.coder_url or (bootstrap.coder_url if bootstrap else proxy.spec.primary_access_url),
    }


def _template(template: CoderTemplate) -> dict[str, Any]:
    status = template.status
    return {
        "organizationName": template.spec.organization_name,
        "activeVersion": status.active_version.name if status.active_version else "",
        "importing": status.importing.name if status.importing else "",
        "failed": status.failed.name if status.failed else "",
        "revision": status.source.revision if status.source else "",
    }
