"""Each model of the simulation behaves as documented: a worked example for each."""

from collections.abc import Mapping
from random import Random

import pytest

from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.controllers.tags import key_tags
from coder_k8s.simulation.agenda import Agenda
from coder_k8s.simulation.cluster import GRACE, Deployment, startup_time
from coder_k8s.simulation.coderd import Coderd, Daemon, Job
from coder_k8s.simulation.scalers import HorizontalPodAutoscaler, Keda, Operator, Static, World

NO_TAGS = key_tags({})


def rng(seed: int = 1) -> Random:
    return Random(seed)  # noqa: S311 - the same in every run


def job(due: float, duration: float = 60.0, scheduled: bool = False, tags: Mapping[str, str] = NO_TAGS) -> Job:
    return Job(int(due), due, duration, tags, scheduled=scheduled)


def world(minimum: int = 1, maximum: int = 100) -> tuple[World, Deployment]:
    agenda = Agenda()
    coderd = Coderd(agenda, rng())
    spec = Autoscaling(min_replicas=minimum, max_replicas=maximum)
    deployment = Deployment("a", NO_TAGS, spec, agenda, coderd, rng())
    return World(agenda, coderd, {"a": deployment}), deployment


def connect(coderd: Coderd, name: str = "d", tags: Mapping[str, str] = NO_TAGS) -> Daemon:
    daemon = Daemon(name, tags, "key", lambda: None)
    coderd.connect(daemon)
    return daemon


def history(deployment: Deployment, agenda: Agenda, until: float, step: float = 1.0) -> dict[float, int]:
    """The replicas after each change, by time."""
    found = {agenda.now: deployment.replicas}
    while agenda.now < until:
        agenda.run(agenda.now + step)
        if deployment.replicas != list(found.values())[-1]:
            found[agenda.now] = deployment.replicas
    return found


# coderd


def test_an_idle_daemon_gets_a_job_at_once_and_the_next_one_after_it() -> None:
    agenda = Agenda()
    coderd = Coderd(agenda, rng())
    connect(coderd)
    first, second = job(10), job(20)
    for each in (first, second):
        coderd.submit(each)
    agenda.run(200)
    assert first.started == pytest.approx(10.2, abs=0.2)
    assert second.started == first.finished


