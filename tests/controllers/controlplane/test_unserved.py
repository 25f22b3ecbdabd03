"""Which jobs no provisioner can run, and what the condition says: pure decisions."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import process_time

import pytest

from coder_k8s.api import reasons
from coder_k8s.api.jobs import UnservedJobs
from coder_k8s.coderd.types import Organization, ProvisionerJob
from coder_k8s.controllers.candidates import Candidate, Obstacle, distinct
from coder_k8s.controllers.controlplane.jobs import schedules, unserved
from coder_k8s.controllers.controlplane.jobs.schedules import SCHEDULES_SERVED, Schedule
from coder_k8s.controllers.controlplane.jobs.unserved import JOBS_SERVED, Queue
from coder_k8s.controllers.report import Outcome
from coder_k8s.controllers.tags import UNTAGGED, key_tags

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CODER = Organization("org-1", "coder", "Coder", is_default=True)
RESEARCH = Organization("org-2", "research", "Research", is_default=False)
GPU = {"env": "gpu", **UNTAGGED}
OWNED = {"scope": "user", "owner": "11111111-1111-4111-8111-111111111111"}


def job(tags: dict[str, str], age: float = 300, status: str = "pending") -> ProvisionerJob:
    return ProvisionerJob("job", NOW - timedelta(seconds=age), status, tags)


def build(obstacle: Obstacle | None = None, /, name: str = "build", **tags: str) -> Candidate:
    return Candidate(f"CoderProvisioner {name}", key_tags(tags), obstacle, managed=True)


def judge(jobs: Sequence[ProvisionerJob], *candidates: Candidate) -> Outcome:
    return unserved.judge(unserved.overdue([Queue(CODER, jobs, candidates)], NOW), None)


BEFORE = "before Coder fails the oldest job at 2026-03-01T12:25Z"
SERVED = "A provisioner can run each waiting job"


@pytest.mark.parametrize(
    ("jobs", "candidates", "reason", "message"),
    [
        ([], [], reasons.ALL_SERVED, SERVED),
        ([job(GPU)], [build(env="gpu")], reasons.ALL_SERVED, SERVED),
        ([job(GPU)], [build(env="cpu"), build(env="gpu", dc="a")], reasons.ALL_SERVED, SERVED),
        ([job(GPU, age=59.9)], [], reasons.ALL_SERVED, SERVED),
        ([job(GPU, status="running"), job(GPU, status="canceling")], [], reasons.ALL_SERVED, SERVED),
        (
            [job(GPU)],
            [],
            reasons.NO_MATCHING_PROVISIONER,
            "1 job in organization coder needs env=gpu; the organization has no provisioner. "
            f"Provide a provisioner with these tags {BEFORE}",
        ),
        (
            [job(GPU, age=60), job(GPU), job(GPU, age=10)],
            [build(env="cpu")],
            reasons.NO_MATCHING_PROVISIONER,
            "2 jobs in organization coder need env=gpu; the closest, CoderProvisioner build, has env=cpu instead of "
            f"env=gpu. Provide a provisioner with these tags {BEFORE}",
        ),
        (
            [job(GPU)],
            [build(env="GPU")],
            reasons.NO_MATCHING_PROVISIONER,
            "1 job in organization coder needs env=gpu; the closest, CoderProvisioner build, has env=GPU instead of "
            f"env=gpu (tags are case-sensitive). Provide a provisioner with these tags {BEFORE}",
        ),
        (
            [job(GPU)],
            [Candidate("the built-in provisioner", UNTAGGED)],
            reasons.NO_MATCHING_PROVISIONER,
            "1 job in organization coder needs env=gpu; the closest, the built-in provisioner, lacks env=gpu. "
            f"Provide a provisioner with these tags {BEFORE}",
        ),
        (
            [job(dict(UNTAGGED))],
            [build(env="gpu")],
            reasons.NO_MATCHING_PROVISIONER,
            "1 job in organization coder has no tags; only a provisioner without tags runs such jobs, and there is "
            f"none. Provide one {BEFORE}",
        ),
        (
            [job(OWNED), job(OWNED)],
            [build()],
            reasons.NO_MATCHING_PROVISIONER,
            "2 jobs in organization coder need scope=user; only a daemon of the same owner runs such jobs. Start one, "
            f"or remove the tag scope from the template {BEFORE}",
        ),
        (
            [job(GPU)],
            [build(env="cpu"), build(Obstacle.SCALED_TO_ZERO, name="gpu", env="gpu")],
            reasons.PROVISIONER_SCALED_TO_ZERO,
            "1 job in organization coder needs env=gpu; CoderProvisioner gpu has these tags, but is scaled to zero. "
            f"Scale it up {BEFORE}",
        ),
        (
            [job(dict(UNTAGGED))],
            [build(Obstacle.SCALED_TO_ZERO)],
            reasons.PROVISIONER_SCALED_TO_ZERO,
            "1 job in organization coder has no tags; CoderProvisioner build has these tags, but is scaled to zero. "
            f"Scale it up {BEFORE}",
        ),
        (
            [job(GPU)],
            [build(Obstacle.STALLED, env="gpu"), Candidate("provisioner key old", GPU, Obstacle.OFFLINE)],
            reasons.NO_MATCHING_PROVISIONER,
            "1 job in organization coder needs env=gpu; CoderProvisioner build has these tags, but is stalled. "
            f"Fix it {BEFORE}",
        ),
        (
            [job(GPU)],
            [build(env="cpu"), Candidate("provisioner key old", GPU, Obstacle.OFFLINE)],
            reasons.NO_MATCHING_PROVISIONER,
            "1 job in organization coder needs env=gpu; provisioner key old has these tags, but is offline. "
            f"Fix it {BEFORE}",
        ),
        (
            [job(GPU), job(dict(UNTAGGED), age=200), job(OWNED, age=100)],
            [],
            reasons.NO_MATCHING_PROVISIONER,
            "1 job in organization coder needs env=gpu; the organization has no provisioner. Provide a provisioner "
            f"with these tags {BEFORE}; 2 more sets of tags without a provisioner: see status.unservedJobs",
        ),
    ],
)
def test_each_case(
    jobs: list[ProvisionerJob], candidates: list[Candidate], reason: reasons.Reason, message: str
) -> None:
    status = reason == reasons.ALL_SERVED
    assert judge(jobs, *candidates) == Outcome(JOBS_SERVED, status, reason, message, satisfied=True)


def test_entries_of_the_status() -> None:
    """By organization and tags, the oldest first."""
    queues = [
        Queue(CODER, [job(GPU, age=100), job(GPU, age=90), job(OWNED, age=80)], []),
        Queue(RESEARCH, [job(GPU, age=110.5), job(GPU, age=50)], []),
    ]
    found = [unserved.entry(group) for group in unserved.overdue(queues, NOW)]
    assert found == [
        UnservedJobs(
            organization_name="research",
            tags={"env": "gpu"},
            count=1,
            oldest=datetime(2026, 3, 1, 11, 58, 9, tzinfo=UTC),
        ),
        UnservedJobs(organization_name="coder", tags={"env": "gpu"}, count=2, oldest=NOW - timedelta(seconds=100)),
        UnservedJobs(organization_name="coder", user_scoped=True, count=1, oldest=NOW - timedelta(seconds=80)),
    ]


def test_tags_of_any_size_fit_into_the_status() -> None:
    huge = {f"{'x' * 10_000}{number}": "y" * 10_000 for number in range(200)} | {"scope": "user"}
    [group] = unserved.overdue([Queue(CODER, [job(huge)], [build(env="gpu")])], NOW)
    assert len(str(unserved.entry(group))) < 4000
    assert len(unserved.judge([group], None).message) < 1500


@pytest.mark.parametrize(
    ("ages", "seconds"), [([], None), ([300], None), ([59], 1), ([10, 20, 300], 40), ([60], None), ([-5], 65)]
)
def test_when_the_next_job_is_due(ages: list[float], seconds: float | None) -> None:
    queue = Queue(CODER, [job(GPU, age) for age in ages], [build(env="cpu")])
    assert unserved.next_due([queue], NOW) == seconds
    assert unserved.next_due([queue._replace(candidates=[build(env="gpu")])], NOW) is None


UNREAD = Outcome(JOBS_SERVED, None, reasons.QUEUE_UNREADABLE, "no")


def test_what_could_not_be_read() -> None:
    """A job that is known counts more than an organization that is not."""
    [group] = unserved.overdue([Queue(CODER, [job(GPU)], [])], NOW)
    assert unserved.judge([], UNREAD) == UNREAD._replace(satisfied=True)
    assert unserved.judge([group], UNREAD).status is False


def template(name: str, tags: dict[str, str], *candidates: Candidate) -> Schedule:
    return Schedule(CODER, name, tags, candidates)


SKIPS = "Coder skips autostart, autostop and automatic deletion of workspaces of"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], ""),
        ([template("gpu", GPU, build(env="gpu"))], ""),
        (
            [template("gpu", GPU, build(env="cpu"))],
            f"{SKIPS} template coder/gpu. coder/gpu needs env=gpu; the closest, CoderProvisioner build, has env=cpu "
            "instead of env=gpu",
        ),
        (
            [template("ml", GPU), template("gpu", GPU), template("ok", GPU, build(env="gpu"))],
            f"{SKIPS} templates coder/gpu, coder/ml. coder/gpu needs env=gpu; the organization has no provisioner",
        ),
        (
            [template("plain", dict(UNTAGGED), build(env="gpu"))],
            f"{SKIPS} template coder/plain. coder/plain has no tags and needs a provisioner without tags",
        ),
        (
            [template("gpu", GPU, build(Obstacle.SCALED_TO_ZERO, env="gpu"))],
            f"{SKIPS} template coder/gpu. CoderProvisioner build has the tags of coder/gpu, but is scaled to zero",
        ),
        (
            [template(f"t{number:02}", GPU) for number in range(12)],
            f"{SKIPS} templates {', '.join(f'coder/t{number:02}' for number in range(10))} and 2 more. "
            "coder/t00 needs env=gpu; the organization has no provisioner",
        ),
    ],
)
def test_schedules(found: list[Schedule], message: str) -> None:
    outcome = schedules.judge(schedules.skipped(found), None)
    if message:
        expected = Outcome(SCHEDULES_SERVED, False, reasons.TEMPLATES_WITHOUT_PROVISIONER, message, satisfied=True)
    else:
        text = "A provisioner can run the scheduled builds of each template"
        expected = Outcome(SCHEDULES_SERVED, True, reasons.ALL_SERVED, text, satisfied=True)
    assert outcome == expected


def test_many_jobs_and_daemons_take_a_bounded_time() -> None:
    """A Coder can have any number of them, and users choose the tags."""
    jobs = [job({**UNTAGGED, f"tag-{number}": "x"}, age=100 + number) for number in range(20_000)]
    daemons = [Candidate(f"daemon {number}", key_tags({f"other-{number}": "x"})) for number in range(1000)]
    queue = Queue(CODER, jobs, daemons)
    begin = process_time()
    groups = unserved.overdue([queue], NOW)
    unserved.next_due([queue], NOW)
    unserved.judge(groups, None)
    assert process_time() - begin < 5
    assert len(groups) == unserved.MAX_TAG_SETS
    assert groups[0].oldest == jobs[-1].created_at, "the oldest are considered first"


def test_candidates_with_the_same_tags_are_compared_once() -> None:
    same = [Candidate(f"daemon {number}", key_tags(GPU)) for number in range(9)]
    offline = Candidate("offline", key_tags(GPU), Obstacle.OFFLINE)
    assert distinct([*same, offline]) == [same[0], offline]


def test_a_long_name_of_an_organization_is_shortened_in_the_status() -> None:
    organization = Organization("o", "x" * 300_000, "X", is_default=False)
    [group] = unserved.overdue([Queue(organization, [job(GPU)], [])], NOW)
    assert len(unserved.entry(group).organization_name) <= 64
    assert len(unserved.explain(group)[1]) < 1000
