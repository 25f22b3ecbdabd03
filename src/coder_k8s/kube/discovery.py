"""Checks that the API server is reachable and which kinds it serves."""

import asyncio
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from coder_k8s.http.errors import UNTRUSTED
from coder_k8s.kube import errors
from coder_k8s.kube.http import Http
from coder_k8s.kube.objects import Key, Kind
from coder_k8s.kube.wait import wait_any

RETRY_INTERVAL = 0.25
"""Seconds between two attempts."""


class NotReachable(Exception):
    """The API server is not usable; the message names what to check."""


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = []


async def wait_for_server(http: Http, server: str, stopping: asyncio.Event, within: float) -> None:
    """Wait until the API server responds, for `within` seconds at most; raise `NotReachable` otherwise.

    Rejected credentials and an untrusted certificate fail at once.
    """
    deadline = time.monotonic() + within
    while not stopping.is_set():
        try:
            async with asyncio.timeout(max(RETRY_INTERVAL, deadline - time.monotonic())):
                await http.send("GET", "/version", {}, {"Accept": "application/json"})
        except errors.Unauthorized as error:
            raise NotReachable(
                f"the API server at {server} rejects the credentials ({error}): renew them in the kubeconfig"
            ) from None
        except (errors.Unreachable, errors.ServerError, errors.Throttled, TimeoutError) as error:
            if UNTRUSTED in str(error):
                raise NotReachable(
                    f"the certificate of the API server at {server} is not trusted: "
                    f"check certificate-authority in the kubeconfig ({_reason(error)})"
                ) from None
            if time.monotonic() >= deadline:
                raise NotReachable(
                    f"no response from the API server at {server} within {within:g} s: "
                    f"check the kubeconfig, its context and the network ({_reason(error)})"
                ) from None
        except errors.ApiError:
            return  # the server responds
        else:
            return
        await wait_any(stopping, timeout=RETRY_INTERVAL)


async def missing_kinds(http: Http, kinds: Iterable[Kind[Any]]) -> list[Kind[Any]]:
    """Return the kinds that the API server does not serve."""
    missing: list[Kind[Any]] = []
    for _, group in groupby(kinds, key=lambda kind: kind.api_version):
        members = list(group)
        served = await _served_resources(http, members[0])
        missing += [kind for kind in members if kind.plural not in served]
    return missing


async def _served_resources(http: Http, member: Kind[Any]) -> set[str]:
    """Return the plural names of all resources in the API group version of a kind."""
    path = member.path(Key("", "")).removesuffix(f"/{member.plural}")
    try:
        body = await http.send("GET", path, {}, {"Accept": "application/json"})
    except errors.NotFound:
        return set()
    return {resource.name for resource in msgspec.json.decode(body, type=_ResourceList).resources}


def _reason(error: BaseException) -> str:
    return str(error) or "timeout"
