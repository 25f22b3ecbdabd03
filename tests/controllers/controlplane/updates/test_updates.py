"""Updates on a real API server, with simulated pods and a real database."""

import pytest

from coder_k8s.api.updates import Step
from tests.support.simulated_pods import BROKEN

from .site import UpdateSite

NEW = "coder:v3"


async def test_new_schema_stops_all_pods_and_one_migrates(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        plane = await site.demo.get()
        update = await site.update()
        assert (update.step, update.from_, update.to, update.plan) == (Step.COMPLETE, "v2.30.0", "v2.36.1", "Recreate")
        assert (update.schema_before, update.schema_after, update.resume_replicas) == (412, 556, 2)
        assert (plane.status.image, plane.status.ready_replicas) == (NEW, 2)
        assert len(site.pods.migrated) == 1
        assert await site.pods.serving() == [NEW, NEW]
        spec = await site.deployment()
        assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
        assert await site.jobs() == []
        await site.demo.message("Upgrading", "Updated", "Updated from v2.30.0 to v2.36.1")
        assert (await site.demo.conditions())["Ready"] == ("True", "AllReady")
        notes = [each["note"] for each in await site.demo.events("UpdateStep")]
        steps = ("Window", "Backup", "Drain", "Stop", "Migrate", "Verify", "ScaleBack", "Fleet")
        assert notes == [f"Step {step} of the update to {NEW}" for step in steps]
        before = operator.writes()
        await operator.reconcile()
        assert operator.writes() == before


async def test_same_schema_rolls(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await site.demo.change(image="coder:v2")
        await site.settle(operator)
        update = await site.update()
        assert (update.step, update.plan) == (Step.COMPLETE, "Rolling")
        assert await site.pods.serving() == ["coder:v2"] * 2
        served = site.pods.served
        assert all(schemas for schemas in served[served.index({412}) :]), "there was a gap"


REFUSALS = {
    "downgrade": ("coder:v1", "DowngradeRefused"),
    "other architecture": (BROKEN, "ImageUnreadable"),
    "unreachable database": (BROKEN, "PreflightFailed"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_refused_before_a_pod_stops(site: UpdateSite, case: str) -> None:
    image, reason = REFUSALS[case]
    async with site.demo.operator() as operator:
        await site.pods.set_schema(556)
        await site.deploy(operator, image=NEW)
        before = [pod.metadata.uid for pod in await site.pods.pods()]
        site.pods.verdict = {
            "other architecture": "exec /bin/sh: exec format error",
            "unreachable database": '{"version": "v2.36.1"}\nerror: dial postgres: connection refused',
        }.get(case)
        await site.demo.change(image=image)
        await site.settle(operator)
        assert (await site.update()).step == Step.REFUSED
        assert (await site.demo.conditions())["Stalled"] == ("True", reason)
        assert (await site.demo.conditions())["Available"] == ("True", "MinimumReplicasReady")
        assert [pod.metadata.uid for pod in await site.pods.pods()] == before
        assert await site.jobs() == []
        writes = operator.writes()
        await operator.reconcile()
        assert operator.writes() == writes
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.demo.get()).status.update is None
        assert (await site.demo.conditions())["Ready"] == ("True", "AllReady")


async def test_image_that_cannot_be_pulled_is_tried_again(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.pulls = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        found = await site.demo.condition("Upgrading", "ImageUnreadable", "True")
        assert f'ImagePullBackOff: Back-off pulling image "{NEW}"' in found.message
        assert (await site.demo.conditions())["Stalled"] == ("True", "ImageUnreadable")
        await operator.later(minutes=11)
        await site.settle(operator)
        assert (await site.update()).step == Step.REFUSED
        assert await site.jobs() == []
        assert await site.pods.serving() == ["coder:v1"] * 2
        site.pods.pulls = True
        await operator.later(minutes=10)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert await site.pods.serving() == [NEW] * 2


async def test_broken_image_is_rolled_back(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await site.demo.change(image=BROKEN)
        await site.settle(operator)
        assert (await site.update()).step == Step.ROLLED_BACK
        assert await site.pods.serving() == ["coder:v1"] * 2
        assert site.pods.schema == 412
        found = await site.demo.condition("Stalled", "RolledBack", "True")
        assert "exit code 1: error: unknown flag. Image coder:v1 runs again" in found.message
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert await site.pods.serving() == [NEW] * 2


async def test_long_migration_is_reported_and_nothing_is_killed(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.starts = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        [pod] = await site.pods.pods()
        await site.demo.message("Upgrading", "Migrate", f"A pod of image {NEW} migrates the database")
        conditions = await site.demo.conditions()
        assert conditions["Available"] == ("False", "Upgrading")
        assert conditions["OperatorAccessReady"] == ("True", "Upgrading")
        assert (await site.demo.get()).status.operator_access_ready
        await operator.later(minutes=31)
        assert (await site.demo.conditions())["Stalled"] == ("True", "MigrationTimeout")
        assert [each.metadata.uid for each in await site.pods.pods()] == [pod.metadata.uid]
        site.pods.starts = True
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert (await site.demo.conditions())["Ready"] == ("True", "AllReady")


async def test_pod_that_does_not_stop_holds_the_update(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.stops = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.STOP
        found = await site.demo.condition("Upgrading", "Stop", "True")
        assert found.message.startswith("Waiting until pod demo-")
        assert (await site.deployment())["template"]["spec"]["containers"][0]["image"] == "coder:v1"
        site.pods.stops = True
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE


BLOCKED = {Step.PREFLIGHT: "pulls", Step.STOP: "stops", Step.MIGRATE: "starts"}


@pytest.mark.parametrize("step", BLOCKED)
async def test_operator_that_restarts_continues(site: UpdateSite, step: Step) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        setattr(site.pods, BLOCKED[step], False)
        await site.demo.change(image=NEW, replicas=3)
        await site.settle(operator)
        assert (await site.update()).step == step
    setattr(site.pods, BLOCKED[step], True)
    async with site.demo.operator() as operator:
        if step == Step.PREFLIGHT:  # the pod of the Job is not simulated again
            await operator.later(minutes=11)
            await operator.later(minutes=10)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert len(site.pods.migrated) == 1
        assert await site.pods.serving() == [NEW] * 3


async def test_image_reverted_while_pods_stop(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.stops = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.STOP
        await site.demo.change(image="coder:v1")
        site.pods.stops = True
        await site.settle(operator)
        assert (await site.demo.get()).status.update is None
        assert await site.pods.serving() == ["coder:v1"] * 2
        assert (await site.deployment())["strategy"]["type"] == "RollingUpdate"
        assert await site.demo.note("UpdateCancelled") == f"The update to {NEW} is cancelled"


async def test_image_that_changes_during_the_migration_is_taken_up_afterwards(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.starts = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.MIGRATE
        await site.demo.change(image="coder:v1")
        await site.settle(operator)
        assert (await site.update()).step == Step.MIGRATE
        site.pods.starts = True
        await site.settle(operator)
        assert (await site.demo.conditions())["Stalled"] == ("True", "DowngradeRefused")
        assert await site.pods.serving() == [NEW] * 2
        assert (await site.demo.get()).status.image == NEW


async def test_other_changes_wait_with_the_image(site: UpdateSite) -> None:
    """Old pods never run with the settings of the new version."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.pulls = False
        await site.demo.change(image=NEW, extraArgs=["--new"], replicas=3)
        await site.settle(operator)
        spec = await site.deployment()
        assert spec["replicas"] == 3
        assert spec["template"]["spec"]["containers"][0]["args"] == ["--http-address=0.0.0.0:8080"]
        await site.demo.change(image="coder:v1")
        await site.settle(operator)
        spec = await site.deployment()
        assert spec["template"]["spec"]["containers"][0]["args"] == ["--http-address=0.0.0.0:8080", "--new"]


async def test_scaled_to_zero(site: UpdateSite) -> None:
    """An image that changes without pods is checked when pods are wanted again."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await site.demo.change(image=NEW, replicas=0)
        await site.settle(operator)
        assert (await site.demo.get()).status.update is None
        assert (await site.demo.conditions())["Ready"] == ("True", "ScaledToZero")
        await site.demo.change(replicas=2)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert len(site.pods.migrated) == 1
        assert await site.pods.serving() == [NEW] * 2


async def test_rolling_strategy_checks_nothing(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator, update={"strategy": "Rolling"})
        await site.demo.change(image="coder:v2")
        await site.settle(operator)
        assert (await site.demo.get()).status.update is None
        assert await site.pods.serving() == ["coder:v2"] * 2


async def test_pause_and_deletion_in_the_middle(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.stops = site.pods.starts = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        await site.demo.set_annotations(site.demo.kind, "demo", {"coder.com/paused": "true"})
        site.pods.stops = True
        await site.settle(operator)
        assert (await site.update()).step == Step.STOP
        await site.demo.set_annotations(site.demo.kind, "demo", {"coder.com/paused": None})
        await site.settle(operator)
        assert (await site.update()).step == Step.MIGRATE
        await site.demo.delete(site.demo.kind, "demo")
        await operator.later(minutes=6)
        await site.demo.gone(site.demo.kind, "demo")


@pytest.mark.parametrize("step", [Step.PREFLIGHT, Step.STOP])
async def test_deletion_in_the_middle(site: UpdateSite, step: Step) -> None:
    """The object is deleted, and nothing starts or stops any more."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        setattr(site.pods, BLOCKED[step], False)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == step
        before = await site.deployment()
        await site.demo.delete(site.demo.kind, "demo")
        await operator.later(minutes=6)
        await site.demo.gone(site.demo.kind, "demo")
        assert await site.deployment() == before
