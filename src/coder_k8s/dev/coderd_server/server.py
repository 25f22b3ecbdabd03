"""The HTTP server of the simulator."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote_to_bytes

from aiohttp import web
from aiohttp.typedefs import Middleware

from coder_k8s.dev.coderd_server import handlers, organizations
from coder_k8s.dev.coderd_server.handlers import STATE
from coder_k8s.dev.coderd_server.responses import (
    ErrorResponse,
    check_rate,
    json_response,
    presented_key,
    presented_token,
)
from coder_k8s.dev.coderd_server.routes import COMMON, ENTERPRISE, Handler
from coder_k8s.dev.coderd_server.saved import StateFile
from coder_k8s.dev.coderd_server.sql_tokens import load_token
from coder_k8s.dev.coderd_server.state import State, utc_now
from coder_k8s.dev.coderd_server.version_routes import UPLOADS

MAX_BODY = 100 << 20
CONTROLS = frozenset(
    (
        "acquire_job",
        "add_job",
        "add_key",
        "add_template",
        "cancel_job",
        "close_daemon",
        "connect_daemon",
        "delete_key",
        "delete_proxy",
        "disconnect_daemon",
        "dismiss_health",
        "finish_job",
        "install_license",
        "remove_licenses",
        "rename_organization",
        "revoke_token",
        "set",
        "set_daemon",
        "set_health",
        "set_proxy",
    )
)


class CoderdServer:
    """A simulator on a free port of the loopback address, as a context manager.

    With a database, it also accepts the tokens in coderd's tables. With a state file, it restores and saves its state.
    """

    def __init__(
        self,
        version: str = "2.36.1",
        now: Callable[[], datetime] = utc_now,
        port: int = 0,
        database_url: str | None = None,
        state_file: StateFile | None = None,
    ) -> None:
        self.state = State(version, now)
        self.state.database_url = database_url
        self.port = port
        app = make_app(self.state)
        if state_file is not None:
            state_file.restore(self.state)
            app.middlewares.insert(0, saving(state_file))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()


def make_app(state: State) -> web.Application:
    """Return the application with the routes of this version of coderd."""
    app = web.Application(client_max_size=MAX_BODY, middlewares=[control, behave])
    app[STATE] = state
    app.on_response_prepare.append(date)
    app.router.add_get("/healthz", handlers.healthz, allow_head=False)
    for route, methods in {**COMMON, **(ENTERPRISE if state.is_enterprise else {})}.items():
        for method, handler in methods:
            app.router.add_route(method, f"/api/v2/{route}", handler)
    app.router.add_route("*", "/api/v2/organizations/{organization}/{rest:.+}", organizations.unknown_in_organization)
    return app


async def date(request: web.Request, response: web.StreamResponse) -> None:
    """Set the `Date` header by the simulated clock of coderd."""
    response.headers["Date"] = format_datetime(request.app[STATE].now().astimezone(UTC), usegmt=True)


def saving(state_file: StateFile) -> Middleware:
    """Save the state before each response."""

    @web.middleware
    async def save(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        state_file.save(request.app[STATE])
        return response

    return save


@web.middleware
async def control(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Call a method of the state for another process: POST /_control/NAME with the arguments as JSON."""
    state = request.app[STATE]
    if request.path == "/_control/requests":
        return json_response({f"{method} {route}": count for (method, route), count in state.requests.items()})
    if not request.path.startswith("/_control/"):
        return await handler(request)
    name = request.path.removeprefix("/_control/")
    if name not in CONTROLS:
        raise web.HTTPNotFound
    arguments: dict[str, Any] = await request.json()
    owner = next(each for each in (state, state.queue, state.templates, state.health) if hasattr(each, name))
    return json_response(getattr(owner, name)(**arguments))


@web.middleware
async def behave(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Handle errors and headers as coderd does, and simulate faults."""
    state = request.app[STATE]
    resource = request.match_info.route.resource
    route = resource.canonical if resource else request.path
    state.requests[request.method, route] += 1
    keep_encoded(request, route)
    state.presented |= {presented_token(request), presented_key(request)} - {""}
    if (page := await intercept(state, request)) is not None:
        return page
    if state.database_url is not None and (token := presented_token(request)):
        await load_token(state, state.database_url, token)
    try:
        response = await respond(state, request, handler)
    except ErrorResponse as error:
        response = error.response
    except web.HTTPMethodNotAllowed:
        response = web.Response(status=405)
    except web.HTTPPreconditionRequired as error:
        response = web.Response(status=428, text=error.text)
    except web.HTTPNotFound:
        response = json_response({"message": "Route not found."}, 404)
    if not response.body and "Content-Type" in response.headers:
        del response.headers["Content-Type"]
    response.headers["X-Coder-Build-Version"] = state.build_version
    if request.path.startswith("/api/v2/") and response.status != 428:
        left = "0" if response.status == 429 else "511"
        limit = str(UPLOADS) if request.path.startswith("/api/v2/files") else "512"
        response.headers.update({"X-Ratelimit-Limit": limit, "X-Ratelimit-Remaining": left, "X-Ratelimit-Reset": "0"})
    return response


def keep_encoded(request: web.Request, route: str) -> None:
    """Pass path parameters to handlers as coderd does: encoded, unless Go encodes the decoded path in the same way."""
    path = request.raw_path.partition("?")[0]
    if quote(unquote_to_bytes(path), safe="/$&+,:;=@") == path:
        return
    for name, part in zip(route.split("/"), path.split("/"), strict=False):
        if name.startswith("{"):
            request.match_info[name.strip("{}")] = part


async def intercept(state: State, request: web.Request) -> web.Response | None:
    """Simulate a network fault or a proxy; return its HTML page, if any."""
    if state.switches.latency:
        await asyncio.sleep(state.switches.latency)
    if state.switches.cut:
        raise cut(request)
    if state.switches.sign_in_page:
        return web.Response(text="<!doctype html><title>Sign in</title>", content_type="text/html")
    if state.switches.redirect_to:
        return web.Response(status=307, headers={"Location": state.switches.redirect_to})
    return None


def cut(request: web.Request) -> ConnectionResetError:
    """Close the connection of a request, as a crashing server does."""
    assert request.transport is not None
    request.transport.abort()
    return ConnectionResetError()


async def respond(state: State, request: web.Request, handler: Handler) -> web.Response:
    if request.path.startswith("/api/v2/"):
        if state.switches.failing:
            raise ErrorResponse(500, "Internal error.")
        check_rate(state, request)
    response = await handler(request)
    if state.switches.unanswered == request.method:
        raise cut(request)
    assert isinstance(response, web.Response)
    return response
