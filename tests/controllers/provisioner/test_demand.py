"""What a provisioner has to do, from jobs, daemons and pods."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerJob
from coder_k8s.controllers.provisioner.demand import Member, demands, is_covered
from coder_k8s.controllers.provisioner.victims import PodState
from coder_k8s.controllers.tags import key_tags

from .scaling import NOW, ago, autoscaling, job, pods


def member(name: str = "a", known: Sequence[PodState] = (), **fields: Any) -> Member:
    tags = key_tags(fields.pop("tags", {}))
    return Member(name, tags, frozenset({f"key-{name}"}), known, **{"spec": autoscaling()} | fields)


def daemon(name: str, key: str, status: str = "idle", **tags: str) -> ProvisionerDaemon:
    return ProvisionerDaemon(name, name, key, ago(600), "v2.36.1", "1.0", key_tags(tags), ago(1), status)


def orphan(**tags: str) -> ProvisionerJob:
    return replace(job(60, **tags), status="running")


def found(jobs: list[ProvisionerJob], daemons: list[ProvisionerDaemon], *members: Member) -> dict[str, Any]:
    result = demands(jobs, daemons, members, NOW)
    return {
        name: (sorted(demand.busy), len(demand.share.jobs), demand.unmapped, demand.uncertain)
        for name, demand in result.items()
    }


def test_busy_pods_are_those_with_a_running_job() -> None:
    jobs = [job(worker="busy-0"), replace(job(worker="busy-1"), status="canceling"), job(worker="ending"), job()]
    known = member(known=pods(busy=3, idle=1), ending=frozenset(["ending"]))
    assert found(jobs, [], known) == {"a": (["busy-0", "busy-1"], 1, 0, False)}


@pytest.mark.parametrize(
    ("daemons", "others", "expected"),
    [
        pytest.param([daemon("node-7", "key-a")], [], (1, False), id="of this provisioner"),
        pytest.param([daemon("node-7", "key-x")], [], (0, False), id="not managed"),
        pytest.param([], [], (0, True), id="not in the list yet"),
        pytest.param([], [member("b", [PodState("node-7", ago(9), ago(5))])], (0, False), id="of another provisioner"),
        pytest.param([], [member("b", ending=frozenset(["node-7"]))], (0, False), id="of another one, being deleted"),
    ],
)
def test_a_job_in_a_pod_that_is_not_known(
    daemons: list[ProvisionerDaemon], others: list[Member], expected: tuple[int, bool]
) -> None:
    """A webhook changes the name, or the pod is not in the cache yet."""
    running = replace(job(worker="node-7"), worker_id="node-7")
    result = found([running], daemons, member(known=pods(idle=3)), *others)
    assert result["a"] == ([], 0, *expected)


def test_a_daemon_that_exited_takes_no_job() -> None:
    ghost = daemon("idle-9", "key-a")
    assert found([job()], [ghost], member(known=[])) == {"a": ([], 1, 0, False)}


def test_a_job_without_a_daemon_may_be_in_any_pod_that_covers_it() -> None:
    assert found([orphan(gpu="1")], [], member(known=pods(idle=1)), member("b", tags={"gpu": "1"})) == {
        "a": ([], 0, 0, False),
        "b": ([], 0, 0, True),
    }


def test_with_other_names_only_the_number_of_busy_daemons_is_known() -> None:
    running = replace(job(worker="mine"), worker_id="mine")
    unnamed = member(known=pods(idle=2), named_after_pods=False)
    assert found([running, job(), job()], [daemon("mine", "key-a", "busy")], unnamed) == {"a": ([], 2, 1, False)}
    demand = demands([running, job(), job()], [daemon("mine", "key-a", "busy")], [unnamed], NOW)["a"]
    assert demand.share.unresponsive == frozenset()


@pytest.mark.parametrize(
    ("daemons", "fixed", "assigned"),
    [
        pytest.param([daemon("other", "key-x")], None, 0, id="not managed"),
        pytest.param([daemon("other", "key-x", "busy")], None, 1, id="not managed and busy"),
        pytest.param([daemon("other", "key-x", "offline")], None, 1, id="not managed and offline"),
        pytest.param([daemon("idle-0", "key-b")], pods(idle=1), 0, id="of another provisioner"),
        pytest.param([daemon("idle-0", "key-b")], pods(starting=1), 1, id="of a pod that no longer exists"),
    ],
)
def test_idle_daemons_of_others_take_jobs(
    daemons: list[ProvisionerDaemon], fixed: list[PodState] | None, assigned: int
) -> None:
    others = [] if fixed is None else [member("b", fixed, spec=None)]
    assert found([job()], daemons, member(), *others) == {"a": ([], assigned, 0, False)}


def test_a_daemon_that_got_a_job_since_takes_no_other() -> None:
    jobs = [job(worker="other"), job()]
    assert found(jobs, [daemon("other", "key-x")], member()) == {"a": ([], 1, 0, False)}


@pytest.mark.parametrize(
    ("other", "tags", "expected"),
    [
        (daemon("x", "key-x"), {}, True),
        (daemon("x", "key-x", "busy"), {}, True),
        (daemon("x", "key-x", "offline"), {}, False),
        (daemon("x", "key-a"), {}, False),
        (daemon("x", "key-x", gpu="1"), {}, False),
        (daemon("x", "key-x", gpu="1"), {"gpu": "1"}, True),
        (daemon("x", "key-x", gpu="1", zone="x"), {"gpu": "1"}, True),
        (daemon("x", "key-x", gpu="1"), {"gpu": "1", "zone": "x"}, False),
    ],
)
def test_whether_another_daemon_covers_all_jobs(other: ProvisionerDaemon, tags: dict[str, str], expected: bool) -> None:
    assert is_covered(member(tags=tags), [other]) is expected
