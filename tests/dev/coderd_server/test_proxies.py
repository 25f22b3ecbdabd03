"""Workspace proxies of the simulator without recorded requests, according to coderd's source code."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from coder_k8s.dev.coderd_server import CoderdServer, User

PATH = "/api/v2/workspaceproxies"
HIDDEN = {"message": "Resource not found or you do not have access to this resource"}
FORBIDDEN = {"message": "An internal server error occurred.", "detail": "unauthorized: rbac: forbidden"}
BODY = {"name": "sydney", "display_name": "Sydney", "icon": "/1.png"}


class Caller:
    """A user of a licensed coderd."""

    def __init__(self, server: CoderdServer, session: aiohttp.ClientSession, token: str) -> None:
        self._server = server
        self._session = session
        self._token = token

    async def __call__(self, method: str, path: str = "", **body: Any) -> tuple[int, Any]:
        url, headers = f"{self._server.url}{PATH}{path}", {"Coder-Session-Token": self._token}
        async with self._session.request(method, url, headers=headers, json=body or None) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def server() -> AsyncIterator[CoderdServer]:
    async with CoderdServer() as server:
        server.state.install_license()
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def owner(server: CoderdServer, session: aiohttp.ClientSession) -> Caller:
    return Caller(server, session, server.state.token)


async def test_a_member_can_read_but_not_change_proxies(
    server: CoderdServer, session: aiohttp.ClientSession, owner: Caller
) -> None:
    member = Caller(server, session, server.state.add_token(User("member")))
    assert await member("POST", **BODY) == (500, FORBIDDEN)
    _, made = await owner("POST", **BODY)
    proxy = made["proxy"]["id"]
    status, listed = await member("GET")
    assert (status, [each["name"] for each in listed["regions"]]) == (200, ["primary", "sydney"])
    assert (await member("GET", f"/{proxy}"))[0] == 200
    assert await member("PATCH", f"/{proxy}", id=proxy, **BODY, regenerate_token=True) == (404, HIDDEN)
    assert await member("DELETE", f"/{proxy}") == (404, HIDDEN)
    assert await member("DELETE", "/perth") == (404, HIDDEN)
    assert server.state.proxies["sydney"].token == made["proxy_token"]


async def test_a_token_whose_scope_excludes_proxies_sees_none(
    server: CoderdServer, session: aiohttp.ClientSession, owner: Caller
) -> None:
    scoped = Caller(server, session, server.state.add_token(User("scoped", sees_itself=False)))
    _, made = await owner("POST", **BODY)
    _, listed = await scoped("GET")
    assert [each["name"] for each in listed["regions"]] == ["primary"]
    assert await scoped("DELETE", f"/{made['proxy']['id']}") == (404, HIDDEN)


async def test_a_deleted_proxy_frees_its_name_and_keeps_its_id(owner: Caller) -> None:
    _, made = await owner("POST", **BODY)
    proxy = made["proxy"]["id"]
    for _ in range(2):
        assert await owner("DELETE", f"/{proxy}") == (200, {"message": "Proxy has been deleted!"})
    status, found = await owner("GET", f"/{proxy}")
    assert (status, found["deleted"]) == (200, True)
    assert await owner("GET", "/sydney") == (404, HIDDEN)
    assert len((await owner("GET"))[1]["regions"]) == 1
    assert (await owner("POST", **BODY))[0] == 201


async def test_names(owner: Caller) -> None:
    """Names are unique regardless of case, and lookups are case-sensitive."""
    _, made = await owner("POST", **BODY)
    taken = {"message": 'Workspace proxy with name "Sydney" already exists.'}
    assert await owner("POST", **{**BODY, "name": "Sydney"}) == (409, taken)
    assert await owner("GET", "/Sydney") == (404, HIDDEN)
    _, other = await owner("POST", **{**BODY, "name": "perth"})
    other_id = other["proxy"]["id"]
    status, refused = await owner("PATCH", f"/{other_id}", id=other_id, **{**BODY, "name": "SYDNEY"})
    assert (status, "workspace_proxies_lower_name_idx" in refused["detail"]) == (500, True)
    status, refused = await owner("POST", **{**BODY, "name": "Primary"})
    assert (status, refused["detail"]) == (400, "Cannot name a workspace proxy 'primary'.")
    assert await owner("DELETE", "/primary") == (400, {"message": "Cannot delete primary proxy"})
    assert (await owner("GET", f"/{made['proxy']['id']}"))[1]["name"] == "sydney"


async def test_required_fields_of_a_change(owner: Caller) -> None:
    _, made = await owner("POST", **BODY)
    status, refused = await owner("PATCH", f"/{made['proxy']['id']}", regenerate_token=True)
    fields = [each["field"] for each in refused["validations"]]
    assert (status, fields) == (400, ["id", "name", "display_name", "icon"])
    assert (await owner("POST", display_name="x"))[0] == 400
