"""Updates of a real Coder with a real PostgreSQL."""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, STDOUT

import aiohttp
import pytest

from coder_k8s.coderd.schema_db import schema_version
from coder_k8s.dev.coder_build import LATEST
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.kube.kinds import JOB
from tests.support import eventually, objects
from tests.support.real_coder import RealPlane, image

from .observed_update import TIMEOUT, make_observable, observing, servers, updated

OLD, PATCH, NEW = "2.30.0", "2.36.0", LATEST
"""The schema of 2.36.0 is that of 2.36.1."""

log = logging.getLogger("coder_k8s.tests")

pytestmark = pytest.mark.timeout(600)


async def first_user(plane: RealPlane) -> str:
    """Create the first user of Coder, and return its session token."""
    user = {"email": "a@example.com", "username": "a", "password": "SomePassword123!", "trial": False}
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{plane.url}/api/v2/users/first", json=user) as answer:
            assert answer.status == 201, await answer.text()
        login = {"email": user["email"], "password": user["password"]}
        async with http.post(f"{plane.url}/api/v2/users/login", json=login) as answer:
            return str((await answer.json())["session_token"])


async def username(plane: RealPlane, token: str) -> str:
    async with (
        aiohttp.ClientSession(headers={"Coder-Session-Token": token}) as http,
        http.get(f"{plane.url}/api/v2/users/me") as answer,
    ):
        return str((await answer.json()).get("username", answer.status))


async def reports(plane: RealPlane, version: str) -> bool:
    """Whether the status is about a version."""
    status = (await plane.get()).status
    assert status.version.startswith(f"v{version}"), status.version
    return True


async def dry_run(plane: RealPlane, cluster: FullCluster, version: str) -> tuple[int | None, str]:
    """The exit code and the output of `coder-k8s update --dry-run`."""
    names = (plane.name, image(version), f"--namespace={plane.namespace}", f"--kubeconfig={cluster.kubeconfig}")
    command = (sys.executable, "-m", "coder_k8s", "update", *names, "--dry-run")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()


@pytest.mark.coder(OLD, NEW)
async def test_new_schema_and_back(real_coder: RealPlane, full_cluster: FullCluster) -> None:
    """One pod migrates while no other is connected, sessions stay valid, and a downgrade is refused."""
    async with real_coder.operator():
        await make_observable(real_coder, OLD)
        before, _ = await schema_version(real_coder.database.url)
        session, token = await first_user(real_coder), await real_coder.token()
        async with observing(real_coder) as found:
            await real_coder.change(image=image(NEW))
            await updated(real_coder, NEW)
        after, _ = await schema_version(real_coder.database.url)
        plane = await real_coder.get()
        assert plane.status.update is not None
        assert (plane.status.update.schema_before, plane.status.update.schema_after) == (before, after)
        assert before < after
        await real_coder.condition("EntitlementsKnown", "Checked", "True")  # 2.30.0 is a build without entitlements
        assert await reports(real_coder, NEW)
        assert len(found.migrated()) == 1
        assert found.migrated() < found.pods(image(NEW))
        assert found.connected_during_migration() == {image(NEW)}
        assert image(OLD) in found.connected(before)
        assert found.connected(after) == {image(NEW)}
        assert len(await servers(real_coder)) == 2
        assert await username(real_coder, session) == "a"
        assert await real_coder.token() == token
        assert await username(real_coder, token) == "coder-k8s-operator"
        log.info("downtime from %s to %s: %.1f s", OLD, NEW, found.downtime)

        uids = {pod.metadata.uid for pod in await servers(real_coder)}
        code, printed = await dry_run(real_coder, full_cluster, OLD)
        assert (code, printed.count("Refused (DowngradeRefused)")) == (1, 1), printed
        assert await objects.list_all(real_coder.client, JOB, real_coder.namespace) == []
        await real_coder.change(image=image(OLD))
        await real_coder.condition("Stalled", "DowngradeRefused", "True", within=TIMEOUT)
        assert {pod.metadata.uid for pod in await servers(real_coder)} == uids
        assert await username(real_coder, session) == "a"


@pytest.mark.coder(PATCH, NEW)
async def test_same_schema_rolls_without_a_failed_request(real_coder: RealPlane) -> None:
    async with real_coder.operator():
        await make_observable(real_coder, PATCH)
        async with observing(real_coder) as found:
            await real_coder.change(image=image(NEW))
            await updated(real_coder, NEW)
        assert found.failures == 0
        assert found.migrated() == set()
        plane = await real_coder.get()
        assert plane.status.update is not None
        assert (plane.status.update.plan, plane.status.update.from_[:7]) == ("Rolling", f"v{PATCH}")
        await eventually(lambda: reports(real_coder, NEW))
