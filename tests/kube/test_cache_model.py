"""Whatever overtakes what, the cache ends at the newest state: all sources in any order."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coder_k8s.kube.cache import Cache, Change
from coder_k8s.kube.objects import Key, Object

from .things import thing, versions


@dataclass
class Server:
    """What the API server knows: the present, and everything that happened."""

    version: int = 0
    present: dict[str, int] = field(default_factory=dict)
    history: list[tuple[int, str, bool]] = field(default_factory=list)

    def write(self, name: str) -> int:
        self.version += 1
        self.present[name] = self.version
        self.history.append((self.version, name, True))
        return self.version

    def delete(self, name: str) -> None:
        self.version += 1
        del self.present[name]
        self.history.append((self.version, name, False))


NAMES = st.sampled_from("ab")
ANY = st.integers(0, 100)


class Interleavings(RuleBasedStateMachine):
    """Writes by us and others, their echoes and answers in any order, relists begun early and finished late."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.answers: list[tuple[str, int]] = []
        self.lists: list[tuple[int, dict[str, int]]] = []
        self.known: dict[str, int] = {}
        self.reported: dict[str, str] = {}
        self.cache = Cache[Object]()
        self.cache.listen(self.listener)
        self.cache.replace("", [], "0")

    def listener(self, change: Change[Object]) -> None:
        assert self.reported.get(change.key.name) == (change.old and change.old.metadata.resource_version)
        if change.new is None:
            del self.reported[change.key.name]
        else:
            assert change.new.metadata.resource_version != self.reported.get(change.key.name), "an echo is no news"
            self.reported[change.key.name] = change.new.metadata.resource_version

    @rule(name=NAMES)
    def we_write(self, name: str) -> None:
        self.answers.append((name, self.server.write(name)))

    @precondition(lambda self: self.answers)
    @rule(which=ANY)
    def our_answer_arrives(self, which: int) -> None:
        name, version = self.answers.pop(which % len(self.answers))
        self.cache.record_write(thing(name, version), "me")
        self.known[name] = max(version, self.known.get(name, 0))

    @rule(name=NAMES)
    def somebody_writes(self, name: str) -> None:
        self.server.write(name)

    @rule(name=NAMES)
    def somebody_deletes(self, name: str) -> None:
        if name in self.server.present:
            self.server.delete(name)

    @rule(steps=st.integers(1, 4))
    def the_watch_goes_on(self, steps: int) -> None:
        for _ in range(steps):
            position = int(self.cache.last_sync_version(""))
            happened = next((entry for entry in self.server.history if entry[0] > position), None)
            if happened is None:
                return self.cache.bookmark("", str(self.server.version))
            version, name, there = happened
            (self.cache.update if there else self.cache.delete)("", thing(name, version))
        return None

    @rule()
    def a_list_is_read(self) -> None:
        self.lists.append((self.server.version, dict(self.server.present)))

    @precondition(lambda self: self.lists)
    @rule(which=ANY)
    def the_list_arrives(self, which: int) -> None:
        version, present = self.lists.pop(which % len(self.lists))
        if version >= int(self.cache.last_sync_version("")):  # while we list, we do not watch
            self.cache.replace("", [thing(name, at) for name, at in present.items()], str(version))

    @invariant()
    def listeners_know_what_the_cache_knows(self) -> None:
        assert self.reported == versions(self.cache)

    @invariant()
    def what_we_wrote_stays_until_something_newer_comes(self) -> None:
        for name, version in self.known.items():
            kept = self.cache.get(Key("ns", name))
            deleted = any(entry[0] > version and entry[1:] == (name, False) for entry in self.server.history)
            assert int(kept.metadata.resource_version) >= version if kept else deleted

    def teardown(self) -> None:
        while int(self.cache.last_sync_version("")) < self.server.version:
            self.the_watch_goes_on(1)
        for _ in range(len(self.answers)):
            self.our_answer_arrives(0)
        assert versions(self.cache) == {name: str(version) for name, version in self.server.present.items()}


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
