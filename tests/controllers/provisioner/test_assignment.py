"""Each job that waits is assigned once, to an idle daemon or to a provisioner."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder_k8s.coderd.types import ProvisionerJob
from coder_k8s.controllers.provisioner.assignment import PREBUILDS, IdleDaemon, Pool, assign
from coder_k8s.controllers.tags import covers, key_tags

from .scaling import NOW, ago, job


def pool(name: str, room: int = 10, **tags: str) -> Pool:
    return Pool(name, key_tags(tags), room)


def idle(name: str, pool: str = "", seconds: float | None = None, **tags: str) -> IdleDaemon:
    return IdleDaemon(name, key_tags(tags), pool, None if seconds is None else ago(seconds))


def counts(jobs: Sequence[ProvisionerJob], daemons: Sequence[IdleDaemon], pools: Sequence[Pool]) -> dict[str, int]:
    return {name: len(share.jobs) for name, share in assign(jobs, daemons, pools, NOW).items()}


@pytest.mark.parametrize(
    ("jobs", "daemons", "pools", "expected"),
    [
        pytest.param([job(), job()], [], [pool("a")], {"a": 2}, id="all to the only one"),
        pytest.param([job()], [idle("other")], [pool("a")], {"a": 0}, id="an unmanaged daemon takes it"),
        pytest.param([job(36)], [idle("other")], [pool("a")], {"a": 1}, id="an unmanaged daemon did not take it"),
        pytest.param([job(), job()], [idle("other")], [pool("a")], {"a": 1}, id="a daemon takes one job"),
        pytest.param([job()], [idle("other", gpu="1")], [pool("a")], {"a": 1}, id="untagged needs untagged"),
        pytest.param([job(gpu="1")], [], [pool("a")], {"a": 0}, id="nobody covers it"),
        pytest.param(
            [job(36)],
            [idle("a-0", "a", 40)],
            [pool("a"), pool("b")],
            {"a": 0, "b": 1},
            id="its daemon does not take it",
        ),
        pytest.param(
            [job(36)],
            [idle("a-0", "a", 40)],
            [pool("a"), pool("b", room=0)],
            {"a": 1, "b": 0},
            id="and no other has room",
        ),
        pytest.param(
            [job(gpu="1")],
            [],
            [pool("a", gpu="1", zone="x", arch="arm"), pool("b", gpu="1", zone="x")],
            {"a": 0, "b": 1},
            id="fewest other tags",
        ),
        pytest.param([job(gpu="1")], [], [pool("b", gpu="1"), pool("a", gpu="1")], {"a": 1, "b": 0}, id="by name"),
        pytest.param(
            [job(gpu="1") for _ in range(3)],
            [],
            [pool("a", 1, gpu="1"), pool("b", 1, gpu="1", zone="x")],
            {"a": 2, "b": 1},
            id="the one below its maximum; what is left is counted once",
        ),
        pytest.param(
            [job(gpu="1")],
            [idle("b-1", "b", 600, gpu="1", zone="x")],
            [pool("a", gpu="1"), pool("b", gpu="1", zone="x")],
            {"a": 0, "b": 1},
            id="an idle daemon before a new pod",
        ),
        pytest.param(
            [job(gpu="1"), job(gpu="1", zone="x")],
            [idle("narrow", "a", 600, gpu="1"), idle("wide", "b", 600, gpu="1", zone="x")],
            [pool("a", 0, gpu="1"), pool("b", 0, gpu="1", zone="x")],
            {"a": 1, "b": 1},
            id="the daemon with the fewest other tags",
        ),
        pytest.param(
            [job(3600)], [idle("a-1", "a", 34)], [pool("a")], {"a": 1}, id="a daemon that was busy takes an old job"
        ),
    ],
)
def test_who_gets_a_job(
    jobs: Sequence[ProvisionerJob],
    daemons: Sequence[IdleDaemon],
    pools: Sequence[Pool],
    expected: Mapping[str, int],
) -> None:
    assert counts(jobs, daemons, pools) == expected


def test_jobs_of_people_come_first_and_then_the_oldest() -> None:
    prebuild, young, old = job(600, PREBUILDS), job(1), job(9)
    share = assign([prebuild, young, old], [idle("a-1", "a", 1)], [pool("a", 1), pool("b", 5)], NOW)
    assert [each.jobs for each in share.values()] == [(old, young), (prebuild,)]


@pytest.mark.parametrize(
    ("waits", "idle_for", "found"), [(34, 3600, set()), (35, 3600, {"a-1"}), (3600, 34, set()), (3600, 35, {"a-1"})]
)
def test_an_idle_daemon_that_takes_no_job_is_reported(waits: float, idle_for: float, found: set[str]) -> None:
    share = assign([job(waits)], [idle("a-1", "a", idle_for)], [pool("a")], NOW)["a"]
    assert share.unresponsive == found
    assert len(share.jobs) == 1


def test_a_daemon_that_takes_another_job_responds() -> None:
    share = assign([job(3600), job(1)], [idle("a-1", "a", 3600)], [pool("a")], NOW)["a"]
    assert share.unresponsive == frozenset()


TAGS = [{}, {"gpu": "1"}, {"zone": "x"}, {"gpu": "1", "zone": "x"}, {"gpu": "2"}]
jobs_strategy = st.lists(st.builds(lambda tags, age: job(age, **tags), st.sampled_from(TAGS), st.integers(0, 90)))
pools_strategy = st.lists(
    st.builds(
        lambda name, tags, room: pool(name, room, **tags),
        st.sampled_from("abc"),
        st.sampled_from(TAGS),
        st.integers(0, 4),
    ),
    unique_by=lambda each: each.name,
)
daemons_strategy = st.lists(
    st.builds(
        lambda number, owner, tags, age: idle(f"{owner}-{number}", owner, age, **tags),
        st.integers(0, 9),
        st.sampled_from(["", "a", "b"]),
        st.sampled_from(TAGS),
        st.integers(0, 90),
    ),
    unique_by=lambda each: each.name,
)


@given(jobs_strategy, daemons_strategy, pools_strategy, st.sampled_from(TAGS), st.integers(0, 90))
def test_one_more_job_is_assigned_at_most_once(
    jobs: list[ProvisionerJob],
    daemons: list[IdleDaemon],
    pools: list[Pool],
    tags: dict[str, str],
    age: int,
) -> None:
    daemons = [each for each in daemons if not each.pool or each.pool in {pool.name for pool in pools}]
    before = counts(jobs, daemons, pools)
    after = counts([*jobs, job(age, **tags)], daemons, pools)
    assert sum(before.values()) <= sum(after.values()) <= sum(before.values()) + 1


@given(jobs_strategy, daemons_strategy, pools_strategy)
def test_a_job_is_assigned_to_one_provisioner_that_covers_it(
    jobs: list[ProvisionerJob], daemons: list[IdleDaemon], pools: list[Pool]
) -> None:
    tags = {pool.name: pool.tags for pool in pools}
    daemons = [each._replace(tags=tags.get(each.pool, each.tags)) for each in daemons if each.pool in {"", *tags}]
    shares = assign(jobs, daemons, pools, NOW)
    assigned = [(name, each) for name, share in shares.items() for each in share.jobs]
    assert len({each.id for _, each in assigned}) == len(assigned)
    assert all(covers(tags[name], each.tags) for name, each in assigned)
