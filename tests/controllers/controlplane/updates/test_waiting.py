"""What an update waits for before pods stop, and what keeps it from being complete."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.api.updates import BackupPolicy, ClusterRef, Step
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.controlplane.updates.backups import choose
from coder_k8s.controllers.controlplane.updates.observations import Backup
from coder_k8s.dev.cluster import Cluster
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.state import State
from coder_k8s.kube.kinds import BACKUP, DEPLOYMENT
from coder_k8s.kube.objects import Kind, Manifest, Unstructured
from tests.support import eventually, objects
from tests.support.cloudnativepg import install_backups
from tests.support.controlplanes import env, plane_namespace
from tests.support.databases import CoderdDatabase
from tests.support.installation import install_crds, write_operator_kubeconfig
from tests.support.interceptor import Interceptor, Request
from tests.support.simulated_pods import LATE, POD_IP, SimulatedPods

from .site import UpdateSite

T = TypeVar("T")

NEW = "coder:v3"
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", Unstructured)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = BackupPolicy(cnpg_cluster_ref=ClusterRef(name="db"), max_age="24h")


def backup(name: str, cluster: str = "db", **status: str) -> Unstructured:
    manifest = {"metadata": {"name": name}, "spec": {"cluster": {"name": cluster}}, "status": status}
    return Unstructured.decode(msgspec.json.encode(manifest))


def test_backup_that_is_used() -> None:
    old = backup("old", phase="completed", stoppedAt="2026-02-28T11:59:59Z")
    young = backup("young", phase="completed", stoppedAt="2026-02-28T12:00:00Z")
    other = backup("other", "another", phase="completed", stoppedAt="2026-03-01T11:00:00Z")
    running, failed = backup("own", phase="running"), backup("own", phase="failed", error="no bucket")
    assert choose([old, young], POLICY, "own", NOW) == Backup(done="young")
    assert choose([old, other, running], POLICY, "own", NOW) == Backup()
    assert choose([], POLICY, "own", NOW) == Backup()
    error = choose([old, failed], POLICY, "own", NOW).error
    assert error == "Backup own of Cluster db failed: no bucket; fix it, then delete this Backup"
    assert choose([young, failed], POLICY, "own", NOW).done == "young"


async def test_window(site: UpdateSite) -> None:
    windows = [{"schedule": "0 22 * * 6", "duration": "4h"}]
    async with site.demo.operator() as operator:
        await site.deploy(operator, update={"windows": windows})
        await site.demo.change(image=NEW)
        await site.settle(operator)
        opens = "Waiting for the update window that opens on 2026-03-07 at 22:00 UTC"
        await site.demo.message("Upgrading", "Window", opens)
        assert (await site.demo.conditions())["Available"] == ("True", "MinimumReplicasReady")
        due = operator.requeue_after()
        assert due is not None
        assert due <= 6.5 * 86400
        await operator.later(days=6)
        assert await site.pods.serving() == ["coder:v1"] * 2
        site.demo.clock.time = datetime(2026, 3, 7, 22, 1, tzinfo=UTC)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert len(await site.demo.events("UpdateStarted")) == 1
        assert await site.pods.serving() == [NEW] * 2


async def test_window_closes_while_builds_run(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        site.demo.clock.time = datetime(2026, 3, 7, 22, 1, tzinfo=UTC)
        await site.deploy(operator, update={"windows": [{"schedule": "0 22 * * 6", "duration": "15m"}]})
        start_build(site)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.DRAIN
        await operator.later(minutes=15)
        why = "The last window closed while builds ran; make update.windows longer, or update.drain.timeout shorter"
        opens = "Waiting for the update window that opens on 2026-03-14 at 22:00 UTC"
        await site.demo.message("Upgrading", "Window", f"{opens}. {why}")
        assert await site.pods.serving() == ["coder:v1"] * 2


async def test_secret_that_changes_while_an_update_waits(site: UpdateSite) -> None:
    """The old pods follow it, with their old image and settings."""
    await site.demo.put_secret("oidc", key="one")
    reference = {"secretKeyRef": {"name": "oidc", "key": "key"}}
    variables = [*env(site.pods.database.url), {"name": "CODER_OIDC_CLIENT_SECRET", "valueFrom": reference}]
    windows = [{"schedule": "0 22 * * 6", "duration": "4h"}]
    async with site.demo.operator() as operator:
        await site.deploy(operator, extraEnv=variables, update={"windows": windows})
        await site.demo.change(image=NEW, extraArgs=["--new"])
        await site.settle(operator)
        before = (await site.deployment())["template"]
        await site.demo.put_secret("oidc", key="two")

        async def has_changed() -> bool:
            return bool((await site.deployment())["template"] != before)

        await eventually(has_changed)
        await site.settle(operator)
        after = (await site.deployment())["template"]
        assert after["spec"] == before["spec"]
        writes = operator.writes()
        await operator.reconcile()
        assert operator.writes() == writes
        assert (await site.update()).step == Step.WINDOW


async def test_quota_that_rejects_the_preflight(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        metadata = {"name": "none", "namespace": site.demo.namespace}
        quota = {"metadata": metadata, "spec": {"hard": {"count/jobs.batch": "0"}}}
        made = await site.demo.client.create(QUOTA, quota)
        await site.demo.client.merge(QUOTA, made.key, {"status": {"hard": {"count/jobs.batch": "0"}}}, "status")
        await site.demo.change(image=NEW)
        found = await site.demo.condition("Stalled", "ImageUnreadable", "True")
        assert "none" in found.message
        await operator.later(minutes=12)
        assert (await site.update()).step == Step.REFUSED
        again = await site.demo.condition("Stalled", "ImageUnreadable", "True")
        assert again.message == found.message


async def test_schedule_that_is_not_valid(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator, update={"windows": [{"schedule": "0 99 * * *", "duration": "4h"}]})
        await site.demo.change(image=NEW)
        await site.settle(operator)
        found = await site.demo.condition("Stalled", "Window", "True")
        assert found.message.startswith("Update.windows: '0 99 * * *' is not a cron expression")
        assert await site.pods.serving() == ["coder:v1"] * 2


async def test_backup_is_missing(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator, update={"backup": {"cnpgClusterRef": {"name": "database"}}})
        await site.demo.change(image=NEW)
        await site.settle(operator)
        cause = "the cluster does not have CloudNativePG; install it, or remove update.backup"
        await site.demo.message("Stalled", "BackupMissing", f"Cluster database has no backup: {cause}")
        assert await site.pods.serving() == ["coder:v1"] * 2
        await site.demo.change(update={"backup": None})
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE


async def test_backup_is_made(fresh_cluster: Cluster, tmp_path: Path, database: CoderdDatabase) -> None:
    """The last one is more than 24 hours old."""
    install_crds(fresh_cluster)
    install_backups(fresh_cluster)
    fresh_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "backed-up"}})
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    async with plane_namespace(fresh_cluster.kubeconfig, kubeconfig, "backed-up", database_url=database.url) as demo:
        site = UpdateSite(demo, SimulatedPods(demo, database))
        await site.pods.create_schema()
        async with demo.operator() as operator:
            await site.deploy(operator, update={"backup": {"cnpgClusterRef": {"name": "db"}}})
            old = {"metadata": {"name": "old", "namespace": "backed-up"}, "spec": {"cluster": {"name": "db"}}}
            ended: Manifest = {"phase": "completed", "stoppedAt": "2026-02-28T11:59:59Z"}
            await demo.client.create(BACKUP, old)
            await demo.client.merge(BACKUP, demo.key_of("old"), {"status": ended}, "status")
            await demo.change(image=NEW)
            await site.settle(operator)
            name = "demo-update-20260301120000"
            await demo.message("Upgrading", "Backup", f"Waiting for Backup {name}")
            assert await site.pods.serving() == ["coder:v1"] * 2
            made = await demo.client.get(BACKUP, demo.key_of(name))
            assert made.manifest["spec"]["cluster"] == {"name": "db"}
            assert made.metadata.owner_references == []
            done: Manifest = {"phase": "completed", "stoppedAt": "2026-03-01T12:00:00Z"}
            await demo.client.merge(BACKUP, made.key, {"status": done}, "status")
            await site.settle(operator)
            update = await site.update()
            assert (update.step, update.backup_ref) == (Step.COMPLETE, name)


def start_build(site: UpdateSite) -> str:
    """Let a job run; nothing reports that it ends."""
    queue = site.demo.coderd.state.queue
    job = queue.add_job()
    queue.change_job(job, worker="built-in", started_at=site.demo.clock())
    return job


async def test_builds_are_waited_for(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        job = start_build(site)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        await site.demo.message("Upgrading", "Drain", "Waiting for running builds, at most for 30m")
        assert await site.pods.serving() == ["coder:v1"] * 2
        site.demo.coderd.state.queue.finish_job(job)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert await site.demo.events("DrainIncomplete") == []


async def test_builds_that_take_too_long(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator, update={"drain": {"onTimeout": "Abort"}})
        start_build(site)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        await operator.later(minutes=31)
        await site.settle(operator)
        message = "Builds still run after update.drain.timeout; the update is tried again in an hour"
        await site.demo.message("Stalled", "DrainTimeout", message)
        assert await site.pods.serving() == ["coder:v1"] * 2
        await site.demo.change(update={"drain": {"onTimeout": "Proceed"}})
        await site.settle(operator)
        await operator.later(minutes=31)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert "may fail" in await site.demo.note("DrainIncomplete")


class DeletedOrganization(Interceptor):
    """Every list of organizations contains one that is deleted before the next request."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state

    async def intercept(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        lists = request.target.endswith("/api/v2/organizations")
        organization = self._state.add_organization("gone") if lists else ""
        try:
            return await super().intercept(request, send)
        finally:
            if organization:
                self._state.remove_organization(organization)


async def test_builds_while_an_organization_is_deleted(site: UpdateSite) -> None:
    state = site.demo.coderd.state
    async with site.demo.operator(interceptor=DeletedOrganization(state)) as operator:
        await site.deploy(operator, update={"drain": {"onTimeout": "Abort"}})
        job = start_build(site)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        await site.demo.message("Upgrading", "Drain", "Waiting for running builds, at most for 30m")
        state.queue.finish_job(job)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE


async def test_coder_is_not_ready_for_a_moment_while_builds_run(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator, update={"drain": {"onTimeout": "Abort"}})
        start_build(site)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.DRAIN
        unready = {"status": {"readyReplicas": 0, "availableReplicas": 0}}
        await site.demo.client.merge(DEPLOYMENT, site.demo.key, unready, "status")
        await site.demo.condition("Available", "NoReplicasReady", "False")
        await operator.reconcile()
        assert (await site.update()).step == Step.DRAIN
        await operator.later(seconds=61)
        assert (await site.update()).step != Step.DRAIN


async def test_builds_that_cannot_be_read(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator, update={"drain": {"onTimeout": "Abort"}})
        start_build(site)
        site.demo.coderd.state.set(failing=True)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        message = "Waiting for Coder to report which builds run, at most for 30m"
        await site.demo.message("Upgrading", "Drain", message)
        await operator.later(minutes=31)
        await site.settle(operator)
        message = "The operator cannot read which builds run; fix its access to Coder, or change update.drain"
        await site.demo.message("Stalled", "DrainTimeout", message)
        assert await site.pods.serving() == ["coder:v1"] * 2


async def test_pod_whose_version_cannot_be_queried(site: UpdateSite) -> None:
    """Such as because of a NetworkPolicy: the update continues with a pod that is ready."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.demo.coderd.state.set(cut=True)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        await operator.later(minutes=31)
        await site.settle(operator)
        assert (await site.update()).step == Step.VERIFY
        await operator.later(minutes=2)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        note = f"The pod of image {NEW} is ready, but the operator cannot query its version on port 8080"
        assert await site.demo.note("VersionNotVerified") == note


async def test_version_is_that_of_the_new_pod(site: UpdateSite) -> None:
    """The Service can lead to another server than the pod that is checked."""
    async with CoderdServer("2.30.0", now=site.demo.clock) as other:
        routes = {**site.demo.routes, Endpoint(POD_IP, 8080): Endpoint("127.0.0.1", other.port)}
        async with site.demo.operator(connect_to=routes) as operator:
            await site.deploy(operator)
            await site.demo.change(image=NEW)
            await site.settle(operator)
            found = await site.demo.condition("Stalled", "VersionMismatch", "True")
            assert f"reports version v2.30.0, but image {NEW} reported v2.36.1" in found.message


async def test_preflight_that_never_ends(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.finishes = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.PREFLIGHT
        await operator.later(minutes=11)
        await site.settle(operator)
        message = f"Image {NEW} cannot be checked: the preflight Job did not finish in time"
        await site.demo.message("Stalled", "ImageUnreadable", message)
        assert await site.pods.serving() == ["coder:v1"] * 2
        assert await site.jobs() == []


async def test_known_bad_path(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await site.demo.client.merge(CONTROL_PLANE, site.demo.key, {"status": {"version": "v2.26.1"}}, "status")
        site.pods.verdict = '{"version": "v2.27.8"}\nbut later version 413 exists'
        await site.demo.change(image=NEW)
        await site.settle(operator)
        message = "Coder cannot be updated from v2.26.1 to v2.27.8 directly; update to 2.26.6 first"
        await site.demo.message("Stalled", "KnownBadPath", message)
        assert await site.pods.serving() == ["coder:v1"] * 2


async def test_version_that_differs_from_the_preflight(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.verdict = '{"version": "v2.37.0"}\nbut later version 413 exists'
        await site.demo.change(image=NEW)
        await site.settle(operator)
        found = await site.demo.condition("Stalled", "VersionMismatch", "True")
        assert "reports version v2.36.1, but image coder:v3 reported v2.37.0 in the preflight" in found.message
        assert await site.pods.serving() == [NEW]


async def test_image_that_crashes_after_the_migration_is_not_rolled_back(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await site.demo.change(image=LATE)
        await site.settle(operator)
        found = await site.demo.condition("Stalled", "MigrationFailed", "True")
        assert "Image coder:v1 is not started again, because the database may have changed" in found.message
        assert await site.pods.serving() == []
        await site.demo.change(image="coder:v1")
        await site.settle(operator)
        assert (await site.demo.conditions())["Stalled"] == ("True", "DowngradeRefused")
        assert await site.pods.serving() == []
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert await site.pods.serving() == [NEW] * 2


async def test_provisioners_follow_within_a_time(site: UpdateSite) -> None:
    """Nothing reconciles this provisioner, so it never runs the new image."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await objects.create(
            site.demo.client, PROVISIONER, site.demo.key_of("builders"), {"controlPlaneRef": {"name": "demo"}}
        )
        await site.demo.change(image=NEW)
        await site.settle(operator)
        await site.demo.message("Upgrading", "Fleet", f"Waiting until the provisioners run image {NEW}")
        assert (await site.demo.conditions())["Ready"] == ("True", "AllReady")
        assert (await site.demo.get()).status.image == NEW
        await operator.later(minutes=10)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        await site.demo.delete(PROVISIONER, "builders")


async def test_autoscaled_provisioner_without_pods_does_not_delay_the_update(site: UpdateSite) -> None:
    """Its `replicas` have no effect; the next pod that it gets has the new image."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        scaling = {"minReplicas": 0, "maxReplicas": 2}
        spec = {"controlPlaneRef": {"name": "demo"}, "replicas": 1, "autoscaling": scaling}
        key = site.demo.key_of("builders")
        await objects.create(site.demo.client, PROVISIONER, key, spec)
        status = {"replicas": 0, "autoscaling": {"desiredReplicas": 0, "pendingJobs": 0}}
        await site.demo.client.merge(PROVISIONER, key, {"status": status}, "status")
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        await site.demo.delete(PROVISIONER, "builders")