def test_an_untagged_job_may_wake_up_the_wrong_daemons_and_wait_for_the_poll() -> None:
    waits = set()
    for seed in range(20):
        agenda = Agenda()
        coderd = Coderd(agenda, rng(seed))
        connect(coderd, "tagged", key_tags({"gpu": "1"}))
        connect(coderd)
        waiting = job(10)
        coderd.submit(waiting)
        agenda.run(100)
        assert waiting.started is not None
        waits.add(round(waiting.started - 10) // 10)
    assert waits == {0, 2}  # notified, or polled 30 seconds after the daemon connected


def test_a_job_that_waits_for_30_minutes_fails() -> None:
    agenda = Agenda()
    coderd = Coderd(agenda, rng())
    waiting = job(10)
    coderd.submit(waiting)
    agenda.run(4000)
    assert waiting.failed is not None
    assert 1800 <= waiting.failed - 10 <= 1860


def test_a_daemon_that_exited_is_listed_as_idle_for_at_most_90_seconds() -> None:
    agenda = Agenda()
    coderd = Coderd(agenda, rng())
    daemon = connect(coderd)
    agenda.run(70)
    coderd.disconnect(daemon)
    agenda.run(149)
    assert [each.status for each in coderd.view()[1]] == ["idle"]
    agenda.run(151)
    assert coderd.view()[1] == []


@pytest.mark.parametrize(("connected", "created"), [(True, True), (False, False)])
def test_a_scheduled_job_is_created_only_while_a_daemon_is_connected(connected: bool, created: bool) -> None:
    agenda = Agenda()
    coderd = Coderd(agenda, rng())
    if connected:
        connect(coderd)
    stop = job(1000, scheduled=True)
    coderd.submit(stop)
    agenda.run(1000 + 60)
    assert (stop.created is not None) is created


# pods


def test_pods_take_2_to_90_seconds_to_start() -> None:
    times = sorted(startup_time(rng(seed)) for seed in range(1000))
    assert 2 <= times[0] <= times[-1] <= 90
    assert times[500] < 10
    assert 100 < sum(time >= 40 for time in times) < 200


def test_the_newest_of_equal_pods_is_removed_first_and_a_costly_one_last() -> None:
    seen, deployment = world()
    for replicas in (1, 2, 3):
        deployment.scale(replicas)
        seen.agenda.run(seen.agenda.now + 100)
    deployment.active[2].cost = 10
    deployment.scale(2)
    assert [pod.name for pod in deployment.active] == ["a-0", "a-2"]


@pytest.mark.parametrize(("duration", "lost"), [(GRACE - 10, False), (GRACE + 60, True)])
def test_a_removed_pod_finishes_a_build_that_fits_into_its_grace_period(duration: float, lost: bool) -> None:
    seen, deployment = world()
    deployment.scale(1)
    build = job(100, duration)
    seen.coderd.submit(build)
    seen.agenda.run(105)
    deployment.scale(0)
    seen.agenda.run(2000)
    assert (build.failed is not None) is lost
    assert (build.finished is None) is lost
    pod = deployment.pods[0]
    assert pod.gone == pytest.approx(105 + GRACE if lost else 101 + duration, abs=2)


# scalers


def test_static_replicas_do_not_change() -> None:
    seen, deployment = world()
    Static({"a": 7}).start(seen)
    seen.coderd.submit(job(10))
    assert history(deployment, seen.agenda, 1000) == {0: 7}


def test_hpa_adds_4_pods_or_100_percent_per_15_seconds_and_removes_after_300() -> None:
    """50 jobs at second 40: 1, 5, 10, 20, 40, 50 replicas at the next syncs; builds end from second 540 on."""
    seen, deployment = world()
    HorizontalPodAutoscaler().start(seen)
    for _ in range(50):
        seen.coderd.submit(job(40, 500))
    found = history(deployment, seen.agenda, 120)
    assert found == {0: 1, 45: 5, 60: 10, 75: 20, 90: 40, 105: 50}
    after = history(deployment, seen.agenda, 3000)
    fewer = [at for at, replicas in after.items() if replicas < 50]
    assert min(fewer) >= 540 + 300
    assert list(after.values())[-1] == 1


def test_hpa_ignores_a_ratio_within_10_percent() -> None:
    hpa = HorizontalPodAutoscaler()
    assert [hpa.recommend(20, value) for value in (17, 18, 20, 21, 23)] == [17, 20, 20, 20, 23]


def test_keda_scales_from_zero_at_its_poll_and_to_zero_after_its_cooldown() -> None:
    """A job at second 35 is seen at 60; the last poll that sees it is 300 seconds before the pod is removed."""
    seen, deployment = world(minimum=0)
    Keda().start(seen)
    seen.coderd.submit(job(35, 60))
    found = history(deployment, seen.agenda, 2000)
    assert list(found.values()) == [0, 1, 0]
    begin, end = list(found)[1:]
    assert begin == 60
    build = seen.coderd.jobs[0]
    assert build.finished is not None
    assert 300 - 30 <= end - build.finished <= 300 + 30  # since the last poll that saw the job


def test_keda_at_zero_never_creates_scheduled_jobs() -> None:
    seen, _ = world(minimum=0)
    Keda().start(seen)
    stop = job(1000, scheduled=True)
    seen.coderd.submit(stop)
    seen.agenda.run(20_000)
    assert stop.created is None


def test_the_operator_sees_jobs_within_30_seconds_and_removes_idle_pods() -> None:
    seen, deployment = world()
    Operator().start(seen)
    for number in range(20):
        seen.coderd.submit(job(40, 60 if number else 2000))
    found = history(deployment, seen.agenda, 1500)
    assert list(found.values())[:2] == [1, 20]
    assert list(found.values())[-1] == 1
    assert 40 <= list(found)[1] <= 70
    assert [pod.daemon.job is not None for pod in deployment.active if pod.daemon] == [True]


def test_the_operator_wakes_up_often_enough_for_scheduled_jobs() -> None:
    seen, deployment = world(minimum=0)
    Operator().start(seen)
    stops = [job(due, 20, scheduled=True) for due in range(1000, 20_000, 700)]
    for stop in stops:
        seen.coderd.submit(stop)
    seen.agenda.run(25_000)
    assert all(stop.created is not None and stop.created - stop.due <= 600 for stop in stops)
    assert deployment.pod_seconds(25_000) < 25_000 * 0.7


def test_time_passes_in_order() -> None:
    agenda, seen = Agenda(5.0), []
    for at in (9.0, 7.0, 7.0):
        agenda.at(at, lambda: seen.append(agenda.now))
    agenda.run(8)
    assert (seen, agenda.now) == ([7.0, 7.0], 8.0)
