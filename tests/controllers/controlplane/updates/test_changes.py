"""Changes at every moment of an update."""

from collections.abc import Callable

import pytest

from .world import BROKEN, SCHEMAS, State, World

OLD = "coder:v1"
TARGETS = {"coder:v2": "coder:v2", "coder:v3": "coder:v3", BROKEN: OLD}
"""The image that runs after an update to another one."""


def move(world: World) -> bool:
    """Let one thing happen; return whether anything could. Pods that serve know the schema of the database."""
    moved = any(each() for each in world.moves())
    assert {SCHEMAS[pod.image] for pod in world.served()} <= {world.database}, world
    return moved


def settle(world: World) -> None:
    for _ in range(500):
        if not move(world):
            return
    raise AssertionError(f"it never ends: {world}")


def updating(image: str, moves: int) -> World:
    """A control plane whose update to an image has come this far."""
    world = World()
    settle(world)
    world.image = image
    for _ in range(moves):
        assert move(world)
    return world


def moments(image: str) -> range:
    """How far an update can have come."""
    world, count = updating(image, 0), 0
    while move(world):
        count += 1
    return range(count + 1)


def serving(world: World) -> list[str]:
    assert all(pod.state == State.SERVING for pod in world.pods), world
    return [pod.image for pod in world.pods]


@pytest.mark.parametrize("image", TARGETS)
def test_there_is_a_moment_in_every_step(image: str) -> None:
    steps = {found.update.step for moment in moments(image) if (found := updating(image, moment)).update}
    expected = {
        "coder:v2": {"Preflight", "Window", "Rollout", "Fleet", "Complete"},
        "coder:v3": {
            "Preflight", "Window", "Backup", "Drain", "Stop", "Migrate", "Verify", "ScaleBack", "Fleet", "Complete"
        },
        BROKEN: {"Preflight", "Window", "Backup", "Drain", "Stop", "Migrate", "Rollback", "RolledBack"},
    }  # fmt: skip
    assert steps == expected[image]


@pytest.mark.parametrize("image", TARGETS)
def test_another_image(image: str) -> None:
    for moment in moments(image):
        world = updating(image, moment)
        world.image = "coder:v4"
        settle(world)
        assert serving(world) == ["coder:v4"] * 2, moment


@pytest.mark.parametrize("image", TARGETS)
def test_the_old_image(image: str) -> None:
    """It runs again, unless the database is migrated; then the new one runs."""
    for moment in moments(image):
        world = updating(image, moment)
        world.image = OLD
        settle(world)
        migrated = world.database == SCHEMAS["coder:v3"]
        assert serving(world) == ["coder:v3" if migrated else OLD] * 2, moment


def scale(world: World) -> None:
    world.replicas = 3


def scale_to_zero_and_back(world: World) -> None:
    world.replicas = 0
    settle(world)
    assert world.pods == []
    world.replicas = 3


def pause_and_resume(world: World) -> None:
    world.paused = True
    settle(world)
    world.paused, world.replicas = False, 3


def delete_deployment(world: World) -> None:
    world.live_image, world.live_replicas, world.recreate = "", 0, False
    world.pods = [pod for pod in world.pods if pod.state in (State.SERVING, State.STOPPING)]
    for pod in world.pods:
        pod.state = State.STOPPING
    world.replicas = 3


CHANGES = (scale, scale_to_zero_and_back, pause_and_resume, delete_deployment)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("image", TARGETS)
def test_change(image: str, change: Callable[[World], None]) -> None:
    for moment in moments(image):
        world = updating(image, moment)
        change(world)
        settle(world)
        assert serving(world) == [TARGETS[image]] * 3, moment


@pytest.mark.parametrize("reverted", [False, True])
@pytest.mark.parametrize("image", TARGETS)
def test_invalid_spec(image: str, reverted: bool) -> None:
    """All pods serve nevertheless, and the update is complete once the spec is valid again."""
    for moment in moments(image):
        world = updating(image, moment)
        world.edit(invalid=True)
        if reverted:
            world.image = OLD
        settle(world)
        assert len(serving(world)) == 2, moment
        assert len(set(serving(world))) == 1, moment
        world.image = image
        world.edit(invalid=False)
        settle(world)
        assert serving(world) == [TARGETS[image]] * 2, moment
