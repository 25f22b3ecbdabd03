"""Whatever users, clusters and crashes do, what follows from `next_step` ends with one key, and it is the right one.

The model has what survives a crash (status, Secret, coderd, pods) and takes the steps one effect at a time. An
operator that crashes has taken only the first few.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerKey
from coder_k8s.controllers.provisioner import keys
from coder_k8s.controllers.provisioner.keys import Recorded, Wanted, next_step, tags_hash

Place = tuple[str, str]
PLANES, ORGANIZATIONS, BASES, TAGS = ("a", "b"), ("one", "two"), ("build", "other"), ("", "gpu")
PLACES: list[Place] = [(plane, organization) for plane in PLANES for organization in ORGANIZATIONS]
NAMES = [base + suffix for base in BASES for suffix in ("", "-2")]


class Crash(Exception):
    """The operator is gone."""


@dataclass(frozen=True)
class Key:
    """A key in coderd; its ID is its secret too."""

    name: str
    id: str
    tags: str
    ours: bool

    def seen(self) -> ProvisionerKey:
        tags = {"tag": self.tags} if self.tags else {}
        return ProvisionerKey(self.id, self.name, "", datetime(2026, 1, 1, tzinfo=UTC), tags)


@dataclass
class World:
    """What survives."""

    coderd: dict[Place, dict[str, Key]] = field(default_factory=lambda: {place: {} for place in PLACES})
    wanted: Wanted = field(default_factory=lambda: Wanted("build", "one", {}, "a", "http://a"))
    asked: int = 0
    recorded: Recorded = field(default_factory=Recorded)
    retiring: tuple[tuple[Place, str], ...] = ()
    secret: tuple[str, str, int] = ("", "", 0)
    template: str = ""
    pods: str = ""
    ids: "count[int]" = field(default_factory=count)

    @property
    def place(self) -> Place:
        return self.wanted.plane, self.wanted.organization


class Operator:
    """One pass, for as many effects as it lives."""

    def __init__(self, world: World, effects: int) -> None:
        self.world = world
        self.effects = effects

    def effect(self) -> None:
        if self.effects == 0:
            raise Crash
        self.effects -= 1

    def reconcile(self) -> keys.Step:
        for _ in range(8):
            step = self.step()
            if isinstance(step, keys.Keep | keys.Wait | keys.Blocked):
                self.settle(step)
                return step
        raise AssertionError(f"does not come to rest: {self.world}")

    def held(self) -> Key | None:
        secret, origin, _ = self.world.secret
        if origin != self.world.wanted.plane:
            return None
        known = [key for place in PLACES if place[0] == origin for key in self.world.coderd[place].values()]
        return next((key for key in known if key.id == secret), None)

    def step(self) -> keys.Step:
        world, wanted = self.world, self.world.wanted
        held = self.held()
        step = next_step(
            wanted,
            world.recorded,
            held.seen() if held else None,
            [key.seen() for key in world.coderd[world.place].values()],
            [name for place, name in world.retiring if place == world.place],
            "Requested" if world.secret[2] != world.asked else "",
        )
        if isinstance(step, keys.Cornered):
            step = step.give_way(self.daemons())
        here = {"plane": wanted.plane, "url": wanted.url, "organization": wanted.organization}
        match step:
            case keys.Adopt(found):
                self.effect()
                organization = next(
                    place[1]
                    for place in PLACES
                    if found.name in world.coderd[place] and world.coderd[place][found.name].id == found.id
                )
                where = {**here, "organization": organization}
                world.recorded = Recorded(name=found.name, id=found.id, tags_hash=tags_hash(found.tags), **where)
            case keys.Begin(name, _, retires):
                self.effect()
                old = world.recorded
                world.retiring = tuple(each for each in world.retiring if each != (world.place, name))
                if retires:
                    world.retiring = (*world.retiring, ((old.plane, old.organization), old.name))
                world.recorded = Recorded(name=name, tags_hash=tags_hash(wanted.tags), **here)
            case keys.Make(name, lost):
                if lost:
                    assert world.coderd[world.place][name].id != world.pods, "pods run with a key that is to go"
                    self.delete(world.place, name)
                self.effect()
                assert name not in world.coderd[world.place]
                made = Key(name, f"id-{next(world.ids)}", wanted.tags.get("tag", ""), ours=True)
                world.coderd[world.place][name] = made
                self.effect()
                world.secret = (made.id, wanted.plane, world.asked)
        return step

    def daemons(self) -> list[ProvisionerDaemon]:
        """Pods wait for jobs with their key as long as coderd knows it."""
        found = [key.seen() for key in self.world.coderd[self.world.place].values() if key.id == self.world.pods]
        return [
            ProvisionerDaemon("", "", key.id, key.created_at, "", "", {}, status="idle", key_name=key.name)
            for key in found
        ]

    def settle(self, step: keys.Step) -> None:
        world = self.world
        held = self.held()
        if held is None or held.id != world.recorded.id:
            assert isinstance(step, keys.Blocked), "without a key that works there is nothing to wait for"
            return
        if world.template != held.id:
            self.effect()
            world.template = held.id
        if world.pods != world.template:
            return
        for place, name in world.retiring:
            unused = world.coderd[place].get(name)
            assert unused is None or unused.id != world.pods, "pods run with a key that is to go"
            self.delete(place, name)
        if world.retiring:
            self.effect()
            world.retiring = ()

    def delete(self, place: Place, name: str) -> None:
        self.effect()
        gone = self.world.coderd[place].pop(name, None)
        assert gone is None or gone.ours, "a key that is not ours was deleted"


class Keys(RuleBasedStateMachine):
    """Users and accidents."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.backups: list[tuple[str, str, int]] = []

    @rule(effects=st.integers(0, 9))
    def crash(self, effects: int) -> None:
        self.backups.append(self.world.secret)
        try:
            Operator(self.world, effects).reconcile()
        except Crash:
            return

    @rule()
    def roll_out(self) -> None:
        self.world.pods = self.world.template

    @rule(tags=st.sampled_from(TAGS))
    def change_tags(self, tags: str) -> None:
        self.world.wanted = self.world.wanted._replace(tags={"tag": tags} if tags else {})

    @rule(base=st.sampled_from(BASES))
    def change_name(self, base: str) -> None:
        self.world.wanted = self.world.wanted._replace(base=base)

    @rule(organization=st.sampled_from(ORGANIZATIONS))
    def change_organization(self, organization: str) -> None:
        self.world.wanted = self.world.wanted._replace(organization=organization)

    @rule(plane=st.sampled_from(PLANES), port=st.sampled_from(("", ":8080")))
    def change_plane(self, plane: str, port: str) -> None:
        self.world.wanted = self.world.wanted._replace(plane=plane, url=f"http://{plane}{port}")

    @rule()
    def ask(self) -> None:
        self.world.asked += 1

    @rule()
    def lose_secret(self) -> None:
        self.world.secret = ("", "", 0)

    @rule()
    def spoil_secret(self) -> None:
        self.world.secret = ("garbage", *self.world.secret[1:])

    @precondition(lambda self: self.backups)
    @rule(data=st.data())
    def restore_secret(self, data: st.DataObject) -> None:
        self.world.secret = data.draw(st.sampled_from(self.backups))

    @rule(place=st.sampled_from(PLACES), name=st.sampled_from(NAMES))
    def delete_in_coderd(self, place: Place, name: str) -> None:
        assume(name in self.world.coderd[place])
        del self.world.coderd[place][name]

    @rule(place=st.sampled_from(PLACES), names=st.sets(st.sampled_from(NAMES), min_size=1))
    def make_in_coderd(self, place: Place, names: set[str]) -> None:
        """Somebody takes names that we do not claim."""
        recorded = self.world.recorded
        claimed = [*self.world.retiring]
        if not recorded.id:
            claimed.append(((recorded.plane, recorded.organization), recorded.name))
        for name in sorted(names):
            if name not in self.world.coderd[place] and (place, name) not in claimed:
                self.world.coderd[place][name] = Key(name, f"id-{next(self.world.ids)}", "", ours=False)

    @rule()
    def make_in_our_place(self) -> None:
        self.make_in_coderd(self.world.place, {*self.world.wanted.names})

    @rule()
    def rest(self) -> None:
        """Names that others took are given back, pods roll out, and no more accidents: then all is well."""
        for found in self.world.coderd.values():
            for name in [key.name for key in found.values() if not key.ours]:
                del found[name]
        for _ in range(6):
            last = Operator(self.world, 99).reconcile()
            self.world.pods = self.world.template
        world = self.world
        left = [(place, key) for place, found in world.coderd.items() for key in found.values()]
        assert isinstance(last, keys.Keep)
        assert len(left) == 1, left
        [(place, key)] = left
        assert (place, key.name in world.wanted.names) == (world.place, True)
        assert key.tags == world.wanted.tags.get("tag", "")
        assert (key.id, key.id, key.id) == (world.secret[0], world.pods, world.recorded.id)
        assert not world.retiring

    @invariant()
    def every_key_is_known(self) -> None:
        """Nothing of ours is in coderd that the status does not name."""
        recorded = self.world.recorded
        known = {*self.world.retiring, ((recorded.plane, recorded.organization), recorded.name)}
        ours = {(place, key.name) for place, found in self.world.coderd.items() for key in found.values() if key.ours}
        assert ours <= known


TestKeys = Keys.TestCase
TestKeys.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
