"""Provisioner jobs of the simulator: who takes them, how they are listed, and when they fail."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from coder_k8s.dev.coderd_server import CoderdServer, State
from coder_k8s.dev.coderd_server.queue import PREBUILDS
from coder_k8s.dev.coderd_server.tags import complete, covers

USER = "7a245f36-fee2-48e5-a3c8-9a87ce5380cf"


class Coderd:
    """A licensed coderd with a clock."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 15, 19, 0, tzinfo=UTC)
        self.server = CoderdServer(now=lambda: self.time)
        self.server.state.install_license()

    @property
    def state(self) -> State:
        return self.server.state

    def wait(self, **duration: float) -> None:
        self.time += timedelta(**duration)

    def daemon(self, name: str, **tags: str) -> str:
        if name not in self.state.keys:
            self.state.add_key(name, tags)
        self.wait(seconds=1)
        return self.state.connect_daemon(name, name)

    def job(self, *, tags: dict[str, str] | None = None, **fields: Any) -> str:
        self.wait(seconds=1)
        return self.state.queue.add_job(tags, **fields)

    async def list(self, what: str = "jobs", **query: str) -> list[dict[str, Any]]:
        status, body = await self.get(what, **query)
        assert status == 200, body
        return list(body)

    async def get(self, what: str = "jobs", path: str = "", **query: str) -> tuple[int, Any]:
        url = f"{self.server.url}/api/v2/organizations/default/provisioner{what}{path}"
        headers = {"Coder-Session-Token": self.state.token}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(url, params=query) as answer,
        ):
            return answer.status, await answer.json()


@pytest.fixture
async def coderd() -> AsyncIterator[Coderd]:
    made = Coderd()
    async with made.server:
        yield made


@pytest.mark.parametrize(
    ("daemon", "job", "covered"),
    [
        ({}, {}, True),
        ({"env": "gpu"}, {}, False),
        ({}, {"env": "gpu"}, False),
        ({"env": "gpu"}, {"env": "gpu"}, True),
        ({"env": "gpu", "zone": "a"}, {"env": "gpu"}, True),
        ({"env": "gpu"}, {"env": "gpu", "zone": "a"}, False),
        ({"env": "GPU"}, {"env": "gpu"}, False),
        ({"env": "gpu"}, {"env": ""}, False),
        ({"env": "gpu"}, {"env": "gpu", "scope": "user"}, False),
        ({"scope": "user"}, {"scope": "user"}, False),
    ],
)
def test_which_daemon_covers_a_job(daemon: dict[str, str], job: dict[str, str], covered: bool) -> None:
    """A key has no user, so a daemon with a key never has the owner of a job of a user."""
    assert covers(complete(daemon), complete(job, user=USER)) is covered


def test_jobs_are_taken_by_tags_and_age_and_prebuilds_last(coderd: Coderd) -> None:
    gpu, plain = coderd.daemon("gpu", env="gpu"), coderd.daemon("plain")
    prebuild = coderd.job(initiator=PREBUILDS)
    tagged, older, newer = coderd.job(tags={"env": "gpu"}), coderd.job(), coderd.job()
    elsewhere = coderd.job(organization=coderd.state.add_organization("second"))
    acquire, finish = coderd.state.acquire_job, coderd.state.queue.finish_job
    assert acquire(gpu) == tagged
    taken = []
    while job := acquire(plain):
        taken.append(job)
        finish(job)
    assert taken == [older, newer, prebuild]
    assert coderd.state.queue.job(elsewhere).status == "pending"


async def test_list_shows_the_queue_and_its_workers(coderd: Coderd) -> None:
    coderd.daemon("gpu", env="gpu")
    plain = coderd.daemon("plain")
    running, unserved, waiting = coderd.job(), coderd.job(tags={"env": "arm"}), coderd.job()
    assert coderd.state.acquire_job(plain) == running
    listed = await coderd.list()
    assert [each["id"] for each in listed] == [waiting, unserved, running]
    assert [each["queue_position"] for each in listed] == [2, 1, 0]
    assert {each["queue_size"] for each in listed} == {2}
    assert [each.get("available_workers") for each in listed] == [[plain], None, None]
    assert (listed[2]["status"], listed[2]["worker_id"], listed[2]["worker_name"]) == ("running", plain, "plain")
    [busy] = await coderd.list("daemons", status="busy")
    assert (busy["id"], busy["current_job"]["id"], busy["previous_job"]) == (plain, running, None)
    coderd.wait(seconds=3)
    coderd.state.queue.finish_job(running)
    [done] = await coderd.list(status="succeeded")
    assert done["created_at"] < done["started_at"] < done["completed_at"]
    [idle] = await coderd.list("daemons", ids=plain)
    assert (idle["status"], idle["current_job"], idle["previous_job"]["id"]) == ("idle", None, running)


