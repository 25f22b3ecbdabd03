"""Checks of the installation: API server, CRDs, operator, permissions, Gateway API and metrics."""

import asyncio
import time
from datetime import UTC, datetime

from coder_k8s.console.operator import find_operator
from coder_k8s.console.session import Session

from .api_server import check_api_server
from .crds import check_crds
from .gateway import check_gateway_api
from .metrics import check_metrics
from .permissions import check_permissions
from .result import FAILED, Result
from .running import check_leader, check_operator

INTERVAL = 2.0
"""Seconds between two attempts."""


async def check_all(session: Session, operator_namespace: str, wait: float) -> list[Result]:
    """Run all checks, and again while one fails, for `wait` seconds at most; return the last results."""
    deadline = time.monotonic() + wait
    while True:
        results = await _attempt(session, operator_namespace)
        failed = any(result.outcome == FAILED for result in results)
        if not failed or time.monotonic() + INTERVAL > deadline:
            return results
        await asyncio.sleep(INTERVAL)


async def _attempt(session: Session, operator_namespace: str) -> list[Result]:
    server = await check_api_server(session)
    if server.outcome == FAILED:
        return [server]
    operator = await find_operator(session, operator_namespace)
    now = datetime.now(UTC)
    return [
        server,
        await check_crds(session),
        check_operator(operator, now),
        check_leader(operator, now),
        await check_permissions(session, operator),
        await check_gateway_api(session),
        await check_metrics(session, operator),
    ]
