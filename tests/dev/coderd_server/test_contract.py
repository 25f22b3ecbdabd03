"""The stand-in answers every recorded exchange as coderd did."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coder_k8s.dev.coderd_server import CoderdServer, State, User

START = datetime(2026, 11, 15, 19, 0, tzinfo=UTC)
COMPARED = ("Content-Type", "Retry-After", "Www-Authenticate", "X-Coder-Build-Version", "X-Ratelimit-Limit")
RANDOM = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "{id}"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "{time}"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "{url}"),
)
OPERATOR = {"username": "coder-k8s-operator", "name": "coder-k8s-operator", "login_type": "none", "roles": ("owner",)}
USERS = {
    "bot": User("bot", ("owner",), login_type="none"),
    "bot with password": User("bot", ("owner",)),
    "member": User("member"),
    "named": User("admin", ("owner",), name="Admin User"),
    "nomember": User(**OPERATOR, in_organization=False),  # type: ignore[arg-type]
    "operator": User(**OPERATOR),  # type: ignore[arg-type]
    "plain": User(**OPERATOR),  # type: ignore[arg-type]
    "scoped": User("scoped", sees_itself=False),
    "suspended": User("suspended", status="suspended"),
}


def recorded() -> list[Any]:
    exchanges = []
    for file in sorted((Path(__file__).parent / "recordings").glob("*.json")):
        for place, exchange in enumerate(json.loads(file.read_text())):
            name = f"{file.stem}-{place}-{exchange['from']}"
            exchanges.append(pytest.param(file.stem, exchange, id=name))
    return exchanges


@pytest.mark.parametrize(("version", "exchange"), recorded())
async def test_the_answer_is_the_recorded_one(version: str, exchange: dict[str, Any]) -> None:
    given = exchange.get("given", {})
    clock = [START]
    async with CoderdServer(version, lambda: clock[0]) as server, aiohttp.ClientSession() as session:
        clock[0] += timedelta(seconds=given.get("passed", 0.5))
        prepare(server.state, given)
        known = tokens(server.state)
        fill = {"{owner}": known["owner"], "{organization}": server.state.organization_id}
        path, headers = (replaced(exchange.get(part, {}), fill) for part in ("path", "headers"))
        if "as" in exchange:
            name = exchange["as"].replace("{owner id}", known["owner"][:10])
            headers["Coder-Session-Token"] = known.get(name, name)
        body = {"json": exchange["body"]} if "body" in exchange else {}
        async with session.request(exchange["method"], server.url + path, headers=headers, **body) as response:
            text = await response.text()
            got = {name: response.headers[name] for name in COMPARED if name in response.headers}
            status = response.status

    assert status == exchange["status"]
    assert replaced(got, {}) == replaced(exchange["answer_headers"], {})
    answer = json.loads(text) if got.get("Content-Type", "").startswith("application/json") else text or None
    assert replaced(answer, {}) == replaced(exchange["answer"], {})


def prepare(state: State, given: dict[str, Any]) -> None:
    """Bring the stand-in to the state that coderd was in."""
    state.set(**given.get("switches", {}))
    state.exhausted = {(who, path) for who, path in given.get("exhausted", [])}
    if "license" in given:
        payload = base64.urlsafe_b64encode(json.dumps(given["license"]).encode()).rstrip(b"=").decode()
        state.add_license(f"e30.{payload}.e30")
    for seed in given.get("seed", []):
        if "queue_size" in seed:
            state.jobs.append(seed)
        else:
            fields = {name: seed[name] for name in ("name", "status", "tags", "current_job", "previous_job")}
            state.connect_daemon(**fields)


def tokens(state: State) -> dict[str, str]:
    """A token for everyone who asks."""
    return {
        "owner": state.token,
        "expired": state.add_token(state.owner, expires=START),
        "unknown": "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB",
        **{name: state.add_token(user) for name, user in USERS.items()},
    }


def replaced(value: Any, fill: dict[str, str]) -> Any:
    """The value with its placeholders filled in, or with what is random made equal."""
    if isinstance(value, dict):
        return {name: replaced(each, fill) for name, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, fill) for each in value]
    if not isinstance(value, str):
        return value
    for placeholder, text in fill.items():
        value = value.replace(placeholder, text)
    if not fill:
        for pattern, text in RANDOM:
            value = pattern.sub(text, value)
    return value
