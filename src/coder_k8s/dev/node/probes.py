"""HTTP probes of containers, and when their results change a container."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp

from coder_k8s.kube.objects import Manifest


@dataclass(frozen=True)
class Probe:
    """An HTTP probe; times are in seconds."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace: float | None = None
    """Grace period of a container that this probe stops, if it is not that of the pod."""


def parse(container: Manifest, name: str, address: str) -> Probe | None:
    """Return a probe of a container; `None` if there is none that uses HTTP."""
    probe: Manifest = container.get(name, {})
    if "httpGet" not in probe:
        return None
    get = probe["httpGet"]
    ports = {port.get("name", ""): port["containerPort"] for port in container.get("ports", [])}
    port = ports.get(get["port"], get["port"])
    host = get.get("host") or address
    return Probe(
        f"{get.get('scheme', 'HTTP').lower()}://{host}:{port}{get.get('path', '/')}",
        {header["name"]: header["value"] for header in get.get("httpHeaders", [])},
        probe.get("initialDelaySeconds", 0),
        probe.get("periodSeconds", 10),
        probe.get("timeoutSeconds", 1),
        probe.get("successThreshold", 1),
        probe.get("failureThreshold", 3),
        probe.get("terminationGracePeriodSeconds"),
    )


@dataclass(frozen=True)
class Verdict:
    """What a probe has concluded, and the number of results in a row that contradict or confirm it."""

    healthy: bool | None = None
    """`None` until a threshold is reached."""
    success: bool = False
    streak: int = 0


def judge(before: Verdict, success: bool, probe: Probe) -> Verdict:
    """Return the verdict after one more result.

    | result  | in a row                    | verdict    |
    |---------|-----------------------------|------------|
    | success | `success_threshold` or more | healthy    |
    | failure | `failure_threshold` or more | unhealthy  |
    | any     | fewer                       | as before  |
    """
    streak = before.streak + 1 if before.success == success else 1
    needed = probe.success_threshold if success else probe.failure_threshold
    return Verdict(success if streak >= needed else before.healthy, success, streak)


@dataclass(frozen=True)
class Result:
    """The verdict after a probe, and why the probe failed."""

    healthy: bool | None
    failure: str


async def results(http: aiohttp.ClientSession, probe: Probe) -> AsyncGenerator[Result, None]:
    """Probe for ever, and yield each result."""
    await asyncio.sleep(probe.initial_delay)
    verdict = Verdict()
    while True:
        failure = await _failure(http, probe)
        verdict = judge(verdict, not failure, probe)
        yield Result(verdict.healthy, failure)
        await asyncio.sleep(probe.period)


async def _failure(http: aiohttp.ClientSession, probe: Probe) -> str:
    """Send one request, and return why it failed."""
    timeout = aiohttp.ClientTimeout(total=probe.timeout)
    try:
        async with http.get(
            probe.url, headers=probe.headers, timeout=timeout, allow_redirects=False, ssl=False
        ) as response:
            if HTTPStatus.OK <= response.status < HTTPStatus.BAD_REQUEST:
                return ""
            return f"HTTP probe failed with statuscode: {response.status}"
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return f"Get {probe.url}: {str(error) or type(error).__name__}"
