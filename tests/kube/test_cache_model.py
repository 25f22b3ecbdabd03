"""The cache holds the newest state, for any order of lists, watch events and responses."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coder_k8s.kube.cache import Cache, Change
from coder_k8s.kube.objects import Key, Object

from .objects import obj, versions


@dataclass
class Server:
    """The current objects of an API server and its history."""

    version: int = 0
    current: dict[str, int] = field(default_factory=dict)
    history: list[tuple[int, str, bool]] = field(default_factory=list)

    def write(self, name: str) -> int:
        self.version += 1
        self.current[name] = self.version
        self.history.append((self.version, name, True))
        return self.version

    def delete(self, name: str) -> None:
        self.version += 1
        del self.current[name]
        self.history.append((self.version, name, False))


NAMES = st.sampled_from("ab")
ANY = st.integers(0, 100)


class Interleavings(RuleBasedStateMachine):
    """Writes by the operator and by others, with delayed watch events, responses and lists."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.responses: list[tuple[str, int]] = []
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
            assert change.new.metadata.resource_version != self.reported.get(change.key.name), (
                "events for a known version are dropped"
            )
            self.reported[change.key.name] = change.new.metadata.resource_version

    @rule(name=NAMES)
    def operator_writes(self, name: str) -> None:
        self.responses.append((name, self.server.write(name)))

    @precondition(lambda self: self.responses)
    @rule(which=ANY)
    def response_arrives(self, which: int) -> None:
        name, version = self.responses.pop(which % len(self.responses))
        self.cache.record_write(obj(name, version), "me")
        self.known[name] = max(version, self.known.get(name, 0))

    @rule(name=NAMES)
    def other_client_writes(self, name: str) -> None:
        self.server.write(name)

    @rule(name=NAMES)
    def other_client_deletes(self, name: str) -> None:
        if name in self.server.current:
            self.server.delete(name)

    @rule(steps=st.integers(1, 4))
    def watch_delivers(self, steps: int) -> None:
        for _ in range(steps):
            synced = int(self.cache.last_sync_version(""))
            event = next((entry for entry in self.server.history if entry[0] > synced), None)
            if event is None:
                return self.cache.bookmark("", str(self.server.version))
            version, name, exists = event
            (self.cache.update if exists else self.cache.delete)("", obj(name, version))
        return None

    @rule()
    def list_starts(self) -> None:
        self.lists.append((self.server.version, dict(self.server.current)))

    @precondition(lambda self: self.lists)
    @rule(which=ANY)
    def list_arrives(self, which: int) -> None:
        version, current = self.lists.pop(which % len(self.lists))
        if version >= int(self.cache.last_sync_version("")):  # an informer does not watch while it lists
            self.cache.replace("", [obj(name, at) for name, at in current.items()], str(version))

    @invariant()
    def listeners_have_the_same_state_as_the_cache(self) -> None:
        assert self.reported == versions(self.cache)

    @invariant()
    def a_write_stays_until_a_newer_state_arrives(self) -> None:
        for name, version in self.known.items():
            cached = self.cache.get(Key("ns", name))
            deleted = any(entry[0] > version and entry[1:] == (name, False) for entry in self.server.history)
            assert int(cached.metadata.resource_version) >= version if cached else deleted

    def teardown(self) -> None:
        while int(self.cache.last_sync_version("")) < self.server.version:
            self.watch_delivers(1)
        for _ in range(len(self.responses)):
            self.response_arrives(0)
        assert versions(self.cache) == {name: str(version) for name, version in self.server.current.items()}


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=300, stateful_step_count=30)
