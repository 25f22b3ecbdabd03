"""Whether the API server is ready: while it starts, it answers other requests wrongly."""

from coder_k8s.console.session import Session
from coder_k8s.kube import errors

from .result import FAILED, OK, SKIPPED, Result

NAME = "API server"


async def check_api_server(session: Session) -> Result:
    try:
        await session.http.send("GET", "/readyz", {}, {})
    except (errors.Forbidden, errors.NotFound):
        return Result(NAME, SKIPPED, "You do not have permission to check whether it is ready")
    except errors.KubeError as error:
        return Result(NAME, FAILED, f"{session.server or 'It'} is not ready: {error}")
    return Result(NAME, OK, "Ready")
