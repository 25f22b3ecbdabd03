"""However lists, watch events and our own writes overtake each other, the cache ends at the newest state."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coder_k8s.kube.cache import Cache, Change
from coder_k8s.kube.objects import Key, Meta, Object


def thing(name: str, version: int, namespace: str = "ns", uid: str = "", **labels: str) -> Object:
    meta = Meta(name=name, namespace=namespace, uid=uid, resource_version=str(version), labels=labels)
    return Object(metadata=meta)


def versions(cache: Cache[Object]) -> dict[str, str]:
    return {item.metadata.name: item.metadata.resource_version for item in cache}


@pytest.fixture
def cache() -> Cache[Object]:
    cache = Cache[Object]()
    cache.listed("", [], "1")
    return cache


@pytest.fixture
def changes(cache: Cache[Object]) -> list[Change[Object]]:
    told: list[Change[Object]] = []
    cache.listen(told.append)
    return told


def test_our_own_write_is_there_at_once_and_its_echo_is_no_news(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.written(thing("a", 5), "me")
    assert versions(cache) == {"a": "5"}
    cache.seen("", thing("a", 5))
    assert [(change.new and change.new.metadata.resource_version, change.writer) for change in changes] == [("5", "me")]


async def test_the_echo_of_our_own_write_wakes_nobody_even_when_it_overtakes_the_answer(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    async def request() -> Object:
        cache.seen("", thing("a", 5))
        assert versions(cache) == {"a": "5"}, "known at once"
        assert not changes, "told when it is known whose doing it was"
        return thing("a", 5)

    await cache.write(Key("ns", "a"), "me", request())
    assert [(change.old, change.new and change.new.metadata.resource_version, change.writer) for change in changes] == [
        (None, "5", "me")
    ]


async def test_what_somebody_else_did_while_we_wrote_is_told_as_theirs(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    async def request() -> Object:
        cache.seen("", thing("a", 5))
        cache.seen("", thing("a", 6))
        cache.seen("", thing("b", 7))
        return thing("a", 5)

    await cache.write(Key("ns", "a"), "me", request())
    assert [
        (change.key.name, change.new and change.new.metadata.resource_version, change.writer) for change in changes
    ] == [
        ("b", "7", ""),
        ("a", "6", ""),
    ]


async def test_what_was_kept_is_told_also_when_the_write_fails(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.seen("", thing("a", 5))

    async def request() -> Object:
        cache.gone("", thing("a", 6))
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await cache.write(Key("ns", "a"), "me", request())
    assert [(change.new, change.writer) for change in changes[1:]] == [(None, "")]
    cache.seen("", thing("a", 8))
    assert len(changes) == 3, "nothing is kept any more"


def test_an_older_echo_never_overwrites_a_newer_object(cache: Cache[Object]) -> None:
    cache.written(thing("a", 9), "me")
    cache.seen("", thing("a", 5))
    assert versions(cache) == {"a": "9"}


def test_the_answer_to_a_write_that_comes_after_the_deletion_raises_no_ghost(cache: Cache[Object]) -> None:
    cache.seen("", thing("a", 5))
    cache.gone("", thing("a", 7))
    cache.written(thing("a", 5), "me")
    assert versions(cache) == {}


def test_the_deletion_of_a_predecessor_does_not_remove_its_successor(cache: Cache[Object]) -> None:
    cache.written(thing("a", 9, uid="second"), "me")
    cache.gone("", thing("a", 6, uid="first"))
    assert versions(cache) == {"a": "9"}


def test_a_list_finds_what_was_deleted_meanwhile_but_keeps_what_we_wrote_after_it(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.seen("", thing("old", 3))
    cache.written(thing("mine", 12), "me")
    cache.listed("", [thing("new", 8)], "10")
    assert versions(cache) == {"mine": "12", "new": "8"}
    assert [(change.key.name, change.listed) for change in changes[2:]] == [("old", True), ("new", True)]


def test_a_list_of_one_namespace_leaves_the_others_alone(cache: Cache[Object]) -> None:
    cache = Cache[Object]()
    cache.listed("one", [thing("a", 1, "one")], "1")
    cache.listed("two", [thing("b", 2, "two")], "2")
    cache.listed("one", [], "3")
    assert versions(cache) == {"b": "2"}


def test_a_server_restored_from_a_backup_is_believed(cache: Cache[Object]) -> None:
    cache.seen("", thing("a", 50))
    cache.seen("", thing("b", 60))
    cache.listed("", [thing("a", 20)], "30")
    assert versions(cache) == {"a": "20"}
    cache.seen("", thing("a", 31))
    assert versions(cache) == {"a": "31"}


def test_who_asks_for_the_same_index_shares_it(cache: Cache[Object]) -> None:
    def names(item: Object) -> list[str]:
        return [item.metadata.name]

    first = cache.index(names)
    cache.seen("", thing("a", 2))
    assert cache.index(names) is first
    assert first["a"] == {Key("ns", "a")}
    assert cache.index(lambda item: [item.metadata.name])["a"] == {Key("ns", "a")}


def test_an_index_follows_the_objects(cache: Cache[Object]) -> None:
    cache.seen("", thing("a", 2, color="red"))
    by_color = cache.index(lambda item: item.metadata.labels.values())
    assert by_color["red"] == {Key("ns", "a")}
    cache.seen("", thing("a", 3, color="blue"))
    cache.seen("", thing("b", 4, color="blue"))
    assert by_color["red"] == frozenset()
    assert by_color["blue"] == {Key("ns", "a"), Key("ns", "b")}
    cache.gone("", thing("a", 5))
    assert by_color["blue"] == {Key("ns", "b")}


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
        self.told: dict[str, str] = {}
        self.cache = Cache[Object]()
        self.cache.listen(self.listener)
        self.cache.listed("", [], "0")

    def listener(self, change: Change[Object]) -> None:
        assert self.told.get(change.key.name) == (change.old and change.old.metadata.resource_version)
        if change.new is None:
            del self.told[change.key.name]
        else:
            assert change.new.metadata.resource_version != self.told.get(change.key.name), "an echo is no news"
            self.told[change.key.name] = change.new.metadata.resource_version

    @rule(name=NAMES)
    def we_write(self, name: str) -> None:
        self.answers.append((name, self.server.write(name)))

    @precondition(lambda self: self.answers)
    @rule(which=ANY)
    def our_answer_arrives(self, which: int) -> None:
        name, version = self.answers.pop(which % len(self.answers))
        self.cache.written(thing(name, version), "me")
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
            position = int(self.cache.position(""))
            happened = next((entry for entry in self.server.history if entry[0] > position), None)
            if happened is None:
                return self.cache.moved("", str(self.server.version))
            version, name, there = happened
            (self.cache.seen if there else self.cache.gone)("", thing(name, version))
        return None

    @rule()
    def a_list_is_read(self) -> None:
        self.lists.append((self.server.version, dict(self.server.present)))

    @precondition(lambda self: self.lists)
    @rule(which=ANY)
    def the_list_arrives(self, which: int) -> None:
        version, present = self.lists.pop(which % len(self.lists))
        if version >= int(self.cache.position("")):  # while we list, we do not watch
            self.cache.listed("", [thing(name, at) for name, at in present.items()], str(version))

    @invariant()
    def listeners_know_what_the_cache_knows(self) -> None:
        assert self.told == versions(self.cache)

    @invariant()
    def what_we_wrote_stays_until_something_newer_comes(self) -> None:
        for name, version in self.known.items():
            kept = self.cache.get(Key("ns", name))
            deleted = any(entry[0] > version and entry[1:] == (name, False) for entry in self.server.history)
            assert int(kept.metadata.resource_version) >= version if kept else deleted

    def teardown(self) -> None:
        while int(self.cache.position("")) < self.server.version:
            self.the_watch_goes_on(1)
        for _ in range(len(self.answers)):
            self.our_answer_arrives(0)
        assert versions(self.cache) == {name: str(version) for name, version in self.server.present.items()}


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
