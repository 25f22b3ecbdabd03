"""A control plane with a real Coder and a real PostgreSQL, from nothing to Ready."""

import aiohttp
import pytest

from coder_k8s.coderd.access_db import USERNAME
from tests.support.real_coder import RealPlane

from .versions import VERSIONS

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("version", VERSIONS)
async def test_two_real_pods_become_ready(real_coder: RealPlane, version: str) -> None:
    async with real_coder.operator():
        await real_coder.make(version=version)
        plane = await real_coder.ready()
        pods = await real_coder.pods()
        assert plane.status.ready_replicas == len(pods) == 2
        assert len({real_coder.pod_url(pod) for pod in pods}) == 2
        async with aiohttp.ClientSession() as http:
            for url in (real_coder.url, *(real_coder.pod_url(pod) for pod in pods)):
                async with http.get(f"{url}/api/v2/buildinfo") as answer:
                    assert (await answer.json())["version"].startswith(f"v{version}")
            headers = {"Coder-Session-Token": await real_coder.token()}
            async with http.get(f"{real_coder.url}/api/v2/users/me", headers=headers) as answer:
                assert (await answer.json())["username"] == USERNAME
