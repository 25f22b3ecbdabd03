"""A real Coder whose pods are replaced or killed, and whose database stops."""

import asyncio
import os
import signal
from collections import Counter

import pytest

from tests.support import eventually
from tests.support.controlplanes import operator_tokens
from tests.support.real_coder import RealPlane

from .coder_client import CONNECT_ERRORS, CoderClient
from .versions import MOSTLY_LATEST

pytestmark = pytest.mark.timeout(600)

RATE = 20
UNLIMITED = {"name": "CODER_API_RATE_LIMIT", "value": "-1"}
OUTAGE = 20.0


class Load:
    """A client that sends requests at a constant rate, and counts the responses."""

    def __init__(self, url: str) -> None:
        self.results: Counter[str] = Counter()
        self._url = url

    async def run(self) -> None:
        """Send requests until this is cancelled."""
        loop = asyncio.get_running_loop()
        started, sent = loop.time(), 0
        async with CoderClient(self._url) as coder, asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._send(coder))
                sent += 1
                await asyncio.sleep(max(0.0, started + sent / RATE - loop.time()))

    async def _send(self, coder: CoderClient) -> None:
        try:
            status, answer = await coder.request("GET", "/buildinfo")
            self.results["ok" if status == 200 and answer["version"].startswith("v") else str(status)] += 1
        except CONNECT_ERRORS as error:
            self.results[repr(error)] += 1


@pytest.mark.coder
async def test_no_request_fails_while_pods_roll(real_coder: RealPlane) -> None:
    async with real_coder.operator():
        await real_coder.make(extraEnv=[*real_coder.env, UNLIMITED])
        await real_coder.ready()
        before = {pod.metadata.uid for pod in await real_coder.pods()}
        load = Load(real_coder.url)
        requests = asyncio.create_task(load.run())
        verbose = {"name": "CODER_VERBOSE", "value": "true"}
        await real_coder.change(extraEnv=[*real_coder.env, UNLIMITED, verbose])

        async def replaced() -> bool:
            pods = await real_coder.pods()
            return len(pods) == 2 and not before & {pod.metadata.uid for pod in pods}

        await eventually(replaced, real_coder.timeout)
        await real_coder.ready()
        requests.cancel()
        await asyncio.wait([requests])
    assert set(load.results) == {"ok"}, load.results
    assert load.results["ok"] >= RATE


@pytest.mark.coder
async def test_killed_processes_start_again_and_conditions_follow(real_coder: RealPlane) -> None:
    async with real_coder.operator():
        await real_coder.make()
        await real_coder.ready()
        token, pods = await real_coder.token(), await real_coder.pods()
        for pod in pods:
            os.kill(real_coder.pid(pod), signal.SIGKILL)
        await real_coder.condition("Available", "NoReplicasReady", "False")
        await real_coder.condition("Ready", "NoReplicasReady", "False")
        await real_coder.ready()
        after = await real_coder.pods()
        assert [pod.metadata.uid for pod in after] == [pod.metadata.uid for pod in pods]
        states = [pod.manifest["status"]["containerStatuses"][0] for pod in after]
        assert [state["restartCount"] for state in states] == [1, 1]
        assert [state["lastState"]["terminated"]["exitCode"] for state in states] == [137, 137]
        assert await real_coder.token() == token


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_nothing_is_revoked_while_the_database_is_stopped(real_coder: RealPlane, version: str) -> None:
    async with real_coder.operator():
        await real_coder.make(version=version)
        await real_coder.ready()
    token, tokens = await real_coder.token(), await operator_tokens(real_coder.database)
    events = len(await real_coder.events("OperatorTokenIssued"))
    async with real_coder.stopped_database(), real_coder.operator():  # a new operator knows nothing from before
        await real_coder.touch()
        await asyncio.sleep(OUTAGE)
        await real_coder.condition("Ready", "DatabaseUnreachable", "False")
        assert await real_coder.token() == token
    async with real_coder.operator(), CoderClient(real_coder.url) as coder:
        await real_coder.touch()
        await real_coder.ready()
        assert await real_coder.token() == token
        assert await operator_tokens(real_coder.database) == tokens
        assert await coder.status(token) == 200
    assert len(await real_coder.events("OperatorTokenIssued")) == events
    restarts = [pod.manifest["status"]["containerStatuses"][0]["restartCount"] for pod in await real_coder.pods()]
    assert restarts == [0, 0]
