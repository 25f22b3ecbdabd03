"""The simulator responds to recorded sequences of requests as coderd did, and has the same state after each of them.

The IDs of a recording stand for those of the simulator, which the responses show in the same places.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coder_k8s.dev.coderd_server import CoderdServer, State, User
from coder_k8s.dev.coderd_server.records import Organization
from tests.dev.coderd_server.test_contract import COMPARED, replaced, signed

ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|^\w{43}$")
LICENSED = {
    "entitlements": 8,
    "licenses": 33,
    "organizations": 27,
    "provisionerdaemons": 13,
    "provisionerkeys": 27,
    "workspaceproxies": 20,
}
"""How many exchanges with a licensed coderd were recorded, besides eight connections of daemons."""
NOT_OURS = {"organizations": {1, 8}, "workspaceproxies": {7, 8, 10, 11, 12, 13, 14, 15, 16, 19}}
KEY = "Coder-Provisioner-Daemon-Key"
GENERATED = re.compile(r"^[a-z]+_[a-z0-9]+$")
"""The name of a version that was created without one."""


def recorded() -> list[Any]:
    files = sorted((Path(__file__).parent / "recordings" / "sequences").glob("*.json"))
    sequences = [(file.stem, sequence) for file in files for sequence in json.loads(file.read_text())]
    return [pytest.param(sequence, id=f"{stem}-{sequence['name']}") for stem, sequence in sequences]


class Replay:
    """Replays one sequence; `ids` has the IDs of the simulator for those of the recording."""

    def __init__(self, server: CoderdServer, sequence: dict[str, Any]) -> None:
        self._server = server
        self._state = server.state
        self._user = User(**{"username": "admin", **sequence.get("user", {})}, roles=("owner",))
        self._tokens = {"owner": self._state.add_token(self._user), "member": self._state.add_token(User("member"))}
        self.ids = {sequence.get("organization", ""): self._state.organization_id}

    def do(self, step: dict[str, Any]) -> None:
        """Do what the recorded coderd did by other means than requests."""
        state = self._state
        match step["do"]:
            case "connect":
                self.ids[step["daemon"]] = state.connect_daemon(step["daemon"])
            case "upload":
                self.ids[step["file"]] = step["file"]
                state.templates.files[step["file"]] = (self._user.id, "")
            case "run":
                job = self.ids[step["job"]]
                state.queue.change_job(job, worker=self.ids[step["daemon"]], started_at=state.now())
                state.queue.finish_job(job, step.get("error", ""))
                state.queue.change_job(job, logs=step.get("logs", []))
            case "use":
                state.templates.use_versions(self.ids[step["template"]], ["a workspace"])
            case "organization":
                fields = {name: step[name] for name in ("name", "display_name", "description", "icon")}
                made = Organization(step["id"] or "an organization", created_at=state.now(), **fields)
                self.ids[made.id] = made.id
                state.put_organization(made)

    async def request(self, session: aiohttp.ClientSession, step: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        headers = {"Coder-Session-Token": self._tokens[step.get("as", "owner")]}
        path = self._ours(step["path"])
        if path.startswith("/api/v2/provisionerkeys/"):
            headers[KEY] = path.rpartition("/")[2]
        content: dict[str, Any] = {}
        if "size" in step:
            content, headers["Content-Type"] = {"data": archive(step)}, step["content_type"]
        elif "body" in step:
            content = {"json": json.loads(self._ours(json.dumps(signed(step["body"]))))}
        async with session.request(step["method"], self._server.url + path, headers=headers, **content) as response:
            text = await response.text()
            kept = {name: response.headers[name] for name in COMPARED if name in response.headers}
            return response.status, json.loads(text) if text else None, kept

    def _ours(self, text: str) -> str:
        for theirs, ours in self.ids.items():
            text = text.replace(theirs, ours) if ID.fullmatch(theirs) else text
        return text

    def differences(self, theirs: Any, ours: Any, place: str = "") -> Iterator[str]:
        """Compare a response with the recorded one, and remember which IDs stand for which."""
        if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
            for name in theirs:
                yield from self.differences(theirs[name], ours[name], f"{place}.{name}")
        elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
            for index, (left, right) in enumerate(zip(theirs, ours, strict=True)):
                yield from self.differences(left, right, f"{place}[{index}]")
        elif isinstance(theirs, str) and isinstance(ours, str) and same_text(theirs, ours):
            for left, right in zip(ID.findall(theirs), ID.findall(ours), strict=True):
                if is_key(left):
                    self.ids[left] = right
                elif (known := self.ids.setdefault(left, right)) != right:
                    yield f"{place}: {left} is {right}, and was {known}"
        elif theirs != ours:
            yield f"{place}: coderd {theirs}, simulator {ours}"


def same_text(theirs: str, ours: str) -> bool:
    generated = GENERATED.fullmatch(theirs) and GENERATED.fullmatch(ours)
    return bool(generated) or replaced(theirs, {}) == replaced(ours, {})


def is_key(text: str) -> bool:
    """Whether this is a provisioner key: in recordings, all of them have the same value."""
    return len(text) == 43


def archive(step: dict[str, Any]) -> io.BytesIO:
    """Content of the recorded size; the same size means the same content."""
    if step["content_type"] != "application/zip":
        return io.BytesIO(b"x" * int(step["size"]))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as writer:
        writer.writestr("main.tf", "")
    content.seek(0)
    return content


def prepare(state: State, sequence: dict[str, Any]) -> None:
    if sequence.get("licensed"):
        state.install_license()
    for claims in sequence.get("licenses", []):
        state.add_license(str(signed({"license": {"claims": claims}})["license"]))
    state.features = dict(sequence.get("features", {}))
    state.set(**sequence.get("switches", {}))


@pytest.mark.parametrize("sequence", recorded())
async def test_the_state_equals_the_recorded_one(sequence: dict[str, Any]) -> None:
    now = datetime.fromisoformat(sequence.get("now", "2026-11-15T19:00:00+00:00"))
    async with CoderdServer(sequence["version"], lambda: now) as server, aiohttp.ClientSession() as session:
        prepare(server.state, sequence)
        replay = Replay(server, sequence)
        for step in sequence["steps"]:
            if "do" in step:
                replay.do(step)
                continue
            status, answer, headers = await replay.request(session, step)
            assert status == step["status"], f"{step['from']}: {answer}"
            assert list(replay.differences(step["answer"], answer)) == [], step["from"]
            if "answer_headers" in step:
                assert headers == step["answer_headers"], step["from"]


def test_every_exchange_with_a_licensed_coderd_is_replayed() -> None:
    """Except for the requests of proxies and daemons, and of administrators who assign roles."""
    folder = Path(__file__).parent / "recordings"
    single = json.loads((folder / "2.36.1-licensed.json").read_text())
    together = json.loads((folder / "sequences" / "licensed.json").read_text())
    names = [
        each["from"] for each in [*single, *(step for each in together for step in each["steps"])] if "from" in each
    ]
    replayed: dict[str, set[int]] = {name.partition(":")[0]: set() for name in names}
    for name in names:
        replayed[name.partition(":")[0]].add(int(name.rpartition(" ")[2]))
    assert replayed == {name: set(range(count)) - NOT_OURS.get(name, set()) for name, count in LICENSED.items()}
