"""Properties of updates, whatever happens in between: crashes, changes of the spec, slow pods."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coder_k8s.api.updates import Step

from .world import BROKEN, SCHEMAS, State, World

IMAGES = sorted(SCHEMAS)
NUMBERS = st.integers(0, 3)


class Updates(RuleBasedStateMachine):
    """A control plane that is updated again and again."""

    @initialize(sql=st.booleans(), replicas=st.integers(1, 3))
    def begin(self, sql: bool, replicas: int) -> None:
        self.world = World(sql=sql, replicas=replicas)
        self.world.settle()
        assert self.world.running == "coder:v1"

    @rule(crash=st.booleans())
    def reconcile(self, crash: bool) -> None:
        self.world.reconcile(crash=crash)

    @rule()
    def control_deployment(self) -> None:
        self.world.control_deployment()

    @rule(number=NUMBERS)
    def start_pod(self, number: int) -> None:
        self.world.start_pod(number)

    @rule(number=NUMBERS)
    def end_pod(self, number: int) -> None:
        self.world.end_pod(number)

    @rule()
    def run_job(self) -> None:
        self.world.run_job()

    @rule(image=st.sampled_from(IMAGES))
    def change_image(self, image: str) -> None:
        self.world.image = image

    @rule(replicas=st.integers(0, 3))
    def scale(self, replicas: int) -> None:
        self.world.replicas = replicas

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.world.paused = paused

    @rule(invalid=st.booleans())
    def edit(self, invalid: bool) -> None:
        self.world.edit(invalid=invalid)

    @rule(open_=st.booleans())
    def change_window(self, open_: bool) -> None:
        self.world.window_open = open_

    @rule(minutes=st.sampled_from([1, 15, 70]))
    def wait(self, minutes: float) -> None:
        self.world.wait(minutes)

    @invariant()
    def pods_serve_one_schema(self) -> None:
        """Every pod that serves knows the schema of the database; so never two schemas are served at once."""
        assert {SCHEMAS[pod.image] for pod in self.world.served()} <= {self.world.database}

    @invariant()
    def no_step_after_a_refusal(self) -> None:
        for before, after in self.world.steps:
            if before in (Step.REFUSED, Step.ROLLED_BACK):
                assert after in ("", Step.PREFLIGHT), (before, after)

    def teardown(self) -> None:
        """Once nothing changes any more, the replicas of the spec are back, with its image or the reason why not."""
        world = self.world
        world.paused, world.window_open = False, True
        if world.invalid:
            world.edit(invalid=False)
        if world.replicas == 0:
            world.replicas = 1
        world.settle()
        world.wait(10)  # a refusal for a temporary reason is tried again
        world.settle()
        serving = [pod for pod in world.pods if pod.state == State.SERVING]
        self.pods_serve_one_schema()
        step = world.update.step if world.update else ""
        if world.image == BROKEN or SCHEMAS[world.image] < world.database:
            return  # refused, rolled back, or the new pod crashes: what is left depends on what ran before
        assert step in ("", Step.COMPLETE), world
        assert [pod.image for pod in serving] == [world.image] * world.replicas, world
        assert (world.live_image, world.live_replicas, world.recreate) == (world.image, world.replicas, False)
        assert not world.job


Updates.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestUpdates = Updates.TestCase


def test_old_pods_serve_after_a_refusal() -> None:
    world = World(image="coder:v3")
    world.settle()
    world.image = "coder:v1"
    world.settle()
    assert world.update is not None
    assert world.update.step == Step.REFUSED
    assert [pod.image for pod in world.served()] == ["coder:v3"] * 2


def test_broken_image_is_rolled_back() -> None:
    world = World()
    world.settle()
    world.image = BROKEN
    world.settle()
    assert world.update is not None
    assert world.update.step == Step.ROLLED_BACK
    assert [pod.image for pod in world.served()] == ["coder:v1"] * 2
    assert world.database == 1


def test_same_schema_rolls_without_a_gap() -> None:
    world = World()
    world.settle()
    world.image = "coder:v2"
    while world.reconcile() or world.run_job() or world.control_deployment() or world.start_pod(0) or world.end_pod(0):
        assert any(pod.state == State.SERVING for pod in world.pods)
    assert world.update is not None
    assert world.update.step == Step.COMPLETE
