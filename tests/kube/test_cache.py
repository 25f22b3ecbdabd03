"""However lists, watch events and our own writes overtake each other, the cache ends at the newest state."""

import pytest

from coder_k8s.kube.cache import Cache, Change
from coder_k8s.kube.objects import Key, Object

from .things import thing, versions


@pytest.fixture
def cache() -> Cache[Object]:
    cache = Cache[Object]()
    cache.replace("", [], "1")
    return cache


@pytest.fixture
def changes(cache: Cache[Object]) -> list[Change[Object]]:
    changes: list[Change[Object]] = []
    cache.listen(changes.append)
    return changes


def test_our_own_write_is_there_at_once_and_its_echo_is_no_news(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.record_write(thing("a", 5), "me")
    assert versions(cache) == {"a": "5"}
    cache.update("", thing("a", 5))
    assert [(change.new and change.new.metadata.resource_version, change.writer) for change in changes] == [("5", "me")]


async def test_the_echo_of_our_own_write_wakes_nobody_even_when_it_overtakes_the_answer(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    async def request() -> Object:
        cache.update("", thing("a", 5))
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
        cache.update("", thing("a", 5))
        cache.update("", thing("a", 6))
        cache.update("", thing("b", 7))
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
    cache.update("", thing("a", 5))

    async def request() -> Object:
        cache.delete("", thing("a", 6))
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await cache.write(Key("ns", "a"), "me", request())
    assert [(change.new, change.writer) for change in changes[1:]] == [(None, "")]
    cache.update("", thing("a", 8))
    assert len(changes) == 3, "nothing is kept any more"


def test_an_older_echo_never_overwrites_a_newer_object(cache: Cache[Object]) -> None:
    cache.record_write(thing("a", 9), "me")
    cache.update("", thing("a", 5))
    assert versions(cache) == {"a": "9"}


def test_the_answer_to_a_write_that_comes_after_the_deletion_raises_no_ghost(cache: Cache[Object]) -> None:
    cache.update("", thing("a", 5))
    cache.delete("", thing("a", 7))
    cache.record_write(thing("a", 5), "me")
    assert versions(cache) == {}


def test_the_deletion_of_a_predecessor_does_not_remove_its_successor(cache: Cache[Object]) -> None:
    cache.record_write(thing("a", 9, uid="second"), "me")
    cache.delete("", thing("a", 6, uid="first"))
    assert versions(cache) == {"a": "9"}


def test_a_list_finds_what_was_deleted_meanwhile_but_keeps_what_we_wrote_after_it(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.update("", thing("old", 3))
    cache.record_write(thing("mine", 12), "me")
    cache.replace("", [thing("new", 8)], "10")
    assert versions(cache) == {"mine": "12", "new": "8"}
    assert [(change.key.name, change.from_list) for change in changes[2:]] == [("old", True), ("new", True)]


def test_a_list_of_one_namespace_leaves_the_others_alone(cache: Cache[Object]) -> None:
    cache = Cache[Object]()
    cache.replace("one", [thing("a", 1, "one")], "1")
    cache.replace("two", [thing("b", 2, "two")], "2")
    cache.replace("one", [], "3")
    assert versions(cache) == {"b": "2"}


def test_a_server_restored_from_a_backup_is_believed(cache: Cache[Object]) -> None:
    cache.update("", thing("a", 50))
    cache.update("", thing("b", 60))
    cache.replace("", [thing("a", 20)], "30")
    assert versions(cache) == {"a": "20"}
    cache.update("", thing("a", 31))
    assert versions(cache) == {"a": "31"}


def test_how_a_change_became_known(cache: Cache[Object], changes: list[Change[Object]]) -> None:
    cache.replace("", [thing("listed", 2), thing("lost", 2)], "2")
    cache.update("", thing("seen", 3))
    cache.record_write(thing("written", 4), "me")
    cache.delete("", thing("seen", 5))
    cache.replace("", [thing("listed", 2), thing("written", 4)], "6")
    assert [(change.key.name, change.new is not None, change.writer, change.from_list) for change in changes] == [
        ("listed", True, "", True),
        ("lost", True, "", True),
        ("seen", True, "", False),
        ("written", True, "me", False),
        ("seen", False, "", False),
        ("lost", False, "", True),
    ]


async def test_several_changes_during_a_write_are_told_as_one(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    before = thing("a", 2)
    cache.update("", before)
    changes.clear()

    async def request() -> Object:
        cache.update("", thing("a", 3))
        cache.update("", thing("a", 4))
        return thing("a", 4)

    await cache.write(Key("ns", "a"), "me", request())
    assert changes == [Change(Key("ns", "a"), before, thing("a", 4), "me")]


def test_each_scope_has_its_position() -> None:
    cache = Cache[Object]()
    assert cache.last_sync_version("ns") == ""
    cache.replace("ns", [], "10")
    cache.replace("other", [], "3")
    cache.bookmark("ns", "9")
    cache.bookmark("other", "5")
    assert (cache.last_sync_version("ns"), cache.last_sync_version("other"), cache.last_sync_version("")) == (
        "10",
        "5",
        "",
    )
    cache.record_write(thing("old", 8), "me")
    cache.record_write(thing("new", 8, "other"), "me")
    assert versions(cache) == {"new": "8"}


def test_a_kind_that_is_no_longer_served_has_no_objects(cache: Cache[Object], changes: list[Change[Object]]) -> None:
    cache.update("", thing("a", 5))
    changes.clear()
    cache.clear("")
    assert (versions(cache), cache.last_sync_version("")) == ({}, "")
    assert changes == [Change(Key("ns", "a"), thing("a", 5), None, from_list=True)]
    cache.replace("", [thing("a", 2)], "3")
    assert versions(cache) == {"a": "2"}, "another server may count from the start"


def test_who_asks_for_the_same_index_shares_it(cache: Cache[Object]) -> None:
    def names(item: Object) -> list[str]:
        return [item.metadata.name]

    first = cache.index(names)
    cache.update("", thing("a", 2))
    assert cache.index(names) is first
    assert first["a"] == {Key("ns", "a")}
    assert cache.index(lambda item: [item.metadata.name])["a"] == {Key("ns", "a")}


def test_an_index_follows_the_objects(cache: Cache[Object]) -> None:
    cache.update("", thing("a", 2, color="red"))
    by_color = cache.index(lambda item: item.metadata.labels.values())
    assert by_color["red"] == {Key("ns", "a")}
    cache.update("", thing("a", 3, color="blue"))
    cache.update("", thing("b", 4, color="blue"))
    assert by_color["red"] == frozenset()
    assert by_color["blue"] == {Key("ns", "a"), Key("ns", "b")}
    cache.delete("", thing("a", 5))
    assert by_color["blue"] == {Key("ns", "b")}
