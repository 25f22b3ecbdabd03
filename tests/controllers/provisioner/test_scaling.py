"""The number of pods of an autoscaled provisioner follows the jobs in Coder."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE, reasons
from coder_k8s.coderd.client import Client
from coder_k8s.controllers.request_limit import Consumer
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.kinds import POD, POD_DISRUPTION_BUDGET
from tests.support import eventually
from tests.support.provisioners import ProvisionerNamespace

from .autoscaled import AutoscaledSite

COST = "controller.kubernetes.io/pod-deletion-cost"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DISRUPT = "karpenter.sh/do-not-disrupt"
MARKER = "coder.com/protected-by"
PROTECTED = {COST: "10", SAFE: "false", DISRUPT: "true", MARKER: f"{SAFE},{COST},{DISRUPT}"}


@pytest.fixture
async def site(place: ProvisionerNamespace) -> AsyncIterator[AutoscaledSite]:
    async with place.operator() as operator:
        yield AutoscaledSite(place, operator)


async def test_pods_follow_the_queue_up_and_down(site: AutoscaledSite) -> None:
    await site.make()
    assert await site.replicas() == 1
    jobs = site.add_jobs(4)
    await site.later(seconds=30)
    assert await site.replicas() == 4
    status = (await site.place.get()).status.autoscaling
    assert status is not None
    assert (status.desired_replicas, status.pending_jobs, status.limited_by) == (4, 4, "")
    assert status.oldest_pending is not None
    assert status.last_scale_time == site.place.clock()
    assert await site.place.note("ScaledUp") == "Scaled from 1 to 4 pods: 4 jobs wait and 0 run"
    await site.add_pods(4)
    for name in ("build-0", "build-1", "build-2", "build-3"):
        site.run_job(name)
    await site.later(seconds=10)
    assert await site.replicas() == 4
    assert await site.condition("ScalingLimited") == ("False", "DesiredWithinRange")
    assert await site.annotations("build-2") == PROTECTED
    for job in jobs[1:]:
        site.state.queue.finish_job(job)
    await site.later(seconds=10)
    assert await site.condition("AbleToScale") == ("True", "ScaleDownStabilized")
    assert await site.replicas() == 4
    await site.later(seconds=301)
    assert await site.replicas() == 1
    assert await site.place.note("ScaledDown") == "Scaled from 4 to 1 pods: 0 jobs wait and 1 run"
    await site.remove_pods("build-1", "build-2", "build-3")
    await site.add_pods(1)
    assert await site.annotations("build-0") == PROTECTED
    site.state.queue.finish_job(jobs[0])
    await site.later(seconds=10)
    assert await site.annotations("build-0") == {}
    assert await site.condition("ScalingActive") == ("True", "ValidMetricFound")
    assert await site.condition("AbleToScale") == ("True", "ReadyForNewScale")
    await site.place.condition("Ready", "AllReady")


async def test_nothing_is_written_while_nothing_changes(site: AutoscaledSite) -> None:
    await site.make(pods=1)
    site.run_job("build-0")
    await site.later(seconds=30)
    await site.later(seconds=30)
    before = site.operator.write_requests()
    for _ in range(3):
        await site.reconcile()
    assert site.operator.write_requests() == before
    assert site.operator.requeue_after(site.place.key) is not None


async def test_a_build_starts_before_the_removal(site: AutoscaledSite) -> None:
    """The new list of jobs shows it: the pod is protected first, and the removal follows without it."""
    await site.make(replicas=3)
    lists = count(1)

    def start(request: web.Request) -> None:
        if "provisionerjobs" in request.path and next(lists) == 2:
            site.run_job("build-1")

    site.place.plane.before = start
    await site.later(seconds=301)
    await site.later(seconds=1)
    assert await site.replicas() == 1
    assert next(lists) > 3
    assert (await site.annotations("build-1"))[COST] == "10"
    assert await site.annotations("build-0") == {}
    sent = [f"{each.method} {each.target}" for each in site.operator.interceptor.requests]
    protected, scaled = (
        next(at for at, request in enumerate(sent) if request.startswith("PATCH") and f"/{kind}/" in request)
        for kind in ("pods", "deployments")
    )
    assert protected < scaled


async def test_at_zero_a_pod_wakes_up(site: AutoscaledSite) -> None:
    await site.make(minReplicas=0, pods=1)
    await site.later(seconds=301)
    assert await site.replicas() == 0
    await site.remove_pods("build-0")
    await site.place.roll_out(0, "provisioner-build")
    await site.reconcile()
    await site.place.condition("Ready", "ScaledToZero")
    await site.place.condition("DaemonsConnected", "ScaledToZero")
    await site.later(minutes=7, seconds=59)
    assert await site.replicas() == 0
    await site.later(seconds=1)
    assert await site.replicas() == 1
    assert await site.condition("ScalingLimited") == ("True", "TooFewReplicas")
    assert "up to 10m late" in (await site.place.condition("ScalingActive", "ValidMetricFound")).message
    await site.add_pods(1)
    await site.later(seconds=70)
    assert await site.replicas() == 1
    await site.later(seconds=10)
    assert await site.replicas() == 0


async def test_a_schedule_is_a_minimum(site: AutoscaledSite) -> None:
    now = site.place.clock()
    schedule = {
        "start": f"{now.minute} {now.hour} * * *",
        "end": f"{(now + timedelta(minutes=30)).minute} {(now + timedelta(minutes=30)).hour} * * *",
        "minReplicas": 3,
    }
    await site.make(schedules=[schedule])
    assert await site.replicas() == 3
    await site.add_pods(3)
    await site.later(seconds=10)
    assert await site.condition("ScalingLimited") == ("True", "TooFewReplicas")
    await site.later(minutes=31)
    assert await site.replicas() == 1


async def test_a_schedule_that_is_not_valid_is_named(site: AutoscaledSite) -> None:
    await site.make(schedules=[{"start": "0 0 31 2 *", "end": "0 1 * * *", "minReplicas": 3}])
    found = await site.place.condition("ScalingActive", "ScheduleInvalid", "True")
    assert "autoscaling.schedules[0].start: '0 0 31 2 *'" in found.message
    assert await site.replicas() == 1


async def test_the_maximum_limits_the_pods(site: AutoscaledSite) -> None:
    await site.make(maxReplicas=3)
    site.add_jobs(9)
    await site.later(seconds=30)
    assert await site.replicas() == 3
    assert await site.condition("ScalingLimited") == ("True", "TooManyReplicas")
    status = (await site.place.get()).status.autoscaling
    assert status is not None
    assert (status.pending_jobs, status.limited_by) == (9, "MaxReplicas")


async def test_an_unreadable_queue_holds_the_pods_and_falls_back(site: AutoscaledSite) -> None:
    await site.make(replicas=2)
    await site.place.change(
        autoscaling={"maxReplicas": 10, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
    )
    await site.operator.wait_idle()
    await site.later(seconds=30)
    assert await site.replicas() == 1
    await site.remove_pods("build-1")
    before = site.place.plane.before

    def fail(request: web.Request) -> None:
        if "provisionerjobs" in request.path:
            raise RuntimeError("the jobs are not readable")

    site.place.plane.before = fail
    await site.later(seconds=31)
    found = await site.place.condition("ScalingActive", "QueueUnreadable", "False")
    assert "Cannot read the jobs of organization default at CoderControlPlane demo" in found.message
    assert await site.replicas() == 1
    for _ in range(2):
        await site.later(seconds=60)
    assert await site.replicas() == 2
    site.place.plane.before = before
    await site.later(minutes=6)
    await site.place.condition("ScalingActive", "ValidMetricFound", "True")


async def test_pods_that_do_not_start_stop_the_growth(site: AutoscaledSite) -> None:
    await site.make()
    site.add_jobs(3)
    await site.later(seconds=30)
    created = (await site.pod("build-0")).metadata.creation_timestamp
    assert created is not None
    await eventually(lambda: datetime.now(UTC) >= created + timedelta(seconds=1))  # the pod that follows is later
    await site.add_pod("build-1", None)
    await site.later(minutes=4)
    site.add_jobs(3)
    await site.later(seconds=10)
    assert await site.replicas() == 3
    assert await site.condition("AbleToScale") == ("False", "PodsNotStarting")


async def test_a_rotation_holds_a_removal(site: AutoscaledSite) -> None:
    await site.make(replicas=3)
    await site.place.change(tags={"gpu": "1"})
    await site.place.condition("ProvisionerKeyReady", "KeyReady", "True")
    await site.operator.wait_idle()
    await site.later(seconds=301)
    assert await site.replicas() == 3
    assert await site.condition("AbleToScale") == ("False", "Rotating")


async def test_an_update_of_the_control_plane_holds_a_removal(site: AutoscaledSite) -> None:
    await site.make(replicas=3)
    await site.place.set_plane_status("demo", update={"image": "coder:v2.36.1", "step": "Rollout"})
    await site.operator.wait_idle()
    await site.later(seconds=301)
    assert await site.replicas() == 3
    assert await site.condition("AbleToScale") == ("False", "Upgrading")
    await site.place.set_plane_status("demo", update={"image": "coder:v2.36.1", "step": "Complete"})
    await site.operator.wait_idle()
    await site.later(seconds=11)
    assert await site.replicas() == 1


async def test_an_update_that_stops_provisioners_stops_autoscaled_ones(site: AutoscaledSite) -> None:
    await site.make(replicas=2)
    await site.place.set_plane_status("demo", update={"image": "coder:v2.36.1", "step": "Migrate"})
    await site.operator.wait_idle()
    site.add_jobs(3)
    await site.later(seconds=30)
    assert await site.replicas() == 0
    assert await site.condition("AbleToScale") == ("False", "Upgrading")
    assert not await site.place.events("ScaledDown")
    await site.place.set_plane_status("demo", update={"image": "coder:v2.36.1", "step": "Complete"})
    await site.operator.wait_idle()
    await site.later(seconds=11)
    assert await site.replicas() >= 3


async def test_without_names_of_pods_nothing_is_removed_while_builds_run(site: AutoscaledSite) -> None:
    await site.make(replicas=3)
    await site.place.change(extraArgs=["--name=mine"])
    job = site.run_job("build-1")
    await site.later(seconds=301)
    assert await site.replicas() == 3
    assert await site.condition("AbleToScale") == ("False", "BusyPodsUnknown")
    assert await site.annotations("build-1") == {}
    site.state.queue.finish_job(job)
    await site.later(seconds=301)
    assert await site.replicas() == 1


async def test_a_build_in_a_pod_with_another_host_name(site: AutoscaledSite) -> None:
    """As a webhook may set it: the key of its daemon shows that it runs in one of the pods."""
    await site.make(replicas=3)
    site.state.connect_daemon("node-7", (await site.place.get()).status.provisioner_key_name)
    job = site.run_job("node-7")
    for _ in range(2):
        await site.later(seconds=301)
    assert await site.replicas() == 3
    found = await site.place.condition("AbleToScale", "BusyPodsUnknown", "False")
    assert "leave hostname and hostNetwork of the pods unset" in found.message
    site.state.queue.finish_job(job)
    await site.later(seconds=301)
    assert await site.replicas() == 1


async def test_a_build_on_a_new_daemon_of_another_owner(site: AutoscaledSite) -> None:
    """The list of daemons may be a minute old. It is read again before such a build holds back a removal."""
    await site.make(replicas=3)
    await site.later(seconds=290)
    site.state.connect_daemon("short-lived")
    site.run_job("short-lived")
    await site.later(seconds=30)
    assert await site.replicas() == 1


async def test_values_of_users_are_left_alone(site: AutoscaledSite) -> None:
    await site.make()
    await site.place.client.merge(
        POD, site.place.key_of("build-0"), {"metadata": {"annotations": {COST: "-5", SAFE: "true"}}}
    )
    job = site.run_job("build-0")
    await site.later(seconds=30)
    assert await site.annotations("build-0") == {COST: "-5", SAFE: "true", DISRUPT: "true", MARKER: DISRUPT}
    site.state.queue.finish_job(job)
    await site.later(seconds=10)
    assert await site.annotations("build-0") == {COST: "-5", SAFE: "true"}


async def test_a_budget_covers_busy_pods(site: AutoscaledSite) -> None:
    await site.make()
    await site.place.change(disruption={"protectBusyPods": "Budget"})
    site.run_job("build-0")
    await site.later(seconds=30)
    budget = await site.place.find(POD_DISRUPTION_BUDGET, "provisioner-build")
    assert budget.manifest["spec"]["selector"]["matchLabels"]["coder.com/busy"] == "true"
    assert budget.manifest["spec"]["maxUnavailable"] == 0
    await site.place.client.merge(POD_DISRUPTION_BUDGET, budget.key, {"spec": {"maxUnavailable": 5}})
    await site.later(seconds=10)
    budget = await site.place.find(POD_DISRUPTION_BUDGET, "provisioner-build")
    assert budget.manifest["spec"]["maxUnavailable"] == 0, "repaired"
    assert (await site.pod("build-0")).metadata.labels["coder.com/busy"] == "true"
    await site.place.change(disruption={"protectBusyPods": "None"})
    await site.later(seconds=10)
    assert await site.place.find(POD_DISRUPTION_BUDGET, "provisioner-build") is None
    pod = await site.pod("build-0")
    assert "coder.com/busy" not in pod.metadata.labels
    assert await site.annotations("build-0") == {COST: "10", MARKER: COST}


async def test_builds_that_take_longer_than_the_grace_period(site: AutoscaledSite) -> None:
    """The user is warned once, and no longer when the grace period is long enough."""
    names = [f"build-{index}" for index in range(5)]
    await site.make(replicas=5)
    jobs = [site.run_job(name) for name in names]
    await site.later(seconds=590)
    assert await site.condition("AbleToScale") == ("True", "ReadyForNewScale")
    await site.later(seconds=20)
    message = str(reasons.GRACE_PERIOD_TOO_SHORT.example)
    await site.place.message("AbleToScale", "GracePeriodTooShort", message)
    assert await site.place.note("GracePeriodTooShort") == message
    await site.place.condition("Ready", "AllReady")
    for job in jobs:
        site.state.queue.finish_job(job)
    for _ in range(3):
        await site.later(seconds=10)
    assert await site.condition("AbleToScale") == ("True", "GracePeriodTooShort")
    assert len(await site.place.events("GracePeriodTooShort")) == 1
    await site.place.change(terminationGracePeriodSeconds=900)
    await site.place.condition("AbleToScale", "ScaleDownStabilized", "True")


async def test_autoscaling_can_be_removed(site: AutoscaledSite) -> None:
    await site.make(replicas=2)
    site.run_job("build-0")
    site.add_jobs(5)
    await site.later(seconds=30)
    assert await site.replicas() > 2
    await site.place.change(autoscaling=None)

    async def restored() -> bool:
        return await site.replicas() == 2 and (await site.place.get()).status.autoscaling is None

    await eventually(restored)
    await site.operator.wait_idle()
    assert await site.annotations("build-0") == {}
    found = await site.place.get()
    assert found.status.autoscaling is None
    assert not {"ScalingActive", "AbleToScale", "ScalingLimited"} & set(await site.place.conditions())
    assert "coder_k8s_provisioner_pending_jobs{" not in site.operator.metrics()


async def test_a_change_of_replicas_is_ignored(site: AutoscaledSite) -> None:
    await site.make()
    await site.place.change(replicas=7)
    note = await site.place.note("ReplicasIgnored")
    assert note == "Ignored the change of replicas from 1 to 7: autoscaling sets the number of pods"
    await site.operator.wait_idle()
    assert await site.replicas() == 1


async def test_a_paused_provisioner_does_not_scale(site: AutoscaledSite) -> None:
    await site.make()
    await site.place.annotate(paused="true")
    await site.place.condition("ScalingActive", "Paused", "False")
    await site.operator.wait_idle()
    site.place.clock.advance(seconds=60)
    site.add_jobs(5)
    await site.reconcile()
    assert await site.replicas() == 1
    await site.place.annotate(paused=None)
    await site.place.condition("ScalingActive", "ValidMetricFound", "True")
    assert await site.replicas() == 5


async def test_without_a_license_nothing_changes(site: AutoscaledSite) -> None:
    await site.make()
    site.add_jobs(5)
    await site.operator.wait_idle()
    site.place.clock.advance(seconds=30)
    await site.place.set_plane_status("demo", **site.place.fresh("not_entitled"))
    await site.place.condition("ScalingActive", "NotEntitled", "False")
    assert await site.replicas() == 1


async def test_two_provisioners_share_jobs(place: ProvisionerNamespace) -> None:
    """Each job is assigned once: to the provisioner with the fewest other tags, and above its maximum to the other."""
    async with place.operator() as operator:
        small, large = AutoscaledSite(place, operator, "small"), AutoscaledSite(place, operator, "large")
        for site, maximum, tags in ((small, 3, {"gpu": "1"}), (large, 10, {"gpu": "1", "zone": "x"})):
            await place.make(site.name, tags=tags, autoscaling={"maxReplicas": maximum})
            await place.condition("ProvisionerKeyReady", "KeyReady", "True", name=site.name)
            await operator.wait_idle()
            await site.add_pods(1)
        small.add_jobs(7, tags={"gpu": "1"})
        place.clock.advance(seconds=30)
        await place.set_plane_status("demo", **place.fresh("entitled"))
        for site in (small, large):
            await site.reconcile()
        assert (await small.replicas(), await large.replicas()) == (3, 4)


async def test_a_provisioner_without_pods_leaves_the_jobs_to_another(site: AutoscaledSite) -> None:
    """A quota rejects its pods. After some minutes, the other one gets the jobs, although it is the second by name."""
    await site.make()
    site.run_job("build-0")
    await site.place.make("aaa", autoscaling={"maxReplicas": 10})
    await site.place.condition("ProvisionerKeyReady", "KeyReady", "True", name="aaa")
    await site.operator.wait_idle()
    other = AutoscaledSite(site.place, site.operator, "aaa")
    site.add_jobs(5)
    for _ in range(2):
        await site.later(seconds=30)
        await other.reconcile()
    assert (await other.replicas(), await site.replicas()) == (5, 1)
    await site.later(minutes=3)
    await other.reconcile()
    labels = f'name="aaa",namespace="{site.place.namespace}"'
    assert f"coder_k8s_provisioner_pods_not_starting{{{labels}}} 5.0" in site.operator.metrics()
    await site.later(seconds=10)
    assert await site.replicas() == 6


async def test_with_the_limit_of_requests_reached(site: AutoscaledSite) -> None:
    """The jobs get old, and the next attempt waits until coderd may be queried again."""
    await site.make()
    runtime, plane = site.operator.runtime, await site.place.client.get(CONTROL_PLANE, site.place.key_of("demo"))
    coderd = Client(runtime.coderd, api_url(plane), site.place.plane.token)
    await site.operator.wait_idle()
    site.place.clock.advance(seconds=61)
    for _ in range(Consumer.AUTOSCALING.value):
        await runtime.queries.jobs(coderd, "default", timedelta())
    site.place.clock.advance(seconds=31)
    await site.reconcile()
    assert site.operator.requeue_after() == pytest.approx(29, abs=2), "until the first request is a minute old"


async def test_metrics(site: AutoscaledSite) -> None:
    await site.make(replicas=2)
    await site.later(seconds=30)
    created = site.place.clock() - timedelta(seconds=40)
    [job] = site.add_jobs(1, created_at=created)
    site.add_jobs(2)
    site.run_job("build-0")
    await site.later(seconds=30)
    labels = f'name="build",namespace="{site.place.namespace}"'
    text = site.operator.metrics()
    for line in (
        f"coder_k8s_provisioner_desired_replicas{{{labels}}} 3.0",
        f"coder_k8s_provisioner_pending_jobs{{{labels}}} 2.0",
        f"coder_k8s_provisioner_busy_pods{{{labels}}} 1.0",
        f"coder_k8s_provisioner_max_replicas{{{labels}}} 10.0",
        f"coder_k8s_provisioner_builds_lost_total{{{labels}}} 0.0",
        f"coder_k8s_provisioner_queue_wait_seconds_sum{{{labels}}} 40.0",
        f'coder_k8s_provisioner_scale_total{{cause="Demand",direction="up",{labels}}} 1.0',
    ):
        assert line in text, line
    daemon = site.daemon("build-0")
    await site.place.client.delete(POD, await site.pod("build-0"), unchanged=False, grace_seconds=0)
    await eventually(lambda: site.operator.informers[POD].get(site.place.key_of("build-0")) is None)
    site.state.close_daemon(daemon)
    await site.later(seconds=10)
    await site.later(seconds=10)
    assert f"coder_k8s_provisioner_builds_lost_total{{{labels}}} 1.0" in site.operator.metrics()
    assert job
