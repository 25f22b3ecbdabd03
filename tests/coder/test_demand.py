"""The demand of an autoscaled provisioner, from the jobs of a real Coder. Without a license, tagged imports wait."""

import io
import tarfile
from datetime import UTC, datetime

import aiohttp
import pytest

from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.controllers.provisioner.demand import Member, demands
from coder_k8s.controllers.tags import key_tags
from tests.support.real_coder import RealPlane

from .coder_client import CoderClient
from .versions import MOSTLY_LATEST

pytestmark = pytest.mark.timeout(600)


def archive() -> bytes:
    """A template without resources."""
    content, file = b"terraform {}\n", io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        entry = tarfile.TarInfo("main.tf")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


async def upload(url: str, token: str) -> str:
    headers = {"Coder-Session-Token": token, "Content-Type": "application/x-tar"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/api/v2/files", data=archive(), headers=headers) as answer,
    ):
        assert answer.status in (200, 201), await answer.text()
        return str((await answer.json())["hash"])


def member(name: str, maximum: int, **tags: str) -> Member:
    return Member(name, key_tags(tags), frozenset({name}), [], Autoscaling(min_replicas=0, max_replicas=maximum))


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_tagged_imports_are_the_demand_of_the_provisioners_that_cover_them(
    real_coder: RealPlane, version: str
) -> None:
    async with real_coder.operator(), CoderClient(real_coder.url) as coder, Connections() as connections:
        await real_coder.make(version=version)
        await real_coder.ready()
        await real_coder.condition("OperatorAccessReady", "TokenReady", "True")
        token = await real_coder.token()
        user = await coder.create_first_user("human")
        status, organization = await coder.request("GET", "/organizations/default", user)
        assert status == 200
        file = await upload(real_coder.url, user)
        for index in range(3):
            body = {
                "name": f"v{index}",
                "storage_method": "file",
                "file_id": file,
                "provisioner": "terraform",
                "tags": {"gpu": "true", **({"zone": "a"} if index == 2 else {})},
            }
            path = f"/organizations/{organization['id']}/templateversions"
            status, answer = await coder.request("POST", path, user, body)
            assert status == 201, answer

        client = Coderd(connections, real_coder.url, token)
        jobs = await client.provisioner_jobs(organization["id"])
        daemons = await client.provisioner_daemons(organization["id"])
        assert sorted(job.tags.get("zone", "") for job in jobs if job.waits) == ["", "", "a"]
        members = [member("small", 1, gpu="true"), member("large", 9, gpu="true", zone="a"), member("plain", 9)]
        found = demands(jobs, daemons, members, datetime.now(UTC))
        assert {name: len(demand.share.jobs) for name, demand in found.items()} == {"small": 1, "large": 2, "plain": 0}
        assert not any(demand.busy or demand.uncertain for demand in found.values())
