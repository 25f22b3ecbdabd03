"""Jobs and schedules that no provisioner serves: conditions, status, events and metrics of a control plane."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from coder_k8s.api import PROVISIONER
from coder_k8s.api.jobs import UnservedJobs
from coder_k8s.coderd.connections import Limits, Response
from coder_k8s.controllers.request_limit import Consumer
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import User
from coder_k8s.dev.coderd_server.queue import Queue
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.campaign import slice_of
from tests.support.controlplanes import PlaneNamespace, plane_with_token, value_of
from tests.support.interceptor import Interceptor, Request
from tests.support.operators import Operator

T = TypeVar("T")

JOBS = "coder_k8s_unserved_jobs"
OLDEST = "coder_k8s_unserved_oldest_timestamp_seconds"
TEMPLATES = "coder_k8s_unserved_templates"
GPU = {"env": "gpu"}
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    """A control plane with a valid token and a built-in daemon."""
    async with plane_with_token(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        place.coderd.state.connect_daemon("vm-0")
        yield place


@asynccontextmanager
async def running(demo: PlaneNamespace, **options: Any) -> AsyncIterator[Operator]:
    """An operator, when the control plane is ready and its jobs are read."""
    async with demo.operator(**options) as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        yield operator


async def make_provisioner(demo: PlaneNamespace, name: str, **spec: Any) -> None:
    await demo.client.create(
        PROVISIONER,
        {
            "metadata": {"namespace": demo.namespace, "name": name},
            "spec": {"controlPlaneRef": {"name": demo.name}, **spec},
        },
    )


def queue(demo: PlaneNamespace) -> Queue:
    return demo.coderd.state.queue


async def test_before_coder_is_ready(demo: PlaneNamespace) -> None:
    async with demo.operator():
        waiting = "Waiting for operator access and a ready pod"
        await demo.message("JobsServed", "Pending", waiting)
        await demo.message("SchedulesServed", "Pending", waiting)


async def test_a_job_that_nobody_can_run(demo: PlaneNamespace) -> None:
    """It is reported after a minute, and no longer when it is cancelled."""
    async with running(demo) as operator:
        assert (await demo.conditions())["JobsServed"] == ("True", "AllServed")
        created = demo.clock()
        job = queue(demo).add_job(GPU)
        queue(demo).add_job()
        await operator.later(seconds=59)
        assert (await demo.conditions())["JobsServed"] == ("True", "AllServed")
        assert operator.requeue_after() == pytest.approx(1, abs=0.5), "a job is due"
        await operator.later(seconds=1)
        await demo.message(
            "JobsServed",
            "NoMatchingProvisioner",
            "1 job in organization coder needs env=gpu; the closest, the built-in provisioner, lacks env=gpu. Provide "
            "a provisioner with these tags before Coder fails the oldest job at "
            f"{created + timedelta(minutes=30):%Y-%m-%dT%H:%MZ}",
        )
        status = (await demo.get()).status
        assert status.unserved_jobs == [
            UnservedJobs(organization_name="coder", tags=GPU, count=1, oldest=created.replace(microsecond=0))
        ]
        assert (await demo.conditions())["Ready"] == ("True", "AllReady"), "users can do nothing about it there"
        assert "needs env=gpu" in await demo.note("JobsUnserved")
        assert value_of(operator.metrics(), JOBS, organization="coder", name=demo.name) == 1
        assert value_of(operator.metrics(), OLDEST, name=demo.name) == created.timestamp()

        before = operator.writes()
        for _ in range(5):
            await operator.later(seconds=30)
        assert operator.writes() - before <= 2, "only the times of other checks change"

        queue(demo).cancel_job(job)
        await operator.later(seconds=30)
        await demo.message("JobsServed", "AllServed", "A provisioner can run each waiting job")
        assert (await demo.get()).status.unserved_jobs == []
        await demo.event("JobsServed")
        assert value_of(operator.metrics(), JOBS, organization="coder", name=demo.name) == 0
        assert value_of(operator.metrics(), OLDEST, name=demo.name) is None


async def test_a_job_that_is_reported_is_read_again(demo: PlaneNamespace) -> None:
    """The last answer may be a minute old, and a daemon may have connected since."""
    async with running(demo) as operator:
        queue(demo).add_job(GPU)
        await operator.later(seconds=45)
        demo.coderd.state.add_key("gpu", GPU)
        demo.coderd.state.connect_daemon("gpu-1", "gpu")
        await operator.later(seconds=15)
        assert (await demo.conditions())["JobsServed"] == ("True", "AllServed")
        assert await demo.events("JobsUnserved") == []


async def test_provisioners_of_the_control_plane(demo: PlaneNamespace) -> None:
    """One that is scaled to zero runs nothing, and one of another control plane does not count."""
    await make_provisioner(demo, "gpu", tags=GPU, replicas=0)
    await make_provisioner(demo, "other", tags=GPU, controlPlaneRef={"name": "other"})
    async with running(demo) as operator:
        queue(demo).add_job(GPU)
        await operator.later(seconds=60)
        await demo.condition("JobsServed", "ProvisionerScaledToZero", "False")
        assert "CoderProvisioner gpu has these tags, but is scaled to zero" in await demo.note("JobsUnserved")
        await demo.client.merge(PROVISIONER, Key(demo.namespace, "gpu"), {"spec": {"replicas": 1}})
        await eventually(lambda: replicas(operator, demo) == 1)
        await operator.later(seconds=30)
        await demo.condition("JobsServed", "AllServed", "True")


def replicas(operator: Operator, demo: PlaneNamespace) -> int | None:
    known = operator.informers[PROVISIONER].get(Key(demo.namespace, "gpu"))
    return None if known is None else known.spec.replicas


async def test_several_organizations(demo: PlaneNamespace) -> None:
    research = demo.coderd.state.add_organization("research")
    async with running(demo) as operator:
        queue(demo).add_job(organization=research)
        queue(demo).add_job({"scope": "user"})
        await operator.later(seconds=60)
        await demo.condition("JobsServed", "NoMatchingProvisioner", "False")
        found = {
            (each.organization_name, each.user_scoped, each.count) for each in (await demo.get()).status.unserved_jobs
        }
        assert found == {("research", False, 1), ("coder", True, 1)}
        assert len(await demo.events("JobsUnserved")) == 2


async def test_at_most_ten_sets_of_tags(demo: PlaneNamespace) -> None:
    async with running(demo) as operator:
        for number in range(12):
            queue(demo).add_job({"number": f"{number:02}"})
        await operator.later(seconds=60)
        await demo.condition("JobsServed", "NoMatchingProvisioner", "False")
        assert [each.tags["number"] for each in (await demo.get()).status.unserved_jobs] == [
            f"{number:02}" for number in range(10)
        ]
        assert value_of(operator.metrics(), JOBS, organization="coder", name=demo.name) == 12


async def test_a_template_whose_schedules_are_skipped(demo: PlaneNamespace) -> None:
    state = demo.coderd.state
    state.templates.add_template("plain")
    state.templates.add_template("gpu", GPU)
    async with running(demo) as operator:
        await demo.message(
            "SchedulesServed",
            "TemplatesWithoutProvisioner",
            "Coder skips autostart, autostop and automatic deletion of workspaces of template coder/gpu. coder/gpu "
            "needs env=gpu; the closest, the built-in provisioner, lacks env=gpu",
        )
        await demo.event("SchedulesSkipped")
        assert (await demo.conditions())["Ready"] == ("True", "AllReady")
        assert value_of(operator.metrics(), TEMPLATES, organization="coder", name=demo.name) == 1
        versions = state.count("GET", "/api/v2/templateversions/{version}")
        assert versions == 2
        for _ in range(30):
            await operator.later(seconds=30)
        assert state.count("GET", "/api/v2/templateversions/{version}") == versions, "the tags of a version are fixed"
        assert len(await demo.events("SchedulesSkipped")) == 1

        state.add_key("gpu", GPU)
        state.connect_daemon("gpu-1", "gpu")
        await operator.later(seconds=60)
        await demo.condition("SchedulesServed", "AllServed", "True")
        await demo.event("SchedulesServed")
        assert value_of(operator.metrics(), TEMPLATES, organization="coder", name=demo.name) == 0


class Faulty(Interceptor):
    """Responds to requests for one part of coderd's API in another way."""

    part = ""
    response = Response(200, {}, b"")

    async def intercept(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        if self.part and self.part in request.target and not request.is_kubernetes:
            return cast("T", self.response)
        return await super().intercept(request, send)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


JOB = {"id": "x", "created_at": "2026-03-01T12:00:00Z", "status": "pending", "tags": {"owner": ""}}


@pytest.mark.parametrize(
    ("status", "content", "message"),
    slice_of(
        [
            (403, body(message="Forbidden."), "may not do that: Forbidden.; grant this user the role Owner in Coder"),
            (
                404,
                body(message="Resource not found or you do not have access to this resource"),
                "grant this user the role",
            ),
            (404, body(message="Route not found."), "Route not found"),
            (503, body(message="Down", detail="for maintenance"), "HTTP 503: Down: for maintenance"),
            (401, body(message="Signed out", detail="API key is invalid."), "Coder rejects the token in Secret given"),
            (401, body(message="An internal error occurred."), "HTTP 401: An internal error occurred"),
            (200, b"<html>", "invalid response"),
            (200, json.dumps([JOB | {"tags": None}]).encode(), "invalid response: Expected `object`, got `null`"),
            (200, json.dumps([{"id": "x"}]).encode(), "invalid response"),
            (200, b"[" * 100_000, "invalid response"),
        ],
        *(0, 3, 4, 6),
    ),
)
async def test_unreadable_jobs(demo: PlaneNamespace, status: int, content: bytes, message: str) -> None:
    """Nothing is known, so the condition is Unknown, and the last known jobs stay in the status."""
    faulty = Faulty()
    async with running(demo, interceptor=faulty) as operator:
        queue(demo).add_job(GPU)
        await operator.later(seconds=60)
        await demo.condition("JobsServed", "NoMatchingProvisioner", "False")
        faulty.part, faulty.response = "/provisionerjobs", Response(status, {}, content)
        for _ in range(2):  # a first error that may pass by itself changes nothing
            await operator.later(seconds=60)
        condition = await demo.condition("JobsServed", "QueueUnreadable", "Unknown")
        assert message in condition.message
        assert len((await demo.get()).status.unserved_jobs) == 1
        assert (await demo.conditions())["Ready"] == ("True", "AllReady")
        assert (operator.requeue_after() or 0) <= 30
        faulty.part = ""
        await operator.later(minutes=5)
        await demo.condition("JobsServed", "NoMatchingProvisioner", "False")
        assert len(await demo.events("JobsUnserved")) == 1, "these jobs were known"


@pytest.mark.parametrize("part", ["/templates", "/templateversions"])
async def test_unreadable_templates(demo: PlaneNamespace, part: str) -> None:
    demo.coderd.state.templates.add_template("gpu", GPU)
    faulty = Faulty()
    faulty.part, faulty.response = part, Response(500, {}, body(message="Internal error"))
    async with running(demo, interceptor=faulty) as operator:
        await demo.message(
            "SchedulesServed",
            "TemplatesUnreadable",
            "The templates could not be read from Coder: HTTP 500: Internal error",
        )
        assert (await demo.conditions())["JobsServed"] == ("True", "AllServed")
        faulty.part = ""
        await operator.later(minutes=1)
        await demo.condition("SchedulesServed", "TemplatesWithoutProvisioner", "False")


async def test_an_organization_that_is_deleted(demo: PlaneNamespace) -> None:
    """Organizations are listed every ten minutes; one whose jobs are not found may be gone."""
    gone = demo.coderd.state.add_organization("gone")
    async with running(demo) as operator:
        demo.coderd.state.remove_organization(gone)
        await operator.later(minutes=1)
        assert (await demo.conditions())["JobsServed"] == ("True", "AllServed")


async def test_a_first_error_does_not_change_the_condition(demo: PlaneNamespace) -> None:
    faulty = Faulty()
    async with running(demo, interceptor=faulty) as operator:
        faulty.part, faulty.response = "/provisionerjobs", Response(502, {}, b"<html>")
        await operator.later(minutes=1)
        assert (await demo.conditions())["JobsServed"] == ("True", "AllServed")
        assert (operator.requeue_after() or 0) > 5, "not at once"
        await operator.later(seconds=20)
        await demo.condition("JobsServed", "QueueUnreadable", "Unknown")


async def test_more_organizations_than_can_be_read_at_once(demo: PlaneNamespace) -> None:
    """Until each of them was read once, it is not known whether all jobs are served."""
    for number in range(Consumer.HEALTH.value):
        last = demo.coderd.state.add_organization(f"team-{number}")
    demo.coderd.state.templates.add_template("plain", organization=last)
    async with running(demo) as operator:
        for type_ in ("JobsServed", "SchedulesServed"):
            await demo.message(type_, "Pending", "Not all organizations and templates are read yet")
        queue(demo).add_job(GPU, last, created_at=demo.clock() - MINUTE)
        await operator.later(seconds=60)
        await demo.condition("JobsServed", "NoMatchingProvisioner", "False")
        await demo.condition("SchedulesServed", "TemplatesWithoutProvisioner", "False")


async def test_a_response_that_is_too_large(demo: PlaneNamespace) -> None:
    """coderd sends all waiting jobs at once."""
    for _ in range(12):
        queue(demo).add_job({"padding": "x" * (Limits().body // 10)})
    async with running(demo) as operator:
        condition = await demo.condition("JobsServed", "QueueUnreadable", "Unknown")
        assert f"the response is larger than {Limits().body} bytes" in condition.message
        assert (operator.requeue_after() or 0) <= 30


async def test_a_user_who_may_not_read_jobs(demo: PlaneNamespace) -> None:
    await demo.put_secret("given", token=demo.coderd.state.add_token(User("jo")))
    async with demo.operator():
        await demo.roll_out()
        condition = await demo.condition("JobsServed", "QueueUnreadable", "Unknown")
        assert "token in Secret given" in condition.message
        assert "grant this user the role Owner" in condition.message


async def test_scaled_to_zero(demo: PlaneNamespace) -> None:
    async with running(demo) as operator:
        await demo.change(replicas=0)
        await demo.roll_out(0)
        await demo.condition("JobsServed", "ScaledToZero", "True")
        await demo.condition("SchedulesServed", "ScaledToZero", "True")
        await operator.wait_idle()
