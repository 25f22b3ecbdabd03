"""After any changes, accidents and crashes, the steps of `next_step` end with one matching key.

The model has the state that survives a crash (status, Secret, coderd, pods) and takes one effect at a time. An
operator that crashes has taken only the first few.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import NamedTuple

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.provisioner import keys
from coder_k8s.controllers.provisioner.keys import Recorded, Wanted, is_requested, next_step, tags_hash

CoderdTarget = tuple[str, str]
PLANES, ORGANIZATIONS, BASES, TAGS = ("a", "b"), ("one", "two"), ("build", "other"), ("", "gpu")
PLACES: list[CoderdTarget] = [(plane, organization) for plane in PLANES for organization in ORGANIZATIONS]
THEIRS = "theirs"
"""A tag that no spec has."""


class Crash(Exception):
    """The operator crashes."""


class Few(Random):
    """A random number generator with few values, so that names collide."""

    def getrandbits(self, bits: int, /) -> int:
        return super().getrandbits(4)


@dataclass(frozen=True)
class Key:
    """A key in coderd; its ID is its secret too."""

    name: str
    id: str
    tags: str
    created: datetime
    ours: bool
    claimed: bool = False
    """Whether another object records it."""

    def seen(self, organization: str) -> ProvisionerKey:
        return ProvisionerKey(self.id, self.name, organization, self.created, {"tag": self.tags} if self.tags else {})


class Retiring(NamedTuple):
    """A key that was replaced; without an ID it may not exist."""

    place: CoderdTarget
    name: str
    id: str
    tags_hash: str
    since: datetime | None


@dataclass
class World:
    """The state that survives a crash."""

    coderd: dict[CoderdTarget, dict[str, Key]] = field(default_factory=lambda: {place: {} for place in PLACES})
    wanted: Wanted = field(default_factory=lambda: Wanted("build", "one", {}, "a", "http://a"))
    rotation_requests: int = 0
    recorded: Recorded = field(default_factory=Recorded)
    retiring: tuple[Retiring, ...] = ()
    secret: tuple[str, str, int] = ("", "", 0)
    template: str = ""
    pods: str = ""
    ids: "count[int]" = field(default_factory=count)
    rng: Random = field(default_factory=lambda: Few(0))
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    @property
    def place(self) -> CoderdTarget:
        return self.wanted.plane, self.wanted.organization

    @property
    def excluded(self) -> set[str]:
        """The keys that pods use or other objects record."""
        return {self.pods, *(key.id for found in self.coderd.values() for key in found.values() if key.claimed)}

    def make(self, place: CoderdTarget, name: str, tags: str, *, ours: bool, claimed: bool = False) -> Key:
        self.now += timedelta(seconds=1)
        self.coderd[place][name] = made = Key(name, f"id-{next(self.ids)}", tags, self.now, ours, claimed)
        return made


class Operator:
    """One reconcile with a limited number of effects; a `thief` takes the requested name first."""

    def __init__(self, world: World, effects: int, *, thief: bool = False, backing_off: bool = False) -> None:
        self.world = world
        self.effects = effects
        self.thief = thief
        self.backing_off = backing_off

    def effect(self) -> None:
        if self.effects == 0:
            raise Crash
        self.effects -= 1

    def reconcile(self) -> keys.Step:
        for _ in range(8):
            step = self.step()
            if isinstance(step, keys.Wait) and not step.works:
                assert self.backing_off
                return step
            if isinstance(step, keys.Keep | keys.Wait):
                self.settle(step)
                return step
        raise AssertionError(f"does not come to rest: {self.world}")

    def held(self) -> tuple[Key, str] | None:
        secret, origin, _ = self.world.secret
        if origin != self.world.wanted.plane:
            return None
        known = [(key, place[1]) for place in PLACES if place[0] == origin for key in self.world.coderd[place].values()]
        return next(((key, organization) for key, organization in known if key.id == secret), None)

    def step(self) -> keys.Step:
        world, wanted = self.world, self.world.wanted
        held = self.held()
        step = next_step(
            wanted,
            world.recorded,
            held[0].seen(held[1]) if held else None,
            [key.seen(wanted.organization) for key in world.coderd[world.place].values()],
            [each.place == world.place for each in world.retiring],
            world.rng,
            due="Requested" if world.secret[2] != world.rotation_requests else "",
            excluded=world.excluded,
            backing_off=self.backing_off,
        )
        match step:
            case keys.Adopt(found):
                self.effect()
                world.recorded = Recorded(
                    found.name, found.id, found.organization, tags_hash(found.tags), wanted.plane, wanted.url
                )
            case keys.RecordIntent():
                self.effect()
                self.record(step)
                self.make(step.name)
            case keys.CreateKey(name, lost):
                if lost:
                    self.delete(world.place, name)
                else:
                    self.effect()
                    world.now += timedelta(seconds=1)
                    world.recorded = world.recorded._replace(requested=world.now, refused=False)
                self.make(name)
        return step

    def record(self, step: keys.RecordIntent) -> None:
        world, wanted, old = self.world, self.world.wanted, self.world.recorded
        if step.retires:
            key_id = old.id or step.proven
            unproven = ("", None) if key_id else (old.tags_hash, old.requested)
            place = (old.plane, old.organization)
            world.retiring = (*world.retiring, Retiring(place, old.name, key_id, *unproven))
        organization = wanted.organization
        world.now += timedelta(seconds=1)
        hash_ = tags_hash(wanted.tags)
        world.recorded = Recorded(step.name, "", organization, hash_, wanted.plane, wanted.url, world.now)

    def make(self, name: str) -> None:
        """Create the key and store it; an existing key of its name belongs to another owner."""
        world, wanted = self.world, self.world.wanted
        self.effect()
        if self.thief:
            self.thief = False
            if name not in world.coderd[world.place]:
                world.make(world.place, name, THEIRS, ours=False)
        if name in world.coderd[world.place]:
            self.effect()
            world.recorded = world.recorded._replace(refused=True)
            return
        made = world.make(world.place, name, wanted.tags.get("tag", ""), ours=True)
        self.effect()
        world.secret = (made.id, wanted.plane, world.rotation_requests)

    def settle(self, step: keys.Keep | keys.Wait) -> None:
        world = self.world
        held = self.held()
        assert held is not None, "without a key that works there is nothing to wait for"
        assert held[0].id == world.recorded.id
        if isinstance(step, keys.Keep):
            world.recorded = world.recorded._replace(url=world.wanted.url)
        if world.template != held[0].id:
            self.effect()
            world.template = held[0].id
        if world.pods != world.template:
            return
        for each in world.retiring:
            if (unused := self.owned(each)) is not None:
                assert unused.id != world.pods, "pods run with a key that is to go"
                self.delete(each.place, unused.name)
        if world.retiring:
            self.effect()
            world.retiring = ()

    def owned(self, retiring: Retiring) -> Key | None:
        found = self.world.coderd[retiring.place]
        if retiring.id:
            return next((key for key in found.values() if key.id == retiring.id), None)
        namesake = found.get(retiring.name)
        if namesake is None:
            return None
        seen, tags = namesake.seen(""), self.world.wanted.tags
        return namesake if is_requested(seen, retiring.tags_hash, retiring.since, tags, self.world.excluded) else None

    def delete(self, place: CoderdTarget, name: str) -> None:
        self.effect()
        gone = self.world.coderd[place].pop(name, None)
        assert gone is None or gone.ours, "a foreign key was deleted"


class Keys(RuleBasedStateMachine):
    """Actions of users, and accidents."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.backups: list[tuple[str, str, int]] = []

    @rule(effects=st.integers(0, 9), thief=st.booleans(), backing_off=st.booleans())
    def crash(self, effects: int, thief: bool, backing_off: bool) -> None:
        self.backups.append(self.world.secret)
        try:
            Operator(self.world, effects, thief=thief, backing_off=backing_off).reconcile()
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
        self.world.rotation_requests += 1

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

    @rule(data=st.data(), place=st.sampled_from(PLACES))
    def delete_in_coderd(self, data: st.DataObject, place: CoderdTarget) -> None:
        assume(self.world.coderd[place])
        del self.world.coderd[place][data.draw(st.sampled_from(sorted(self.world.coderd[place])))]

    @rule(place=st.sampled_from(PLACES), base=st.sampled_from(BASES), digits=st.integers(-1, 15))
    def make_in_coderd(self, place: CoderdTarget, base: str, digits: int) -> None:
        """A user takes a name, possibly the next one to be requested."""
        name = base if digits < 0 else f"{base}-{digits:04x}"
        if name not in self.world.coderd[place]:
            self.world.make(place, name, THEIRS, ours=False)

    @rule()
    def take_recorded_name(self) -> None:
        """A user takes the recorded name if it is free."""
        recorded = self.world.recorded
        place = (recorded.plane, recorded.organization)
        if recorded.name and recorded.name not in self.world.coderd[place]:
            self.world.make(place, recorded.name, THEIRS, ours=False)

    @rule()
    def another_object_takes_recorded_name(self) -> None:
        """With the same tags, after it was requested, and before any pod uses it."""
        recorded, tags = self.world.recorded, self.world.wanted.tags.get("tag", "")
        place = (recorded.plane, recorded.organization)
        if recorded.name and recorded.name not in self.world.coderd[place]:
            self.world.make(place, recorded.name, tags, ours=False, claimed=True)

    @rule()
    def user_takes_rejected_name(self) -> None:
        """With the same tags: a rejected request proves nothing later."""
        recorded, tags = self.world.recorded, self.world.wanted.tags.get("tag", "")
        place = (recorded.plane, recorded.organization)
        if recorded.refused and recorded.name not in self.world.coderd[place]:
            self.world.make(place, recorded.name, tags, ours=False)

    @rule()
    def rest(self) -> None:
        """Pods roll out without accidents; then the state is correct, whatever keys others have."""
        for _ in range(6):
            last = Operator(self.world, 99).reconcile()
            self.world.pods = self.world.template
        world = self.world
        left = [(place, key) for place, found in world.coderd.items() for key in found.values() if key.ours]
        assert isinstance(last, keys.Keep)
        assert len(left) == 1, left
        [(place, key)] = left
        assert (place, world.wanted.matches(key.name)) == (world.place, True)
        assert key.tags == world.wanted.tags.get("tag", "")
        assert (key.id, key.id, key.id) == (world.secret[0], world.pods, world.recorded.id)
        assert not world.retiring

    @invariant()
    def every_key_is_known(self) -> None:
        """Every key of this object in coderd is in the status."""
        recorded = self.world.recorded
        place = (recorded.plane, recorded.organization)
        known = [*self.world.retiring, Retiring(place, recorded.name, recorded.id, "", None)]
        for where, found in self.world.coderd.items():
            for key in found.values():
                named = [each.id in ("", key.id) for each in known if (each.place, each.name) == (where, key.name)]
                assert not key.ours or any(named), f"{key} is not known"


TestKeys = Keys.TestCase
TestKeys.settings = settings(max_examples=300, stateful_step_count=30)
