"""The stand-in as an HTTP server."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote_to_bytes

from aiohttp import web
from aiohttp.typedefs import Middleware

from coder_k8s.dev.coderd_server import handlers, organizations, proxies
from coder_k8s.dev.coderd_server.answers import Refused, answer, check_rate, presented_key, presented_token
from coder_k8s.dev.coderd_server.handlers import STATE
from coder_k8s.dev.coderd_server.saved import Memory
from coder_k8s.dev.coderd_server.sql_tokens import load_token
from coder_k8s.dev.coderd_server.state import State, utc_now

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CONTROLS = frozenset(
    (
        "add_key",
        "connect_daemon",
        "delete_key",
        "delete_proxy",
        "disconnect_daemon",
        "install_license",
        "remove_licenses",
        "rename_organization",
        "revoke_token",
        "set",
        "set_daemon",
        "set_proxy",
    )
)


class CoderdServer:
    """A stand-in on a free port of loopback, for as long as its context lasts.

    Given a database with coderd's tables, it also knows the tokens in there. Given a memory, it goes on from there.
    """

    def __init__(
        self,
        version: str = "2.36.1",
        now: Callable[[], datetime] = utc_now,
        port: int = 0,
        database_url: str | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.state = State(version, now)
        self.state.database_url = database_url
        self.port = port
        app = make_app(self.state)
        if memory is not None:
            memory.recall(self.state)
            app.middlewares.insert(0, remembering(memory))
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
    """The routes of this version of coderd."""
    app = web.Application(middlewares=[control, behave])
    app[STATE] = state
    app.on_response_prepare.append(date)
    app.router.add_get("/healthz", handlers.healthz, allow_head=False)
    common: dict[str, tuple[tuple[str, Handler], ...]] = {
        "buildinfo": (("GET", handlers.build_info),),
        "users/me": (("GET", handlers.me),),
        "users/me/keys/{id}": (("DELETE", handlers.delete_token),),
        "organizations": (("GET", organizations.list_organizations),),
        "organizations/{organization}": (("GET", organizations.get_organization),),
        "organizations/{organization}/provisionerdaemons": (("GET", organizations.list_daemons),),
        "organizations/{organization}/provisionerjobs": (("GET", organizations.list_jobs),),
    }
    for route, methods in {**common, **(ENTERPRISE if state.is_enterprise else {})}.items():
        for method, handler in methods:
            app.router.add_route(method, f"/api/v2/{route}", handler)
    app.router.add_route("*", "/api/v2/organizations/{organization}/{rest:.+}", organizations.unknown_in_organization)
    return app


ENTERPRISE: dict[str, tuple[tuple[str, Handler], ...]] = {
    "entitlements": (("GET", handlers.entitlements),),
    "licenses": (("GET", handlers.list_licenses), ("POST", handlers.add_license)),
    "licenses/refresh-entitlements": (("POST", handlers.refresh_entitlements),),
    "licenses/{id}": (("DELETE", handlers.delete_license),),
    "organizations": (("GET", organizations.list_organizations), ("POST", organizations.refuse_organization)),
    "organizations/{organization}": (
        ("GET", organizations.get_organization),
        ("PATCH", organizations.refuse_organization),
        ("DELETE", organizations.refuse_organization),
    ),
    "organizations/{organization}/provisionerkeys": (
        ("GET", organizations.list_keys),
        ("POST", organizations.create_key),
    ),
    "organizations/{organization}/provisionerkeys/daemons": (("GET", organizations.key_daemons),),
    "organizations/{organization}/provisionerkeys/{name}": (("DELETE", organizations.delete_key),),
    "provisionerkeys/{key:.*}": (("GET", organizations.look_up_key),),
    "workspaceproxies": (("GET", proxies.list_proxies), ("POST", proxies.create_proxy)),
    "workspaceproxies/{name}": (
        ("GET", proxies.get_proxy),
        ("PATCH", proxies.change_proxy),
        ("DELETE", proxies.delete_proxy),
    ),
    "workspaceproxies/me/register": (("POST", proxies.refuse_proxy_itself),),
}


async def date(request: web.Request, response: web.StreamResponse) -> None:
    """Say the time by the clock of coderd, which may not be that of others."""
    response.headers["Date"] = format_datetime(request.app[STATE].now().astimezone(UTC), usegmt=True)


def remembering(memory: Memory) -> Middleware:
    """Answer no request whose effect could still be forgotten."""

    @web.middleware
    async def remember(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        memory.save(request.app[STATE])
        return response

    return remember


@web.middleware
async def control(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let another process call the methods of the state: POST /_control/NAME with the arguments as JSON."""
    state = request.app[STATE]
    if request.path == "/_control/requests":
        return answer({f"{method} {route}": count for (method, route), count in state.requests.items()})
    if not request.path.startswith("/_control/"):
        return await handler(request)
    name = request.path.removeprefix("/_control/")
    if name not in CONTROLS:
        raise web.HTTPNotFound
    arguments: dict[str, Any] = await request.json()
    return answer(getattr(state, name)(**arguments))


@web.middleware
async def behave(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What coderd does around every handler, and what goes wrong when a test wants it to."""
    state = request.app[STATE]
    resource = request.match_info.route.resource
    route = resource.canonical if resource else request.path
    state.requests[request.method, route] += 1
    keep_encoded(request, route)
    state.heard |= {presented_token(request), presented_key(request)} - {""}
    if (page := await intercept(state, request)) is not None:
        return page
    if state.database_url is not None and (token := presented_token(request)):
        await load_token(state, state.database_url, token)
    try:
        response = await respond(state, request, handler)
    except Refused as refused:
        response = refused.answer
    except web.HTTPMethodNotAllowed:
        response = web.Response(status=405)
    except web.HTTPPreconditionRequired as error:
        response = web.Response(status=428, text=error.text)
    except web.HTTPNotFound:
        response = answer({"message": "Route not found."}, 404)
    if not response.body and "Content-Type" in response.headers:
        del response.headers["Content-Type"]
    response.headers["X-Coder-Build-Version"] = state.build_version
    if request.path.startswith("/api/v2/") and response.status != 428:
        left = "0" if response.status == 429 else "511"
        response.headers.update({"X-Ratelimit-Limit": "512", "X-Ratelimit-Remaining": left, "X-Ratelimit-Reset": "0"})
    return response


def keep_encoded(request: web.Request, route: str) -> None:
    """Let handlers see the parameters of a path as those of coderd do: still encoded, unless the path is exactly what
    Go makes of it when it encodes what it decoded."""
    path = request.raw_path.partition("?")[0]
    if quote(unquote_to_bytes(path), safe="/$&+,:;=@") == path:
        return
    for name, part in zip(route.split("/"), path.split("/"), strict=False):
        if name.startswith("{"):
            request.match_info[name.strip("{}")] = part


async def intercept(state: State, request: web.Request) -> web.Response | None:
    """What happens to a request on its way to coderd; a page when it does not get there."""
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
    """End the connection of a request, as a server that dies would."""
    assert request.transport is not None
    request.transport.abort()
    return ConnectionResetError()


async def respond(state: State, request: web.Request, handler: Handler) -> web.Response:
    if request.path.startswith("/api/v2/"):
        if state.switches.failing:
            raise Refused(500, "Internal error.")
        check_rate(state, request)
    response = await handler(request)
    if state.switches.unanswered == request.method:
        raise cut(request)
    assert isinstance(response, web.Response)
    return response
