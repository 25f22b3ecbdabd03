"""Whether there is an API server, and which kinds it serves."""

import asyncio
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from coder_k8s.kube import errors
from coder_k8s.kube.http import Http
from coder_k8s.kube.objects import Key, Kind
from coder_k8s.kube.wait import wait_any

PAUSE = 0.25
"""Between two tries."""
DISTRUST = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's word for a certificate that time will not make better."""


class NotReachable(Exception):
    """There is no point in waiting longer; says what was tried and what to do about it."""


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = []


async def wait_for_server(http: Http, server: str, stopping: asyncio.Event, patience: float) -> None:
    """Ask once whether somebody is there who knows us; one that just restarts gets `patience` seconds."""
    deadline = time.monotonic() + patience
    while not stopping.is_set():
        try:
            async with asyncio.timeout(max(PAUSE, deadline - time.monotonic())):
                await http.send("GET", "/version", {}, {"Accept": "application/json"})
        except errors.Unauthorized as refusal:
            raise NotReachable(
                f"the API server at {server} does not accept our credentials ({refusal}): renew those of the kubeconfig"
            ) from None
        except (errors.Unreachable, errors.ServerError, errors.Throttled, TimeoutError) as trouble:
            if DISTRUST in str(trouble):
                raise NotReachable(
                    f"the certificate of the API server at {server} is not trusted: "
                    f"check certificate-authority in the kubeconfig ({_reason(trouble)})"
                ) from None
            if time.monotonic() >= deadline:
                raise NotReachable(
                    f"no answer from the API server at {server} within {patience:g} s: "
                    f"check the kubeconfig, its context and the network ({_reason(trouble)})"
                ) from None
        except errors.ApiError:
            return  # a refusal is an answer
        else:
            return
        await wait_any(stopping, timeout=PAUSE)


async def missing(http: Http, kinds: Iterable[Kind[Any]]) -> list[Kind[Any]]:
    """Those of the kinds that the API server does not serve."""
    absent: list[Kind[Any]] = []
    for _, group in groupby(kinds, key=lambda kind: kind.api_version):
        wanted = list(group)
        served = await _served(http, wanted[0])
        absent += [kind for kind in wanted if kind.plural not in served]
    return absent


async def _served(http: Http, of: Kind[Any]) -> set[str]:
    path = of.path(Key("", "")).removesuffix(f"/{of.plural}")
    try:
        answer = await http.send("GET", path, {}, {"Accept": "application/json"})
    except errors.NotFound:
        return set()
    return {resource.name for resource in msgspec.json.decode(answer, type=_ResourceList).resources}


def _reason(trouble: BaseException) -> str:
    return str(trouble) or "it does not answer"
