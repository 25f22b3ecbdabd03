"""The table of the states of a key, row by row and cause by cause."""

from datetime import UTC, datetime

import pytest

from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerKey
from coder_k8s.controllers.provisioner.keys import (
    Adopt,
    Begin,
    Blocked,
    Cornered,
    Keep,
    Make,
    Recorded,
    Step,
    Wait,
    Wanted,
    next_step,
    tags_hash,
)

URL = "http://demo"
TAGS = {"env": "gpu"}
WANTED = Wanted("build", "default", TAGS, "demo", URL)
FIRST, SECOND = "build", "build-2"


def key(name: str, key_id: str = "", organization: str = "org-1") -> ProvisionerKey:
    return ProvisionerKey(key_id or f"id-{name}", name, organization, datetime(2026, 1, 1, tzinfo=UTC), TAGS)


def recorded(name: str, key_id: str = "", **changes: str) -> Recorded:
    return Recorded(name, key_id, "default", tags_hash(TAGS), "demo", URL)._replace(**changes)


BUILD, BUILD_2, FOREIGN = key(FIRST), key(SECOND), key(FIRST, "id-foreign")
READY, READY_2 = recorded(FIRST, BUILD.id), recorded(SECOND, BUILD_2.id)
BEGUN, BEGUN_2 = recorded(FIRST), recorded(SECOND)
NOTHING = Recorded()
CORNERED = Cornered((FIRST, SECOND), "SecretLost", SECOND, True)

