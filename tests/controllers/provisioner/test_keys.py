"""The table of the states of a key, by row and by cause."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

import pytest

from coder_k8s.coderd.types import ProvisionerKey
from coder_k8s.controllers.provisioner.keys import (
    RETIRING_LIMIT,
    Adopt,
    CreateKey,
    Keep,
    Recorded,
    RecordIntent,
    Step,
    Wait,
    Wanted,
    is_requested,
    next_step,
    tags_hash,
)

URL = "http://demo"
TAGS = {"env": "gpu"}
WANTED = Wanted("build", "org-1", TAGS, "demo", URL)
FIRST, NEXT, ANOTHER = "build", "build-0a1b", "build-beef"
MADE = datetime(2026, 1, 1, tzinfo=UTC)
LATER = MADE + timedelta(seconds=1)


class Digits(Random):
    """A random number generator with a fixed result."""

    def getrandbits(self, bits: int, /) -> int:
        return 0xBEEF


def key(name: str, key_id: str = "", **changes: object) -> ProvisionerKey:
    fields = {"organization": "org-1", "created_at": MADE, "tags": TAGS, **changes}
    return ProvisionerKey(id=key_id or f"id-{name}", name=name, **fields)  # type: ignore[arg-type]


def recorded(name: str, key_id: str = "", **changes: object) -> Recorded:
    known = Recorded(name, key_id, "org-1", tags_hash(TAGS), "demo", URL, None if key_id else MADE)
    return known._replace(**changes)  # type: ignore[arg-type]


BUILD, BUILD_NEXT, FOREIGN = key(FIRST), key(NEXT), key(FIRST, "id-foreign")
READY, READY_NEXT = recorded(FIRST, BUILD.id), recorded(NEXT, BUILD_NEXT.id)
PENDING, PENDING_NEXT = recorded(FIRST), recorded(NEXT)
NOTHING = Recorded()
FULL = [False] * RETIRING_LIMIT


class Row(NamedTuple):
    """A state, its inputs, and the next step."""

    state: str
    status: Recorded
    held: ProvisionerKey | None
    stored: list[ProvisionerKey]
    retiring: list[bool]
    expected: Step


TABLE = [
    Row("Nothing", NOTHING, None, [], [], RecordIntent(FIRST, "Created")),
    Row("Nothing, among others", NOTHING, None, [key("other")], [], RecordIntent(FIRST, "Created")),
    Row("Nothing, with a namesake", NOTHING, None, [FOREIGN], [], RecordIntent(ANOTHER, "Created", foreign=FIRST)),
    Row("Unrecorded", NOTHING, BUILD, [BUILD], [], Adopt(BUILD)),
    Row("Unrecorded, another name", NOTHING, BUILD_NEXT, [BUILD_NEXT], [], Adopt(BUILD_NEXT)),
    Row("Unrecorded, in another organization", NOTHING, BUILD, [], [], Adopt(BUILD)),
    Row("Pending", PENDING, None, [], [], CreateKey(FIRST)),
    Row("Pending, beside the old one", PENDING_NEXT, BUILD, [BUILD], [True], CreateKey(NEXT)),
    Row("Pending, with a namesake elsewhere", PENDING, key(FIRST, "id-elsewhere"), [], [], CreateKey(FIRST)),
    Row("Lost", PENDING, None, [BUILD], [], CreateKey(FIRST, lost=True)),
    Row("Lost, beside the old one", PENDING_NEXT, BUILD, [BUILD, BUILD_NEXT], [True], CreateKey(NEXT, lost=True)),
    Row("Lost by an earlier version", PENDING._replace(requested=None), None, [BUILD], [], CreateKey(FIRST, lost=True)),
    Row(
        "Foreign: made before the request",
        PENDING._replace(requested=LATER),
        None,
        [BUILD],
        [],
        RecordIntent(ANOTHER, "NameTaken", foreign=FIRST),
    ),
    Row(
        "Foreign: other tags",
        PENDING,
        None,
        [key(FIRST, tags={})],
        [],
        RecordIntent(ANOTHER, "NameTaken", foreign=FIRST),
    ),
    Row(
        "Foreign: coderd said so",
        PENDING._replace(refused=True),
        None,
        [BUILD],
        [],
        RecordIntent(ANOTHER, "NameTaken", foreign=FIRST),
    ),
    Row(
        "Foreign, beside the old one",
        PENDING_NEXT._replace(refused=True),
        BUILD,
        [BUILD, BUILD_NEXT],
        [True],
        RecordIntent(ANOTHER, "NameTaken", foreign=NEXT),
    ),
    Row("Stored", PENDING, BUILD, [BUILD], [], Adopt(BUILD)),
    Row("Stored, beside the old one", PENDING_NEXT, BUILD_NEXT, [BUILD, BUILD_NEXT], [True], Adopt(BUILD_NEXT)),
    Row("Ready", READY, BUILD, [BUILD, key("other")], [], Keep()),
    Row("Ready, beside the old one", READY_NEXT, BUILD_NEXT, [BUILD_NEXT, BUILD], [True], Keep()),
    Row("Ready, while others retire", READY, BUILD, [BUILD], FULL, Keep()),
    Row(
        "Ready, by an earlier name",
        recorded("build-2", "id-2"),
        key("build-2", "id-2"),
        [key("build-2", "id-2")],
        [],
        Keep(),
    ),
    Row("Ready, but omitted from the list", READY, BUILD, [], [], Keep()),
    Row("Deleted", READY, None, [], [], RecordIntent(FIRST, "KeyDeleted", retires=True)),
    Row(
        "Deleted, and another made",
        READY,
        None,
        [FOREIGN],
        [],
        RecordIntent(ANOTHER, "KeyDeleted", retires=True, foreign=FIRST),
    ),
    Row(
        "Deleted, while the other retires",
        READY_NEXT,
        None,
        [BUILD],
        [True],
        RecordIntent(ANOTHER, "KeyDeleted", retires=True),
    ),
    Row("Deleted, while others retire", READY, None, [], FULL, RecordIntent(FIRST, "KeyDeleted", retires=True)),
    Row("Emptied", READY, None, [BUILD], [], RecordIntent(ANOTHER, "SecretLost", retires=True)),
    Row(
        "Emptied, with an older key",
        READY_NEXT,
        BUILD,
        [BUILD, BUILD_NEXT],
        [True],
        RecordIntent(ANOTHER, "SecretLost", True),
    ),
    Row("Emptied, while others retire", READY, None, [BUILD], FULL, RecordIntent(ANOTHER, "SecretLost", retires=True)),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.state)
def test_rows(row: Row) -> None:
    assert next_step(WANTED, row.status, row.held, row.stored, row.retiring, Digits()) == row.expected


@pytest.mark.parametrize(
    "row", [row for row in TABLE if isinstance(row.expected, RecordIntent)], ids=lambda row: row.state
)
def test_back_off(row: Row) -> None:
    """Only a step that adds a retiring key waits, and only if there are too many."""
    assert isinstance(row.expected, RecordIntent)
    step = next_step(WANTED, row.status, row.held, row.stored, row.retiring, Digits(), backing_off=True)
    waits = row.expected.retires and row.retiring == FULL
    assert step == (Wait(row.expected.cause, works=False) if waits else row.expected)
    full = next_step(WANTED, row.status, row.held, row.stored, FULL, Digits(), backing_off=True)
    assert isinstance(full, Wait) is row.expected.retires


@pytest.mark.parametrize("cause", ["ControlPlaneChanged", "OrganizationChanged"])
def test_back_off_in_another_organization(cause: str) -> None:
    for status in (READY, PENDING):
        step = next_step(ELSEWHERE[cause], status, None, [], FULL, Digits(), backing_off=True)
        assert step == Wait(cause, works=False)
        assert isinstance(next_step(ELSEWHERE[cause], status, None, [], FULL, Digits()), RecordIntent)


@pytest.mark.parametrize("requested", [MADE, None])
def test_excluded_key_is_not_the_one_of_a_lost_response(
    requested: datetime | None,
) -> None:
    status = PENDING._replace(requested=requested)
    step = next_step(WANTED, status, None, [BUILD], [], Digits(), excluded={BUILD.id})
    assert step == RecordIntent(ANOTHER, "NameTaken", foreign=FIRST)


DRIFTS = {
    "TagsChanged": WANTED._replace(tags={"env": "cpu"}),
    "NameChanged": WANTED._replace(base="other"),
}
ELSEWHERE = {
    "ControlPlaneChanged": WANTED._replace(plane="other", url="http://other"),
    "OrganizationChanged": WANTED._replace(organization="org-2"),
}


def another(wanted: Wanted) -> str:
    return f"{wanted.base}-beef"


@pytest.mark.parametrize("cause", DRIFTS)
def test_drift(cause: str) -> None:
    """A new key is created beside the old one; if too many keys retire, the rotation waits."""
    wanted, rng = DRIFTS[cause], Digits()
    begin = RecordIntent(another(wanted), cause, retires=True)
    assert next_step(wanted, READY, BUILD, [BUILD], [], rng) == begin
    assert next_step(wanted, READY_NEXT, BUILD_NEXT, [BUILD, BUILD_NEXT], [True], rng) == begin
    assert next_step(wanted, READY, BUILD, [BUILD], FULL, rng) == Wait(cause)
    assert next_step(wanted, READY, None, [BUILD], FULL, rng) == begin


@pytest.mark.parametrize("cause", DRIFTS)
def test_drift_of_a_pending_key(cause: str) -> None:
    """A key that was created for the old spec retires with its ID; one that was not created does not."""
    wanted, rng = DRIFTS[cause], Digits()
    assert next_step(wanted, PENDING, None, [], [], rng) == RecordIntent(wanted.first, cause)
    made = RecordIntent(another(wanted), cause, retires=True, proven=BUILD.id)
    assert next_step(wanted, PENDING, None, [BUILD], [], rng) == made
    assert next_step(wanted, PENDING, BUILD, [BUILD], [], rng) == Adopt(BUILD)
    foreign = next_step(wanted, PENDING._replace(refused=True), None, [BUILD], [], rng)
    assert isinstance(foreign, RecordIntent)
    assert (foreign.cause, foreign.retires) == (cause, False)


@pytest.mark.parametrize("cause", ELSEWHERE)
def test_drift_to_another_organization(cause: str) -> None:
    """The first key there gets the plain name; the old key retires in its organization."""
    wanted, rng = ELSEWHERE[cause], Digits()
    for status in (READY, PENDING):
        assert next_step(wanted, status, None, [], [], rng) == RecordIntent(FIRST, cause, retires=True)
        taken = RecordIntent(ANOTHER, cause, retires=True, foreign=FIRST)
        assert next_step(wanted, status, None, [FOREIGN], [], rng) == taken
        assert next_step(wanted, status, None, [BUILD_NEXT], [True], rng) == RecordIntent(ANOTHER, cause, retires=True)
    assert next_step(wanted, PENDING._replace(refused=True), None, [], [], rng) == RecordIntent(FIRST, cause)


def test_another_url() -> None:
    """It requires a new key only if coderd does not have this key there."""
    wanted, rng = WANTED._replace(url="https://demo"), Digits()
    assert next_step(wanted, READY, BUILD, [BUILD], [], rng) == Keep()
    assert next_step(wanted, READY, None, [], [], rng) == RecordIntent(FIRST, "ControlPlaneChanged", retires=True)
    assert next_step(wanted, READY, None, [BUILD], [], rng) == RecordIntent(
        ANOTHER, "ControlPlaneChanged", retires=True
    )
    assert next_step(wanted, PENDING, None, [], [], rng) == RecordIntent(FIRST, "ControlPlaneChanged")


@pytest.mark.parametrize("cause", ["Requested", "IntervalElapsed"])
def test_requested_rotation(cause: str) -> None:
    rng = Digits()
    assert next_step(WANTED, READY, BUILD, [BUILD], [], rng, due=cause) == RecordIntent(ANOTHER, cause, retires=True)
    assert next_step(WANTED, READY, BUILD, [BUILD], FULL, rng, due=cause) == Wait(cause)
    assert next_step(WANTED, READY, None, [BUILD], [], rng, due=cause) == RecordIntent(
        ANOTHER, "SecretLost", retires=True
    )


@pytest.mark.parametrize(
    ("base", "first", "another"),
    [
        ("build", "build", "build-beef"),
        ("Build", "build", "build-beef"),
        ("b" * 59, "b" * 59, "b" * 59 + "-beef"),
        ("b" * 60, "b" * 60, "b" * 50 + "-3a491e45-beef"),
        ("b" * 64, "b" * 64, "b" * 50 + "-d237d5c5-beef"),
        ("b" * 65, "b" * 55 + "-94e555e5", "b" * 50 + "-94e555e5-beef"),
    ],
)
def test_names(base: str, first: str, another: str) -> None:
    wanted = WANTED._replace(base=base)
    assert (wanted.first, wanted.unused_name((), Digits())) == (first, another)
    assert wanted.matches(first)
    assert wanted.matches(another)


def test_names_of_more_bytes_than_characters() -> None:
    for length in range(1, 70):
        wanted = WANTED._replace(base="ö" * length)
        names = {wanted.first, wanted.unused_name((), Digits())}
        assert len(names) == 2
        assert all(len(name.encode()) <= 64 and wanted.matches(name) for name in names)


@pytest.mark.parametrize("name", ["build", "build-2", "build-0a1b", "build-ffff"])
def test_names_that_match(name: str) -> None:
    assert WANTED.matches(name)


@pytest.mark.parametrize(
    "name", ["", "buil", "build-", "build-3", "build-0A1B", "build-0a1", "build-0a1bc", "build-wxyz"]
)
def test_names_that_do_not_match(name: str) -> None:
    assert not WANTED.matches(name)


def test_taken_name_is_not_used() -> None:
    drawn = WANTED.unused_name((), Random(1))  # noqa: S311 - the same in every run
    assert WANTED.unused_name({drawn}, Random(1)) != drawn  # noqa: S311


@pytest.mark.parametrize(
    ("made_with", "asked_for", "expected"),
    [
        ({"a": "b"}, {"a": "b"}, True),
        ({"a": "b"}, {"a": "b", "empty": "", "scope": "organization"}, True),
        ({"a": "c"}, {"a": "b"}, False),
        ({}, {"a": "b"}, False),
    ],
)
def test_tags_of_a_request(made_with: dict[str, str], asked_for: dict[str, str], expected: bool) -> None:
    """coderd drops empty values."""
    found = key(FIRST, tags=made_with)
    assert is_requested(found, tags_hash(asked_for), MADE, asked_for, ()) is expected


def test_tags_hash() -> None:
    """As the Go operator computes it."""
    assert tags_hash({}) == "811c9dc5"
    assert tags_hash({"scope": "organization", "env": "gpu"}) == "a9bcfd8b"
