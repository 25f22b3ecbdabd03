"""Whether the Gateway API is installed, if an object needs it."""

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.console.objects import listed
from coder_k8s.console.session import Session
from coder_k8s.kube import errors
from coder_k8s.kube.discovery import missing_kinds
from coder_k8s.kube.kinds import HTTP_ROUTE

from .result import FAILED, OK, SKIPPED, Result, summary

NAME = "Gateway API"


async def check_gateway_api(session: Session) -> Result:
    try:
        if not await missing_kinds(session.http, [HTTP_ROUTE]):
            return Result(NAME, OK, f"HTTPRoute {HTTP_ROUTE.api_version} is installed")
        planes = await listed(session, CONTROL_PLANE, "")
    except errors.NotFound:
        planes = []
    except errors.Forbidden:
        return Result(NAME, SKIPPED, "Not installed; you do not have permission to check whether an object needs it")
    except errors.KubeError as error:
        return Result(NAME, FAILED, f"Cannot check the Gateway API: {error}")
    needed = [str(plane.key) for plane in planes if plane.spec.expose and plane.spec.expose.gateway]
    if needed:
        return Result(
            NAME, FAILED, f"Not installed, but required by spec.expose.gateway of {summary(needed)}; install its CRDs"
        )
    return Result(NAME, OK, "Not installed, and no object requires it")