TABLE: list[tuple[str, Recorded, ProvisionerKey | None, list[ProvisionerKey], list[str], Step]] = [
    ("Nothing", NOTHING, None, [], [], Begin(FIRST, "Created", False)),
    ("Nothing, among others", NOTHING, None, [key("other")], [], Begin(FIRST, "Created", False)),
    ("Unrecorded", NOTHING, BUILD, [BUILD], [], Adopt(BUILD)),
    ("Unrecorded, the second name", NOTHING, BUILD_2, [BUILD_2], [], Adopt(BUILD_2)),
    ("Unrecorded, in another organization", NOTHING, BUILD, [], [], Adopt(BUILD)),
    ("Taken", NOTHING, None, [FOREIGN], [], Blocked(FIRST)),
    ("Taken, when a key is due", READY, BUILD, [BUILD, BUILD_2], [], Blocked(SECOND)),
    ("Begun", BEGUN, None, [], [], Make(FIRST, lost=False)),
    ("Begun, beside the old one", BEGUN_2, BUILD, [BUILD], [FIRST], Make(SECOND, lost=False)),
    ("Lost", BEGUN, None, [BUILD], [], Make(FIRST, lost=True)),
    ("Lost, beside the old one", BEGUN_2, BUILD, [BUILD, BUILD_2], [FIRST], Make(SECOND, lost=True)),
    ("Stored", BEGUN, BUILD, [BUILD], [], Adopt(BUILD)),
    ("Stored, beside the old one", BEGUN_2, BUILD_2, [BUILD, BUILD_2], [FIRST], Adopt(BUILD_2)),
    ("Begun, with a namesake elsewhere", BEGUN, key(FIRST, "id-elsewhere"), [], [], Make(FIRST, lost=False)),
    ("Deleted", READY, None, [], [], Begin(SECOND, "KeyDeleted", False)),
    ("Deleted, and another made", READY, None, [FOREIGN], [], Begin(SECOND, "KeyDeleted", False)),
    ("Deleted, while the other retires", READY_2, None, [BUILD], [FIRST], Begin(SECOND, "KeyDeleted", False)),
    ("Deleted, and both names taken", READY, None, [FOREIGN, BUILD_2], [], Blocked(SECOND)),
    ("Deleted, another made, the other retires", READY, None, [FOREIGN, BUILD_2], [SECOND], Blocked(FIRST)),
    ("Emptied", READY, None, [BUILD], [], Begin(SECOND, "SecretLost", True)),
    ("Emptied, the second name", READY_2, None, [BUILD_2], [], Begin(FIRST, "SecretLost", True)),
    ("Cornered", READY_2, None, [BUILD, BUILD_2], [FIRST], CORNERED),
    ("Cornered with an older key", READY_2, BUILD, [BUILD, BUILD_2], [FIRST], CORNERED),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_rows(row: tuple[str, Recorded, ProvisionerKey | None, list[ProvisionerKey], list[str], Step]) -> None:
    state, status, held, stored, retiring, expected = row
    due = "Requested" if "due" in state else ""
    assert next_step(WANTED, status, held, stored, retiring, due) == expected


def test_keep() -> None:
    assert next_step(WANTED, READY, BUILD, [BUILD, key("other")], []) == Keep()
    assert next_step(WANTED, READY_2, BUILD_2, [BUILD_2, BUILD], [FIRST]) == Keep()


DRIFTS = {
    "TagsChanged": WANTED._replace(tags={"env": "cpu"}),
    "ControlPlaneChanged": WANTED._replace(url="http://demo:8080"),
}
ELSEWHERE = {
    "ControlPlaneChanged": WANTED._replace(plane="other", url="http://other"),
    "OrganizationChanged": WANTED._replace(organization="acme"),
}


@pytest.mark.parametrize("cause", DRIFTS)
def test_drift(cause: str) -> None:
    """The other name is taken, and back; while it retires there is nothing to do but wait."""
    wanted = DRIFTS[cause]
    assert next_step(wanted, READY, BUILD, [BUILD], []) == Begin(SECOND, cause, True)
    assert next_step(wanted, READY_2, BUILD_2, [BUILD_2], []) == Begin(FIRST, cause, True)
    assert next_step(wanted, READY_2, BUILD_2, [BUILD, BUILD_2], [FIRST]) == Wait(cause)
    assert next_step(wanted, READY_2, None, [BUILD, BUILD_2], [FIRST]) == CORNERED._replace(cause=cause)


@pytest.mark.parametrize("cause", DRIFTS)
def test_drift_of_what_was_begun(cause: str) -> None:
    """What may have been made for the old spec retires; what cannot is made again in its place."""
    wanted = DRIFTS[cause]
    assert next_step(wanted, BEGUN, None, [], []) == Begin(SECOND, cause, False)
    assert next_step(wanted, BEGUN, None, [BUILD], []) == Begin(SECOND, cause, True)
    assert next_step(wanted, BEGUN, BUILD, [BUILD], []) == Adopt(BUILD)
    assert next_step(wanted, BEGUN_2, BUILD, [BUILD, BUILD_2], [FIRST]) == CORNERED._replace(cause=cause)


@pytest.mark.parametrize("cause", ELSEWHERE)
def test_drift_to_another_place(cause: str) -> None:
    """The names are those of the new place; the old key retires where it is, whatever is known of it."""
    wanted = ELSEWHERE[cause]
    for status in (READY, BEGUN):
        assert next_step(wanted, status, None, [], []) == Begin(FIRST, cause, True)
        assert next_step(wanted, status, None, [FOREIGN], []) == Blocked(FIRST)
        assert next_step(wanted, status, None, [BUILD_2], [SECOND]) == Begin(FIRST, cause, True)
        cornered = Cornered((FIRST, SECOND), cause, "", True)
        assert next_step(wanted, status, None, [FOREIGN, BUILD_2], [FIRST, SECOND]) == cornered


def daemon(name: str, status: str) -> ProvisionerDaemon:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    return ProvisionerDaemon("id", "name", f"id-{name}", made, "v2", "1.18", {}, status=status, key_name=name)


@pytest.mark.parametrize(
    ("daemons", "name"),
    [
        ([], FIRST),
        ([(SECOND, "idle")], FIRST),
        ([(FIRST, "idle")], SECOND),
        ([(FIRST, "busy"), (SECOND, "idle")], FIRST),
        ([(FIRST, "idle"), (SECOND, "busy")], SECOND),
        ([(FIRST, "busy"), (SECOND, "busy")], FIRST),
        ([(FIRST, "busy")], SECOND),
        ([(FIRST, "offline"), (FIRST, "offline"), (SECOND, "busy")], FIRST),
        ([(FIRST, "idle"), (SECOND, "idle"), (SECOND, "idle"), ("other", "idle")], FIRST),
    ],
)
def test_who_gives_way(daemons: list[tuple[str, str]], name: str) -> None:
    """That some daemons still take jobs counts first; the one in use retires unless it is made again itself."""
    seen = [daemon(*each) for each in daemons]
    assert CORNERED.give_way(seen) == Begin(name, "SecretLost", name == FIRST)
    assert CORNERED._replace(current="").give_way(seen) == Begin(name, "SecretLost", True)


def test_name_drift() -> None:
    wanted = WANTED._replace(base="other")
    assert next_step(wanted, READY, BUILD, [BUILD], []) == Begin("other", "NameChanged", True)
    assert next_step(wanted, BEGUN, None, [], []) == Begin("other", "NameChanged", False)
    assert next_step(wanted, READY, BUILD, [BUILD, key("other")], []) == Blocked("other")
    assert next_step(wanted, READY, BUILD, [BUILD, key("other")], ["other"]) == Begin("other-2", "NameChanged", True)


@pytest.mark.parametrize("cause", ["Requested", "IntervalElapsed"])
def test_asked(cause: str) -> None:
    assert next_step(WANTED, READY, BUILD, [BUILD], [], cause) == Begin(SECOND, cause, True)
    assert next_step(WANTED, READY_2, BUILD_2, [BUILD, BUILD_2], [FIRST], cause) == Wait(cause)
    assert next_step(WANTED, READY, None, [BUILD], [], cause) == Begin(SECOND, "SecretLost", True)


def test_another_name_of_the_same_organization() -> None:
    """coderd knows its default organization by two names."""
    wanted = WANTED._replace(organization="coder")
    assert next_step(wanted, READY, BUILD, [BUILD], []) == Keep()
    assert next_step(wanted, READY, BUILD, [BUILD], [], "Requested") == Begin(SECOND, "Requested", True)


@pytest.mark.parametrize(
    ("base", "first", "second"),
    [
        ("build", "build", "build-2"),
        ("Build", "build", "build-2"),
        ("b" * 62, "b" * 62, "b" * 62 + "-2"),
        ("b" * 63, "b" * 63, "b" * 53 + "-29a2c225-2"),
        ("b" * 64, "b" * 64, "b" * 53 + "-d237d5c5-2"),
        ("b" * 65, "b" * 55 + "-94e555e5", "b" * 53 + "-94e555e5-2"),
    ],
)
def test_names(base: str, first: str, second: str) -> None:
    assert WANTED._replace(base=base).names == (first, second)


def test_names_of_more_bytes_than_characters() -> None:
    for length in range(1, 70):
        names = WANTED._replace(base="ö" * length).names
        assert len({*names}) == 2
        assert all(len(name.encode()) <= 64 for name in names)


def test_tags_hash() -> None:
    """As the other operator of this API computes it."""
    assert tags_hash({}) == "811c9dc5"
    assert tags_hash({"scope": "organization", "env": "gpu"}) == "a9bcfd8b"
