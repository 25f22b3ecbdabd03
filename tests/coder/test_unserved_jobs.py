"""Jobs in a real Coder that no provisioner can run are reported, and others are not."""

import asyncio
import io
import tarfile
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import aiohttp
import asyncpg
import pytest

from coder_k8s.coderd.client import Client
from coder_k8s.coderd.connections import Connections
from tests.controllers.test_tags import compare
from tests.support import eventually
from tests.support.real_coder import RealPlane

from .versions import MOSTLY_LATEST

pytestmark = pytest.mark.timeout(600)

BUILT_IN = [
    {"name": "CODER_PROVISIONER_DAEMONS", "value": "1"},
    {"name": "CODER_PROVISIONER_TYPES", "value": "echo"},  # needs no terraform
]
REPORTED_WITHIN = timedelta(seconds=90)


class Templates:
    """Imports template versions as the operator's user, who is an owner."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._api = f"{url}/api/v2"
        self._headers = {"Coder-Session-Token": token}
        self._file = ""

    async def import_version(self, name: str, **tags: str) -> dict[str, Any]:
        """Create a version; its import fails at once if a daemon runs it, because the archive is empty."""
        self._file = self._file or await self._upload()
        file = {"storage_method": "file", "file_id": self._file}
        body = {"name": name, **file, "provisioner": "echo", "tags": tags}
        created: dict[str, Any] = await self._request("POST", "/organizations/default/templateversions", json=body)
        return created

    async def _upload(self) -> str:
        """Upload an archive; coderd allows 12 uploads per minute."""
        archive = io.BytesIO()
        tarfile.open(fileobj=archive, mode="w").close()
        headers = {**self._headers, "Content-Type": "application/x-tar"}
        return str((await self._request("POST", "/files", data=archive.getvalue(), headers=headers))["hash"])

    async def cancel(self, version: str) -> None:
        await self._request("PATCH", f"/templateversions/{version}/cancel")

    async def status(self, version: str) -> str:
        return str((await self._request("GET", f"/templateversions/{version}"))["job"]["status"])

    async def _request(self, method: str, path: str, **options: Any) -> Any:
        async with self._session.request(method, self._api + path, **{"headers": self._headers, **options}) as response:
            assert response.status < 300, await response.text()
            return await response.json()


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_a_tagged_import_is_reported_until_it_is_cancelled(real_coder: RealPlane, version: str) -> None:
    async with real_coder.operator(), aiohttp.ClientSession() as session:
        await real_coder.make(version=version, replicas=1, extraEnv=[*real_coder.env, *BUILT_IN])
        await real_coder.ready()
        await real_coder.condition("JobsServed", "AllServed", "True")
        templates = Templates(session, real_coder.url, await real_coder.token())

        tagged = await templates.import_version("tagged", env="prod")
        created = datetime.fromisoformat(tagged["job"]["created_at"])
        matching = await templates.import_version("matching")
        condition = await real_coder.condition("JobsServed", "NoMatchingProvisioner", "False")
        reported_after = datetime.now(UTC) - created
        assert await templates.status(tagged["id"]) == "pending"
        assert await templates.status(matching["id"]) in ("failed", "succeeded")
        assert timedelta(seconds=60) <= reported_after <= REPORTED_WITHIN
        assert condition.message.startswith(
            "1 job in organization coder needs env=prod; the closest, the built-in provisioner, lacks env=prod"
        )
        [entry] = (await real_coder.get()).status.unserved_jobs
        assert (entry.organization_name, entry.tags, entry.count) == ("coder", {"env": "prod"}, 1)

        await templates.cancel(tagged["id"])
        await real_coder.condition("JobsServed", "AllServed", "True")
        assert (await real_coder.get()).status.unserved_jobs == []
        await real_coder.event("JobsServed")


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_the_rule_of_tags_is_that_of_its_database(real_coder: RealPlane, version: str) -> None:
    async with real_coder.operator():
        await real_coder.make(version=version, replicas=1)
        await real_coder.ready()
    connection = await asyncpg.connect(real_coder.database.url)
    try:
        await compare(connection, "provisioner_tagset_contains", "tagset")
    finally:
        await connection.close()


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_lists_without_a_limit(real_coder: RealPlane, version: str) -> None:
    """More jobs than coderd lists by default."""
    async with real_coder.operator(), aiohttp.ClientSession() as session, Connections() as connections:
        await real_coder.make(version=version, replicas=1, extraEnv=[*real_coder.env, *BUILT_IN])
        await real_coder.ready()
        token = await real_coder.token()
        templates = Templates(session, real_coder.url, token)
        first = await templates.import_version("v-0", env="prod")
        await asyncio.gather(*(templates.import_version(f"v-{number}", env="prod") for number in range(1, 55)))
        coderd = Client(connections, real_coder.url, token)
        [organization] = await coderd.organizations()
        jobs = await coderd.provisioner_jobs(organization.id)
        assert len(jobs) == 55
        assert jobs[-1].id == first["job"]["id"]
        found = await coderd.find_provisioner_job(organization.id, first["job"]["id"])
        assert found is not None
        assert found.tags == {"env": "prod", "scope": "organization", "owner": ""}
        for offline in (True, False):
            daemons = await eventually(partial(coderd.provisioner_daemons, organization.id, offline=offline))
            assert [each.status for each in daemons] == ["idle"]
        assert await coderd.templates() == []
        assert (await coderd.template_version(first["id"])).job.tags == found.tags
