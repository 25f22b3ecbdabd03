"""An API server with scripted responses, including invalid ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import msgspec
from aiohttp import web

from coder_k8s.kube.config import Config
from coder_k8s.kube.credentials import Content, CredentialCache, StaticCredentials

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]


def loop_ms() -> int:
    """The time of the event loop in milliseconds, the unit of the timers of uvloop."""
    return round(asyncio.get_running_loop().time() * 1000)


@dataclass(frozen=True)
class Seen:
    """A request that the server received."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at_ms: int = field(default_factory=loop_ms)


class Api:
    """Sends its responses in order, for any request, and repeats the last one."""

    def __init__(self, *responders: Responder) -> None:
        self.requests: list[Seen] = []
        self.port = 0
        self._responders = list(responders)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._respond)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def config(self) -> Config:
        return plain_config(self.port)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        server = self._runner.server
        assert server is not None
        return len(server.connections)

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        self.requests.append(seen)
        responder = self._responders.pop(0) if len(self._responders) > 1 else self._responders[0]
        return await responder(request)


def plain_config(port: int, token: Content | None = None) -> Config:
    """The configuration for a server on loopback without TLS."""
    credential_cache = CredentialCache(StaticCredentials("test", time.time, token=token), None, time.time)
    return Config(f"http://127.0.0.1:{port}", "default", credential_cache)


def reply(content: object = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> Responder:
    """A complete response; content other than bytes is encoded as JSON."""
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)

    async def responder(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers=headers)

    return responder


def refuse(
    code: int, reason: str = "", message: str = "", *, after: float | None = None, header: str | None = None
) -> Responder:
    """A Status with an error, with the retry delay in the body or in the `Retry-After` header."""
    return reply(status(code, reason, message, after), code, {"Retry-After": header} if header else None)


def status(code: int, reason: str = "", message: str = "", after: float | None = None) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": None if after is None else {"retryAfterSeconds": after},
    }


def cut(beginning: bytes = b"", status: int = 200) -> Responder:
    """An incomplete response, or none, after which the connection is closed."""

    async def responder(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        response.content_length = len(beginning) + 100
        if beginning:
            await response.prepare(request)
            await response.write(beginning)
        return _abort(request, response)

    return responder


def watch(*lines: bytes, ending: Literal["end", "cut", "hang"] = "hang", after: float = 0.0) -> Responder:
    """The events of a watch, one chunk per line, and how the watch ends after some seconds."""

    async def responder(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        if ending == "hang":
            await asyncio.Event().wait()
        await asyncio.sleep(after)
        return _abort(request, response) if ending == "cut" else response

    return responder


def event(type: str, content: object) -> bytes:  # noqa: A002 - the name of the field in Kubernetes
    return msgspec.json.encode({"type": type, "object": content}) + b"\n"


def listing(version: int, *items: dict[str, Any], proceed: str = "") -> Responder:
    """A page of a list."""
    return reply({"metadata": {"resourceVersion": str(version), "continue": proceed}, "items": items})


def config_map(name: str, version: int = 1, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}, "data": data}


def _abort(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return response
