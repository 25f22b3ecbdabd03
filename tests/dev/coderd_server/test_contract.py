"""The simulator responds to every recorded request as coderd did."""

import base64
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from coder_k8s.dev.coderd_server import CoderdServer, State, User
from coder_k8s.dev.coderd_server.licensing import sign
from coder_k8s.dev.coderd_server.records import Proxy
from coder_k8s.dev.coderd_server.state import RESERVED

START = datetime(2026, 11, 15, 19, 0, tzinfo=UTC)
COMPARED = ("Content-Type", "Retry-After", "Www-Authenticate", "X-Coder-Build-Version", "X-Ratelimit-Limit")
RANDOM = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "{id}"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "{time}"),
    (re.compile(r"\d+(\.\d+)?[µnm]s"), "{duration}"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "{url}"),
    (re.compile(r"^\{id\}:\w{64}$"), "{token of a proxy}"),
    (re.compile(r"^\w{43}$"), "{provisioner key}"),
)
MEASURED = ("DERPPort", "RegionLatency", "RegionV4Latency", "netcheck_logs")
"""Fields of the health report that differ in each run."""
OPERATOR = {"username": "coder-k8s-operator", "name": "coder-k8s-operator", "login_type": "none", "roles": ("owner",)}
USERS = {
    "bot": User("bot", ("owner",), login_type="none"),
    "bot with password": User("bot", ("owner",)),
    "member": User("member"),
    "named": User("admin", ("owner",), name="Admin User"),
    "nomember": User(**OPERATOR, in_organization=False),  # type: ignore[arg-type]
    "operator": User(**OPERATOR),  # type: ignore[arg-type]
    "outsider": User("outsider", in_organization=False),
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
async def test_the_response_equals_the_recorded_one(version: str, exchange: dict[str, Any]) -> None:
    """Exchanges of a licensed coderd were recorded without their headers."""
    given = exchange.get("given", {})
    clock = [START]
    server = CoderdServer(version.removesuffix("-licensed"), lambda: clock[0])
    async with server, aiohttp.ClientSession() as session:
        clock[0] += timedelta(seconds=given.get("passed", 0.5))
        if "now" in given:
            clock[0] = datetime.fromisoformat(given["now"])
        prepare(server.state, given)
        known = tokens(server.state)
        fill = {"{owner}": known["owner"], "{organization}": server.state.organization_id, **things(server.state)}
        path, headers = (replaced(exchange.get(part, {}), fill) for part in ("path", "headers"))
        if "as" in exchange:
            name = exchange["as"].replace("{owner id}", known["owner"][:10])
            headers["Coder-Session-Token"] = known.get(name, name)
        body = {"json": replaced(signed(exchange["body"]), fill)} if "body" in exchange else {}
        async with session.request(exchange["method"], server.url + path, headers=headers, **body) as response:
            text = await response.text()
            got = {name: response.headers[name] for name in COMPARED if name in response.headers}
            status = response.status

    assert status == exchange["status"]
    if "answer_headers" in exchange:
        assert replaced(got, {}) == replaced(exchange["answer_headers"], {})
    answer = json.loads(text) if got.get("Content-Type", "").startswith("application/json") else text or None
    assert replaced(answer, {}) == replaced(exchange["answer"], {})


def prepare(state: State, given: dict[str, Any]) -> None:
    """Bring the simulator to the state of the recorded coderd."""
    state.set(**given.get("switches", {}))
    state.exhausted = {(who, path) for who, path in given.get("exhausted", [])}
    if "license" in given:
        payload = base64.urlsafe_b64encode(json.dumps(given["license"]).encode()).rstrip(b"=").decode()
        state.add_license(f"e30.{payload}.e30")
    for seed in given.get("seed", []):
        if "queue_size" in seed:
            prepare_job(state, seed)
        else:
            fields = {name: seed[name] for name in ("name", "status", "tags", "current_job", "previous_job")}
            state.connect_daemon(**fields)
    prepare_licensed(state, given)


def prepare_job(state: State, seed: dict[str, Any]) -> None:
    """Add a recorded job; a running one has a daemon, which could also take the pending ones."""
    fields = {name: seed[name] for name in ("type", "input", "metadata")}
    job = state.queue.add_job(seed["tags"], **fields, created_at=datetime.fromisoformat(seed["created_at"]))
    if seed["status"] == "running":
        state.queue.change_job(job, worker=state.connect_daemon(seed["worker_name"]), started_at=state.now())


def prepare_licensed(state: State, given: dict[str, Any]) -> None:
    """Add the state that the recorded coderd had because of its license."""
    if given.get("install"):
        state.install_license()
    for claims in given.get("licenses", []):
        state.add_license(sign(claims))
    state.users, state.replicas = given.get("users", 1), given.get("replicas", 1)
    state.not_configured = frozenset(given.get("not_configured", state.not_configured))
    state.wildcard_hostname = given.get("wildcard_hostname", "")
    organization = state.add_organization(given["organization"]) if "organization" in given else ""
    for key in given.get("keys", []):
        state.add_key(key["name"], key["tags"], organization)
    for fields in given.get("daemons", []):
        key = fields.pop("key")
        daemon = state.connect_daemon(**fields, key=None if key in RESERVED else state.place(key, organization))
        if key in RESERVED:
            state.daemons[daemon] = replace(state.daemons[daemon], key=RESERVED[key])
    for fields in given.get("proxies", []):
        renamed = {"url": fields.pop("path_app_url"), "icon": fields.pop("icon_url")}
        state.proxies[fields["name"]] = Proxy(id=str(uuid4()), token="", created_at=state.now(), **renamed, **fields)


def things(state: State) -> dict[str, str]:
    """The names in requests: the existing proxy and key."""
    proxies = [each.id for each in state.proxies.values()]
    keys = [each.secret for each in state.keys.values()]
    return {"{proxy}": proxies[0] if proxies else "", "{key}": keys[0] if keys else ""}


def signed(body: Any) -> Any:
    """The body of a request; a license is signed with the recorded claims."""
    match body:
        case {"license": {"claims": claims}}:
            return {"license": sign(claims)}
        case _:
            return body


def tokens(state: State) -> dict[str, str]:
    """A token for each user of the recorded requests."""
    return {
        "owner": state.token,
        "expired": state.add_token(state.owner, expires=START),
        "unknown": "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB",
        **{name: state.add_token(user) for name, user in USERS.items()},
    }


def replaced(value: Any, fill: dict[str, str]) -> Any:
    """The value with its placeholders filled in, or with random parts replaced."""
    if isinstance(value, dict):
        return {name: "{measured}" if name in MEASURED else replaced(each, fill) for name, each in value.items()}
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
