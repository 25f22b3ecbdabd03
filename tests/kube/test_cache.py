"""The cache holds the newest state, whatever the order of lists, watch events and writes."""

import pytest

from coder_k8s.kube.cache import FEW, Cache, Change
from coder_k8s.kube.objects import Key, Object

from .objects import obj, versions


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


def test_a_write_is_cached_at_once_and_its_watch_event_is_dropped(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.record_write(obj("a", 5), "me")
    assert versions(cache) == {"a": "5"}
    cache.update("", obj("a", 5))
    assert [(change.new and change.new.metadata.resource_version, change.writer) for change in changes] == [("5", "me")]


async def test_a_watch_event_that_arrives_before_the_response_has_the_writer(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    async def request() -> Object:
        cache.update("", obj("a", 5))
        assert versions(cache) == {"a": "5"}, "the cache is current"
        assert not changes, "the notification waits for the writer"
        return obj("a", 5)

    await cache.write(Key("ns", "a"), "me", request())
    assert [(change.old, change.new and change.new.metadata.resource_version, change.writer) for change in changes] == [
        (None, "5", "me")
    ]


async def test_a_change_by_another_client_during_a_write_has_no_writer(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    """It begins with what was written: the other client may have removed the label of the owner."""

    async def request() -> Object:
        cache.update("", obj("a", 5))
        cache.update("", obj("a", 6))
        cache.update("", obj("b", 7))
        return obj("a", 5)

    await cache.write(Key("ns", "a"), "me", request())
    assert [(change.key.name, version(change.old), version(change.new), change.writer) for change in changes] == [
        ("b", "", "7", ""),
        ("a", "", "5", "me"),
        ("a", "5", "6", ""),
    ]


async def test_a_deletion_by_another_client_during_a_write_has_no_writer(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    async def request() -> Object:
        cache.update("", obj("a", 5))
        cache.delete("", obj("a", 6))
        return obj("a", 5)

    await cache.write(Key("ns", "a"), "me", request())
    assert [(version(change.old), version(change.new), change.writer) for change in changes] == [
        ("", "5", "me"),
        ("5", "", ""),
    ]
    assert versions(cache) == {}


def version(found: Object | None) -> str:
    return found.metadata.resource_version if found else ""


async def test_a_deferred_change_is_notified_also_when_the_write_fails(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.update("", obj("a", 5))

    async def request() -> Object:
        cache.delete("", obj("a", 6))
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await cache.write(Key("ns", "a"), "me", request())
    assert [(change.new, change.writer) for change in changes[1:]] == [(None, "")]
    cache.update("", obj("a", 8))
    assert len(changes) == 3, "nothing is deferred any more"


def test_an_older_event_does_not_replace_a_newer_object(cache: Cache[Object]) -> None:
    cache.record_write(obj("a", 9), "me")
    cache.update("", obj("a", 5))
    assert versions(cache) == {"a": "9"}


def test_a_response_after_the_deletion_does_not_restore_the_object(cache: Cache[Object]) -> None:
    cache.update("", obj("a", 5))
    cache.delete("", obj("a", 7))
    cache.record_write(obj("a", 5), "me")
    assert versions(cache) == {}


def test_the_deletion_of_an_older_object_keeps_its_successor(cache: Cache[Object]) -> None:
    cache.record_write(obj("a", 9, uid="second"), "me")
    cache.delete("", obj("a", 6, uid="first"))
    assert versions(cache) == {"a": "9"}


def test_a_list_removes_deleted_objects_but_keeps_later_writes(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.update("", obj("old", 3))
    cache.record_write(obj("mine", 12), "me")
    cache.replace("", [obj("new", 8)], "10")
    assert versions(cache) == {"mine": "12", "new": "8"}
    assert [(change.key.name, change.from_list) for change in changes[2:]] == [("old", True), ("new", True)]


def test_a_list_of_one_namespace_keeps_other_namespaces(cache: Cache[Object]) -> None:
    cache = Cache[Object]()
    cache.replace("one", [obj("a", 1, "one")], "1")
    cache.replace("two", [obj("b", 2, "two")], "2")
    cache.replace("one", [], "3")
    assert versions(cache) == {"b": "2"}


def test_a_list_from_a_restored_backup_replaces_newer_objects(cache: Cache[Object]) -> None:
    cache.update("", obj("a", 50))
    cache.update("", obj("b", 60))
    cache.replace("", [obj("a", 20)], "30")
    assert versions(cache) == {"a": "20"}
    cache.update("", obj("a", 31))
    assert versions(cache) == {"a": "31"}


def test_writer_and_from_list_of_changes(cache: Cache[Object], changes: list[Change[Object]]) -> None:
    cache.replace("", [obj("listed", 2), obj("lost", 2)], "2")
    cache.update("", obj("seen", 3))
    cache.record_write(obj("written", 4), "me")
    cache.delete("", obj("seen", 5))
    cache.replace("", [obj("listed", 2), obj("written", 4)], "6")
    assert [(change.key.name, change.new is not None, change.writer, change.from_list) for change in changes] == [
        ("listed", True, "", True),
        ("lost", True, "", True),
        ("seen", True, "", False),
        ("written", True, "me", False),
        ("seen", False, "", False),
        ("lost", False, "", True),
    ]


async def test_several_changes_during_a_write_become_one_notification(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    before = obj("a", 2)
    cache.update("", before)
    changes.clear()

    async def request() -> Object:
        cache.update("", obj("a", 3))
        cache.update("", obj("a", 4))
        return obj("a", 4)

    await cache.write(Key("ns", "a"), "me", request())
    assert changes == [Change(Key("ns", "a"), before, obj("a", 4), "me")]


async def test_a_written_object_that_a_list_no_longer_has_is_notified(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    """Another client deletes it right after it was created, and only a list shows that."""

    async def request() -> Object:
        cache.replace("", [], "12")
        return obj("a", 11)

    await cache.write(Key("ns", "a"), "me", request())
    assert versions(cache) == {}
    assert changes == [Change(Key("ns", "a"), obj("a", 11), None)]


async def test_a_second_write_does_not_discard_a_deferred_change(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    async def fail() -> Object:
        raise TimeoutError

    async def request() -> Object:
        cache.update("", obj("a", 5))
        with pytest.raises(TimeoutError):
            await cache.write(Key("ns", "a"), "other", fail())
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await cache.write(Key("ns", "a"), "me", request())
    assert changes == [Change(Key("ns", "a"), None, obj("a", 5))]


def test_each_scope_has_its_last_sync_version() -> None:
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
    cache.record_write(obj("old", 8), "me")
    cache.record_write(obj("new", 8, "other"), "me")
    assert versions(cache) == {"new": "8"}


def test_clear_removes_the_objects_and_the_last_sync_version(
    cache: Cache[Object], changes: list[Change[Object]]
) -> None:
    cache.update("", obj("a", 5))
    changes.clear()
    cache.clear("")
    assert (versions(cache), cache.last_sync_version("")) == ({}, "")
    assert changes == [Change(Key("ns", "a"), obj("a", 5), None, from_list=True)]
    cache.replace("", [obj("a", 2)], "3")
    assert versions(cache) == {"a": "2"}, "lower versions are accepted"
    cache.clear("")
    cache.record_write(obj("a", 7), "me")
    cache.clear("")
    assert versions(cache) == {}, "also what was written since the last time"


def test_the_same_index_is_shared(cache: Cache[Object]) -> None:
    def names(item: Object) -> list[str]:
        return [item.metadata.name]

    first = cache.index(names)
    cache.update("", obj("a", 2))
    assert cache.index(names) is first
    assert first["a"] == {Key("ns", "a")}
    assert cache.index(lambda item: [item.metadata.name])["a"] == {Key("ns", "a")}


def test_an_index_is_updated_with_the_objects(cache: Cache[Object]) -> None:
    cache.update("", obj("a", 2, color="red"))
    by_color = cache.index(lambda item: item.metadata.labels.values())
    assert by_color["red"] == {Key("ns", "a")}
    cache.update("", obj("a", 3, color="blue"))
    cache.update("", obj("b", 4, color="blue"))
    assert by_color["red"] == frozenset()
    assert by_color["blue"] == {Key("ns", "a"), Key("ns", "b")}
    cache.delete("", obj("a", 5))
    assert by_color["blue"] == {Key("ns", "b")}


def test_a_value_of_many_objects(cache: Cache[Object]) -> None:
    """More than a tuple holds, and fewer again."""
    by_color = cache.index(lambda item: item.metadata.labels.values())
    names = [f"a{number}" for number in range(3 * FEW)]
    for version, name in enumerate(names, start=2):
        cache.update("", obj(name, version, color="red"))
        assert by_color["red"] == {Key("ns", each) for each in names[: version - 1]}
    for left in range(len(names) - 1, -1, -1):
        cache.delete("", obj(names[left], 100 - left))
        assert by_color["red"] == {Key("ns", each) for each in names[:left]}
