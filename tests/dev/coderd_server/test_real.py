"""The simulator responds like coderd: both get the same requests, in a state that they built up in the same way.

If a response differs, the simulator is wrong.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from yarl import URL

from coder_k8s.dev.coder_build import AGPL, LATEST
from coder_k8s.dev.coderd_server import CoderdServer
from tests.dev.coderd_server.script import SCRIPT, Step
from tests.support.real_coderd import Coderd, RealCoderd, SimulatedCoderd

SIMULATED = {LATEST: LATEST, AGPL: "agpl"}
COMPARED = ("Content-Type", "Retry-After", "Www-Authenticate", "X-Coder-Build-Version", "X-Ratelimit-Limit")
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FIXED = re.compile(r"00000000-0000-0000-0000-0000000000\d\d")
RANDOM = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "{time}"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "{url}"),
    (re.compile(r"\b\d+ seconds"), "{seconds}"),
)
SECRETS = ("webpush_public_key",)


@dataclass(frozen=True)
class Answer:
    """A response whose IDs are numbered in the order in which they occur."""

    status: int
    headers: dict[str, str]
    body: Any


class Player:
    """Plays a script on one server."""

    def __init__(self, coderd: Coderd) -> None:
        self._coderd = coderd
        self._known = {"operator": coderd.token}
        self._ids: dict[str, str] = {}

    async def play(self, steps: tuple[Step, ...]) -> list[Answer]:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            return [await self._take(session, step) for step in steps]

    async def _take(self, session: aiohttp.ClientSession, step: Step) -> Answer:
        if step.change is not None:
            self._known |= await step.change(self._coderd, self._known)
            return Answer(200, {}, None)
        token = self._known.get(step.user, self._filled(step.user))
        headers = {"Coder-Session-Token": token} if token else {}
        headers |= {name: self._filled(value) for name, value in step.headers.items()}
        content = {"json": json.loads(self._filled(json.dumps(step.body)))} if step.body is not None else {}
        content = {"data": step.content} if step.content is not None else content
        url = URL(f"{self._coderd.url}/api/v2/{self._filled(step.path)}")
        async with session.request(step.method, url, headers=headers, allow_redirects=False, **content) as response:
            text = await response.text()
            body = json.loads(text) if response.content_type == "application/json" and text else text
            for name, place in step.save.items():
                self._known[name] = str(found(body, place))
            kept = {name: response.headers[name] for name in COMPARED if name in response.headers}
            kept |= {"Retry-After": "{seconds}"} if "Retry-After" in kept else {}
            return Answer(response.status, self._masked(kept), self._masked(keys(body) if step.keys_only else body))

    def _filled(self, text: str) -> str:
        for name, value in self._known.items():
            text = text.replace(f"{{{name}}}", value).replace(f"{{{name} id}}", value[:10])
        return text

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: "{secret}" if name in SECRETS else self._masked(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._masked(each) for each in value]
        if not isinstance(value, str):
            return value
        for pattern, text in RANDOM:
            value = pattern.sub(text, value)
        return ID.sub(self._number, value)

    def _number(self, match: re.Match[str]) -> str:
        found = match.group()
        return found if FIXED.fullmatch(found) else self._ids.setdefault(found, f"id {len(self._ids)}")


def found(body: Any, place: str) -> Any:
    for part in place.split("."):
        body = body[int(part) if part.isdecimal() else part]
    return body


def keys(body: Any) -> Any:
    """The names of fields, of two levels."""
    return {name: sorted(value) if isinstance(value, dict) else type(value).__name__ for name, value in body.items()}


def expected(version: str, step: Step) -> int:
    return step.agpl or step.status if version == AGPL else step.status


async def simulate(version: str) -> list[Answer]:
    async with CoderdServer(SIMULATED[version]) as server:
        server.state.users = 0
        return await Player(SimulatedCoderd(server)).play(SCRIPT)


@pytest.mark.parametrize("version", SIMULATED)
async def test_statuses_of_the_simulator(version: str) -> None:
    answers = await simulate(version)
    got = {step.name: answer.status for step, answer in zip(SCRIPT, answers, strict=True)}
    assert got == {step.name: expected(version, step) for step in SCRIPT}


@pytest.fixture
def real(request: pytest.FixtureRequest, fresh_coderd: Callable[[str], RealCoderd]) -> RealCoderd:
    return fresh_coderd(request.param)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("real", "version"),
    [pytest.param(version, version, marks=pytest.mark.coder(version)) for version in SIMULATED],
    indirect=["real"],
)
async def test_the_simulator_responds_like_coderd(real: RealCoderd, version: str) -> None:
    simulated = await simulate(version)
    answers = await Player(real).play(SCRIPT)
    different = {
        step.name: f"coderd {theirs}\nsimulator {ours}"
        for step, theirs, ours in zip(SCRIPT, answers, simulated, strict=True)
        if theirs != ours
    }
    assert not different, "\n\n".join(f"{name}:\n{both}" for name, both in different.items())
    assert [answer.status for answer in answers] == [expected(version, step) for step in SCRIPT]
