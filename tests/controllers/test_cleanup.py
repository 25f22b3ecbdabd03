"""A control plane that is being deleted stays until all its credentials in Coder are revoked."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.coderd.access_db import token_name
from coder_k8s.controllers.cleanup import CONTROL_PLANE_FINALIZER
from coder_k8s.controllers.controlplane.deletion import wait
from coder_k8s.controllers.dependents import Dependent
from coder_k8s.controllers.labels import PAUSED
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SERVICE
from tests.support import eventually
from tests.support.controlplanes import CONNECTION_URL, database
from tests.support.databases import CoderdDatabase
from tests.support.installation import write_operator_kubeconfig

from .combined import FIRST, LAST, LEAKS, CombinedNamespace, all_three, combined_namespace

__all__ = ["all_three", "database"]

DELETING, REMAINING = Dependent("CoderProvisioner a", deleting=True), Dependent("CoderProvisioner b", deleting=False)


@pytest.mark.parametrize(
    ("left", "seconds", "expected"),
    [
        ([], 0, 0),
        ([], 1000, 0),
        ([DELETING], 0, 300),
        ([DELETING, REMAINING], 100, 200),
        ([DELETING], 300, 0),
        ([REMAINING], 0, 30),
        ([REMAINING], 20, 10),
        ([REMAINING], 30, 0),
    ],
)
def test_for_how_long_a_control_plane_waits(left: list[Dependent], seconds: float, expected: float) -> None:
    assert wait(left, timedelta(seconds=seconds)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("order", [FIRST, LAST], ids=["control plane first", "control plane last"])
async def test_delete_and_apply_again(all_three: CombinedNamespace, order: Any) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        await all_three.become_ready(operator)
        token = await all_three.token()
        assert await all_three.is_accepted(token)

        await all_three.delete_all(order)
        await all_three.all_gone()
        await all_three.assert_nothing_left(token)

        await all_three.collect()
        await all_three.apply()
        await all_three.become_ready(operator)
        assert await all_three.token() not in ("", token)


async def test_all_objects_of_the_category_are_deleted_at_once(
    all_three: CombinedNamespace, cluster: ClusterAccess, tmp_path: Path
) -> None:
    async with all_three.operator():
        await all_three.apply()
        token = await all_three.token()
        command = (
            "delete",
            "coder",
            "--all",
            f"--namespace={all_three.namespace}",
            "--timeout=30s",
            f"--cache-dir={tmp_path}",
        )
        await asyncio.to_thread(cluster.kubectl, *command)
        await all_three.all_gone()
        await all_three.assert_nothing_left(token)


async def test_a_control_plane_is_kept_with_its_pods(all_three: CombinedNamespace) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        token = await all_three.token()
        await all_three.set_annotations(PROVISIONER, "build", {PAUSED: "true"})
        await all_three.delete_all()
        await all_three.gone(WORKSPACE_PROXY, "sydney")
        await all_three.stay_idle(operator)
        plane = await all_three.find(CONTROL_PLANE, "demo")
        assert plane.metadata.finalizers == [CONTROL_PLANE_FINALIZER]
        assert await all_three.find(DEPLOYMENT, "demo") is not None
        assert await all_three.is_accepted(token)
        assert "CoderProvisioner build" in await all_three.note("CleanupWaiting", "demo")

        await all_three.set_annotations(PROVISIONER, "build", {PAUSED: None})
        await all_three.all_gone()
        await all_three.assert_nothing_left(token)


async def test_a_paused_control_plane_waits_for_its_provisioners(all_three: CombinedNamespace) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        token = await all_three.token()
        await all_three.set_annotations(CONTROL_PLANE, "demo", {PAUSED: "true"})
        await all_three.delete_all()
        await all_three.all_gone((PROVISIONER, "build"), (WORKSPACE_PROXY, "sydney"))
        await all_three.stay_idle(operator)
        assert await all_three.is_accepted(token)
        assert await all_three.left() == {token_name(all_three.namespace, "demo")}
        await all_three.set_annotations(CONTROL_PLANE, "demo", {PAUSED: None})
        await all_three.all_gone()
        await all_three.assert_nothing_left(token)


async def test_objects_that_are_not_deleted_delay_it_shortly(all_three: CombinedNamespace) -> None:
    """They get no new keys from a control plane that is being deleted, and continue with the next one."""
    async with all_three.operator() as operator:
        await all_three.apply()
        token = await all_three.token()
        keys = {name: key.id for name, key in all_three.state.keys.items()}
        await all_three.delete(CONTROL_PLANE, "demo")
        await all_three.set_annotations(PROVISIONER, "build", {"coder.com/rotate-key": "now"})
        await all_three.stay_idle(operator)
        assert await all_three.find(CONTROL_PLANE, "demo") is not None
        assert {name: key.id for name, key in all_three.state.keys.items()} == keys

        await all_three.later(seconds=31)
        await all_three.gone(CONTROL_PLANE, "demo")
        note = await all_three.note("CleanupGivenUp", "demo")
        assert "CoderProvisioner build" in note
        assert "CoderWorkspaceProxy sydney" in note
        assert not await all_three.is_accepted(token)
        assert {name: key.id for name, key in all_three.state.keys.items()} == keys


async def test_keys_left_at_a_deleted_control_plane_are_reported(all_three: CombinedNamespace) -> None:
    async with all_three.operator():
        await all_three.apply()
        await all_three.delete(CONTROL_PLANE, "demo")
        await eventually(lambda: all_three.notes("CleanupWaiting", "demo"))
        await all_three.later(seconds=31)
        await all_three.gone(CONTROL_PLANE, "demo")
        await all_three.delete_all(FIRST[1:])
        await all_three.all_gone()
        assert "build" in await all_three.note("ProvisionerKeyLeaked", "build")
        assert "sydney" in await all_three.note("WorkspaceProxyLeaked", "sydney")


@pytest.mark.parametrize("back", [True, False])
async def test_coderd_is_down(all_three: CombinedNamespace, back: bool) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        token = await all_three.token()
        all_three.state.set(failing=True)
        await all_three.delete_all()
        await all_three.stay_idle(operator)
        assert {"build", "sydney"} <= await all_three.left()
        if back:
            all_three.state.set(failing=False)
        await all_three.later(seconds=0 if back else 301)
        await all_three.all_gone()
        all_three.state.set(failing=False)
        if back:
            await all_three.assert_nothing_left(token)
            return
        assert await all_three.left() == {"build", "sydney"}
        assert not await all_three.is_accepted(token), "the database needs no coderd"
        assert "build" in await all_three.note("ProvisionerKeyLeaked", "build")
        assert "sydney" in await all_three.note("WorkspaceProxyLeaked", "sydney")


async def test_the_database_is_down(all_three: CombinedNamespace) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        await all_three.delete_all(FIRST[1:])
        await all_three.all_gone(*FIRST[1:])
        await allow_connections(all_three, "false")
        await all_three.delete(CONTROL_PLANE, "demo")
        await all_three.stay_idle(operator)
        assert await all_three.find(CONTROL_PLANE, "demo") is not None
        await all_three.later(seconds=301)
        await all_three.all_gone()
        assert token_name(all_three.namespace, "demo") in await all_three.note("CleanupGivenUp", "demo")
        await allow_connections(all_three, "true")


async def allow_connections(all_three: CombinedNamespace, allowed: str) -> None:
    name = all_three.database.name
    await all_three.database.server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}")


async def test_the_operator_restarts_during_the_deletion(all_three: CombinedNamespace) -> None:
    async with all_three.operator():
        await all_three.apply()
        token = await all_three.token()
        await all_three.set_annotations(PROVISIONER, "build", {PAUSED: "true"})
        await all_three.delete_all()
        await all_three.gone(WORKSPACE_PROXY, "sydney")
    await all_three.set_annotations(PROVISIONER, "build", {PAUSED: None})
    async with all_three.operator():
        await all_three.all_gone()
        await all_three.assert_nothing_left(token)


@pytest.mark.parametrize("secrets", ["stay", "are gone"])
async def test_the_namespace_is_deleted(
    all_three: CombinedNamespace, secrets: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The deletion does not wait for a deleted coderd. No event is accepted there, so the log names what is left."""
    async with all_three.operator() as operator:
        await all_three.apply()
        token = await all_three.token()
        await all_three.delete_namespace()
        if secrets == "are gone":
            await all_three.delete_secrets()
            all_three.state.set(cut=True)
        await all_three.delete_all()
        await all_three.all_gone()
        all_three.state.set(cut=False)
        assert not await all_three.is_accepted(token)
        left = set() if secrets == "stay" else {"build", "sydney"}
        assert await all_three.left() == left
        await eventually(lambda: operator.runtime.recorder.idle)
        lines = [line.getMessage() for line in caplog.records if "Leaked" in getattr(line, "reason", "")]
        named = {"build": "key build", "sydney": "workspace proxy sydney"}
        assert {name for name, text in named.items() if any(text in line.lower() for line in lines)} == left