async def test_limit_is_50_unless_it_is_given(coderd: Coderd) -> None:
    jobs = [coderd.job() for _ in range(60)]
    assert len(await coderd.list()) == 50
    assert len(await coderd.list(limit="7")) == 7
    assert [each["id"] for each in await coderd.list(limit="0")] == jobs[::-1]
    for number in range(60):
        coderd.daemon(f"daemon-{number}")
    assert len(await coderd.list("daemons")) == 50
    assert len(await coderd.list("daemons", limit="0")) == 60


async def test_filters(coderd: Coderd) -> None:
    tagged = coderd.job(tags={"env": "gpu", "zone": "a"})
    other = coderd.job(initiator=USER)
    assert [each["id"] for each in await coderd.list(tags=json.dumps({"env": "gpu"}))] == [tagged]
    assert [each["id"] for each in await coderd.list(initiator=USER)] == [other]
    assert [each["id"] for each in await coderd.list(ids=f"{tagged},{USER}")] == [tagged]
    untagged = json.dumps({"scope": "organization", "owner": ""})
    assert [each["id"] for each in await coderd.list(tags=untagged)] == [other]
    assert (await coderd.get(path=f"/{tagged}"))[1]["id"] == tagged
    assert (await coderd.get(path=f"/{USER}"))[0] == 404


async def test_rejected_parameters(coderd: Coderd) -> None:
    status, body = await coderd.get(limit="-1", offline="true", initiator="me")
    assert status == 400
    assert body["validations"] == [
        {"field": "limit", "detail": 'Query param "limit" must be a valid 32-bit positive integer: value is negative'},
        {"field": "initiator", "detail": 'Query param "initiator" must be a valid uuid'},
        {"field": "offline", "detail": '"offline" is not a valid query param'},
    ]


async def test_a_job_that_nobody_takes_fails_after_30_minutes(coderd: Coderd) -> None:
    jobs = [coderd.job(tags={"env": "arm"}) for _ in range(12)]
    coderd.wait(minutes=30)
    coderd.wait(seconds=-12)
    assert len(await coderd.list(status="pending")) == 12
    coderd.wait(minutes=1)
    failed = await coderd.list(status="failed")
    assert len(failed) == 10, "coderd fails ten per minute"
    reason = "Coder: Build has been detected as pending for 30 minutes and has been terminated by the reaper."
    assert {each["error"] for each in failed} == {reason}
    assert {each["started_at"] for each in failed} == {each["completed_at"] for each in failed}
    coderd.wait(minutes=1)
    assert len(await coderd.list(status="failed")) == len(jobs)


async def test_a_job_whose_daemon_is_killed_fails_after_5_minutes(coderd: Coderd) -> None:
    daemon, job = coderd.daemon("plain"), coderd.job()
    coderd.state.acquire_job(daemon)
    coderd.wait(hours=2)
    assert len(await coderd.list(status="running")) == 1
    coderd.state.close_daemon(daemon)
    coderd.wait(minutes=4)
    assert (await coderd.list("daemons", offline="true"))[0]["status"] == "busy"
    coderd.wait(minutes=3)
    [failed] = await coderd.list(status="failed")
    assert failed["id"] == job
    assert "hung for 5 minutes" in failed["error"]
    assert (await coderd.list("daemons", offline="true"))[0]["status"] == "offline"


async def test_a_daemon_that_left_is_idle_for_90_seconds(coderd: Coderd) -> None:
    daemon = coderd.daemon("plain")
    coderd.wait(seconds=60)
    coderd.state.close_daemon(daemon)
    coderd.wait(seconds=80)
    assert [each["status"] for each in await coderd.list("daemons")] == ["idle"]
    coderd.wait(seconds=20)
    assert await coderd.list("daemons") == []
    assert [each["status"] for each in await coderd.list("daemons", offline="true")] == ["offline"]
    assert [each["status"] for each in await coderd.list("daemons", status="offline")] == ["offline"]


async def test_a_deleted_key_leaves_a_running_job_without_a_name(coderd: Coderd) -> None:
    daemon = coderd.daemon("plain")
    coderd.job()
    coderd.state.acquire_job(daemon)
    coderd.state.delete_key("plain")
    [running] = await coderd.list(status="running")
    assert running["worker_id"] == daemon
    assert "worker_name" not in running


def test_canceling(coderd: Coderd) -> None:
    queue = coderd.state.queue
    daemon, running, waiting = coderd.daemon("plain"), coderd.job(), coderd.job()
    coderd.state.acquire_job(daemon)
    queue.cancel_job(running)
    queue.cancel_job(waiting)
    assert (queue.job(running).status, queue.job(waiting).status) == ("canceling", "canceled")
    queue.finish_job(running)
    assert queue.job(running).status == "canceled"
    assert coderd.state.acquire_job(daemon) == ""
