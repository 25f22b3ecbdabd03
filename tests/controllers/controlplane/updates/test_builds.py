"""Whether Coder reports running builds to the operator."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest

from coder_k8s.api import CoderProvisioner
from coder_k8s.coderd import errors
from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections
from coder_k8s.controllers.controlplane.updates.fleet import follows, runs_jobs
from coder_k8s.dev.coderd_server import CoderdServer, User

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def coderd() -> AsyncIterator[CoderdServer]:
    async with CoderdServer("2.36.1", lambda: NOW) as server:
        yield server


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    async with Connections() as pool:
        yield pool


async def test_running_jobs(coderd: CoderdServer, connections: Connections) -> None:
    client, queue = Client(connections, coderd.url, coderd.state.token), coderd.state.queue
    job = queue.add_job()
    assert not await runs_jobs(client)
    queue.change_job(job, worker="built-in", started_at=NOW)
    assert await runs_jobs(client)
    queue.finish_job(job)
    assert not await runs_jobs(client)


async def test_user_who_may_not_read_jobs(coderd: CoderdServer, connections: Connections) -> None:
    """coderd responds as if the organization did not exist, and still lists it."""
    queue, user = coderd.state.queue, User("templates", ("template-admin",))
    queue.change_job(queue.add_job(), worker="built-in", started_at=NOW)
    client = Client(connections, coderd.url, coderd.state.add_token(user))
    with pytest.raises(errors.NotFound):
        await runs_jobs(client)


NONE = {"desiredReplicas": 0, "pendingJobs": 0}
READY = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "AllReady",
        "message": "",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
]
RUNNING = {"replicas": 1, "readyReplicas": 1, "conditions": READY}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param({}, {}, False, id="starts"),
        pytest.param({}, RUNNING | {"daemons": {"versions": ["v2.30.0"]}}, False, id="old daemons"),
        pytest.param({}, RUNNING | {"daemons": {"versions": ["v2.36.1"]}}, True, id="new daemons"),
        pytest.param({"replicas": 0}, {}, True, id="scaled to zero"),
        pytest.param({"image": "other"}, {}, True, id="image of its own"),
        pytest.param(
            {"autoscaling": {"minReplicas": 0, "maxReplicas": 2}}, {"autoscaling": NONE}, True, id="no demand"
        ),
        pytest.param({"autoscaling": {"minReplicas": 1, "maxReplicas": 2}}, {"autoscaling": NONE}, False, id="resumes"),
        pytest.param({"autoscaling": {"minReplicas": 0, "maxReplicas": 2}}, {}, False, id="not decided yet"),
    ],
)
def test_provisioners_that_run_the_new_version(
    spec: dict[str, object], status: dict[str, object], expected: bool
) -> None:
    manifest = {
        "metadata": {"name": "build", "namespace": "test"},
        "spec": {"controlPlaneRef": {"name": "demo"}, **spec},
        "status": status,
    }
    assert follows(msgspec.convert(manifest, CoderProvisioner), "v2.36.1") is expected
