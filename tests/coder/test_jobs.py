"""Jobs that run the command line of a real Coder."""

import json
from typing import Any

import pytest

from coder_k8s.kube.objects import Kind, Manifest, Unstructured
from tests.support import eventually
from tests.support.real_coder import RealPlane, image

from .versions import VERSIONS

pytestmark = pytest.mark.timeout(400)

JOB = Kind("batch", "v1", "Job", "jobs", Unstructured)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_job_ends_with_its_condition_log_and_message(real_coder: RealPlane, version: str) -> None:
    await create_job(real_coder, "version", version, "version", "--output=json")
    await create_job(real_coder, "probe", version, "reset-password", "nobody")

    assert await outcome(real_coder, "version") == "Complete"
    assert await outcome(real_coder, "probe") == "Failed"
    pods = {pod.metadata.labels["job-name"]: pod for pod in await real_coder.pods()}
    assert json.loads(real_coder.log(pods["version"]))["version"] == f"v{version}"
    [state] = pods["probe"].manifest["status"]["containerStatuses"]
    terminated = state["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (1, "Error")
    expected = "error: dial postgres: migrations in database: get migration version: no migration"
    assert terminated["message"].splitlines()[-1] == expected


async def create_job(place: RealPlane, name: str, version: str, *args: str) -> None:
    container: dict[str, Any] = {
        "name": "coder",
        "image": image(version),
        "command": ["coder"],
        "args": list(args),
        "env": place.env,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"namespace": place.namespace, "name": name}
    await place.client.create(JOB, {"metadata": metadata, "spec": {"backoffLimit": 0, "template": template}})


async def outcome(place: RealPlane, name: str) -> str:
    """Wait until a Job has ended, and return its condition."""

    async def ended() -> str:
        job = await place.client.get(JOB, place.key_of(name))
        conditions: list[Manifest] = job.manifest.get("status", {}).get("conditions", [])
        return next((each["type"] for each in conditions if each["type"] in ("Complete", "Failed")), "")

    return await eventually(ended, place.timeout)
