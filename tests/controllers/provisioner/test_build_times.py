"""Builds that take longer than the grace period of pods."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from coder_k8s.controllers.provisioner.build_times import outlive_pods
from coder_k8s.controllers.provisioner.scaling_memory import Memory

from .scaling import ago, job

GRACE = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("longer", "shorter", "before", "expected"),
    [
        (0, 0, False, False),
        (4, 0, False, False),
        (0, 4, True, True),
        (5, 0, False, True),
        (1, 4, False, True),
        (1, 19, False, False),
        (1, 18, False, True),
        (1, 19, True, True),
        (5, 95, False, False),
        (6, 94, False, True),
        (1, 99, True, True),
        (0, 5, True, False),
    ],
)
def test_when_users_are_warned(longer: int, shorter: int, before: bool, expected: bool) -> None:
    builds = [GRACE + timedelta(seconds=1)] * longer + [GRACE] * shorter
    assert outlive_pods(builds, GRACE, before) is expected


def test_how_long_builds_take() -> None:
    """A build ends when coderd no longer lists it; those of other daemons do not count."""
    memory = Memory()
    own = [replace(job(worker="pod"), started_at=ago(700)) for _ in range(5)]
    other = replace(job(worker="elsewhere"), started_at=ago(9000))
    memory.observe_builds([*own, other], ["pod"], ago(400))
    assert not memory.outlive_pods(GRACE, False, ago(400))
    memory.observe_builds([*own, other], ["pod"], ago(99))
    assert memory.outlive_pods(GRACE, False, ago(99)), "while they run"
    memory.observe_builds([own[0]], ["pod"], ago(90))
    assert list(memory.builds) == [timedelta(seconds=610)] * 4
    memory.observe_builds([], [], ago(80))
    assert list(memory.builds) == [timedelta(seconds=610)] * 4 + [timedelta(seconds=620)]
    memory.observe_builds([], [], ago(70))
    assert len(memory.builds) == 5
    assert memory.outlive_pods(GRACE, False, ago(70))