async def test_the_secret_of_the_database_is_deleted_too(all_three: CombinedNamespace) -> None:
    """coderd still has its connection to the database, and revokes the token."""
    await all_three.put_secret("database", url=all_three.database.url)
    reference = {"secretKeyRef": {"name": "database", "key": "url"}}
    all_three.env = [{"name": CONNECTION_URL, "valueFrom": reference}]
    async with all_three.operator():
        await all_three.apply()
        token = await all_three.token()
        await all_three.delete(SECRET, "database")
        await all_three.delete_all()
        await all_three.all_gone()
        await all_three.assert_nothing_left(token)


async def test_the_finalizer_exists_only_while_it_is_needed(all_three: CombinedNamespace) -> None:
    """With a given token, the deletion waits only for provisioners and proxies."""
    await all_three.put_secret("given", token=all_three.state.token)
    all_three.access = {"tokenSecretRef": {"name": "given"}}
    async with all_three.operator():
        await all_three.apply()
        assert (await all_three.find(CONTROL_PLANE, "demo")).metadata.finalizers == [CONTROL_PLANE_FINALIZER]
        await all_three.delete_all(FIRST[1:])
        await eventually(lambda: is_free(all_three))
        await all_three.delete(CONTROL_PLANE, "demo")
        await all_three.all_gone()
    assert await all_three.is_accepted(all_three.state.token), "the operator did not create it"


async def is_free(all_three: CombinedNamespace) -> bool:
    return not (await all_three.find(CONTROL_PLANE, "demo")).metadata.finalizers


async def test_a_service_of_another_owner_gets_no_token(all_three: CombinedNamespace) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        await all_three.client.merge(SERVICE, all_three.key, {"metadata": {"ownerReferences": None}})
        await all_three.stay_idle(operator)
        asked = sum(all_three.state.requests.values())
        await all_three.delete_all()
        await all_three.stay_idle(operator)
        all_three.clock.time = datetime.now(UTC) + timedelta(seconds=301)
        await all_three.all_gone(within=30)
        assert sum(all_three.state.requests.values()) == asked
        assert "build" in await all_three.note("ProvisionerKeyLeaked", "build")


@pytest.mark.slow
async def test_foreground_deletion_ends(full_cluster: FullCluster, tmp_path: Path, database: CoderdDatabase) -> None:
    """Garbage collection deletes Secrets and pods first; an event names what is left."""
    full_cluster.kubectl("create", "namespace", "foreground")
    operator = write_operator_kubeconfig(full_cluster, tmp_path / "kubeconfig")
    async with combined_namespace(full_cluster.kubeconfig, operator, "foreground", database) as made, made.operator():
        await made.apply()
        token = await made.token()
        command = (
            "delete",
            "coder",
            "--all",
            "--namespace=foreground",
            "--cascade=foreground",
            "--timeout=60s",
            f"--cache-dir={tmp_path}",
        )
        await asyncio.to_thread(full_cluster.kubectl, *command)
        await made.all_gone()
        assert not await made.is_accepted(token)
        for name, (reason, owner) in zip(("build", "sydney"), LEAKS, strict=False):
            if name in await made.left():
                assert name in await made.note(reason, owner)
