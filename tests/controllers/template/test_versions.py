"""The next step of a template depends on the source, the status and coderd."""

from datetime import UTC, datetime, timedelta

import pytest

from coder_k8s.controllers.template.versions import (
    Absent,
    Adopt,
    Create,
    Fail,
    Found,
    Hold,
    Import,
    Keep,
    NameConflict,
    Observe,
    Promote,
    Recorded,
    Retry,
    Step,
    Version,
    Wait,
    Wanted,
    is_drifted,
    next_step,
    outdated,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
REAPED = "Coder: Build has been detected as pending for 30 minutes and has been terminated by the reaper."
HUNG = "Coder: Build has been detected as hung for 5 minutes and has been terminated by the reaper."

WANTED = Wanted("new")
MANUAL, REPORT, OBSERVE = Wanted("new", manual=True), Wanted("new", revert=False), Wanted("new", observe=True)
OLD = Version("a", "old-1", "old", "succeeded")
NEW = Version("b", "new-1", "new", "succeeded")
RUNNING, PENDING = NEW._replace(status="running"), NEW._replace(status="pending")
BROKEN = NEW._replace(status="failed", error="exit status 1", completed=NOW)
CANCELED = NEW._replace(status="canceled")
HUNG_ONE = NEW._replace(status="failed", error=HUNG, completed=NOW)
UNSERVED = NEW._replace(status="failed", error=REAPED, completed=NOW)
NOTHING, OURS = Recorded(), Recorded("t", "a")
ACTIVE, OTHER = Found("t", "a"), Found("t", "x")


def unserved(number: int, since: timedelta) -> Version:
    return UNSERVED._replace(id=f"u{number}", name=f"new-{number}", completed=NOW - since)


@pytest.mark.parametrize(
    ("versions", "step"),
    [
        ((unserved(1, timedelta()),), Import(2)),
        (
            (unserved(1, timedelta()), unserved(2, timedelta())),
            Retry(unserved(2, timedelta()), NOW + timedelta(minutes=30)),
        ),
        ((unserved(1, timedelta()), unserved(2, timedelta(minutes=30))), Import(3)),
        (
            tuple(unserved(number, timedelta()) for number in range(1, 41)),
            Retry(unserved(40, timedelta()), NOW + timedelta(days=1)),
        ),
    ],
)
def test_imports_that_nobody_takes(versions: tuple[Version, ...], step: Step) -> None:
    assert next_step(WANTED, NOTHING, None, versions, NOW, served=True) == step


@pytest.mark.parametrize(
    ("name", "number"), [("0123456789ab-7", 7), ("x-" + "9" * 5000, 0), ("x-\u0663", 0), ("x", 0), ("x-1\n", 0)]
)
def test_numbers_in_names(name: str, number: int) -> None:
    assert NEW._replace(name=name).number == number


def again(number: int) -> Version:
    return HUNG_ONE._replace(id=f"b{number}", name=f"new-{number}")


@pytest.mark.parametrize(
    ("wanted", "recorded", "found", "versions", "step"),
    [
        # Without a template
        (WANTED, NOTHING, None, (), Import(1)),
        (WANTED, NOTHING, None, (PENDING,), Wait(PENDING)),
        (WANTED, NOTHING, None, (BROKEN,), Fail(BROKEN)),
        (WANTED, NOTHING, None, (NEW,), Create(NEW)),
        (MANUAL, NOTHING, None, (NEW,), Create(NEW)),
        (WANTED, OURS, None, (), Import(1)),
        (REPORT, OURS, None, (), Absent()),
        (REPORT, NOTHING, None, (), Import(1)),
        (OBSERVE, NOTHING, None, (), Absent()),
        # The template of another owner
        (WANTED, NOTHING, ACTIVE._replace(owned=False), (), NameConflict()),
        (WANTED._replace(adopt=True), NOTHING, ACTIVE._replace(owned=False), (), Adopt()),
        (OBSERVE, NOTHING, ACTIVE._replace(owned=False), (), Observe()),
        (OBSERVE, OURS, OTHER, (OLD, NEW), Observe()),
        # A new source
        (WANTED, OURS, ACTIVE, (OLD,), Import(1)),
        (WANTED, OURS, ACTIVE, (OLD, RUNNING), Wait(RUNNING)),
        (WANTED, OURS, ACTIVE, (OLD, BROKEN), Fail(BROKEN)),
        (WANTED, OURS, ACTIVE, (OLD, NEW), Promote(NEW)),
        (WANTED, OURS, ACTIVE, (OLD, NEW._replace(archived=True)), Promote(NEW._replace(archived=True))),
        (REPORT, OURS, ACTIVE, (OLD, NEW), Promote(NEW)),
        (WANTED, NOTHING, OTHER, (NEW,), Promote(NEW)),
        (WANTED, Recorded("t", "b"), Found("t", "b"), (OLD, NEW), Keep(NEW)),
        (WANTED, OURS, Found("t", "b"), (OLD, NEW), Keep(NEW)),
        (WANTED, OURS, ACTIVE, (OLD, CANCELED), Fail(CANCELED)),
        # Failures of infrastructure
        (WANTED, OURS, ACTIVE, (OLD, HUNG_ONE), Retry(HUNG_ONE, NOW + timedelta(seconds=30))),
        (WANTED, OURS, ACTIVE, (OLD, HUNG_ONE._replace(completed=NOW - timedelta(seconds=30))), Import(2)),
        (WANTED, OURS, ACTIVE, (OLD, again(1), again(2)), Retry(again(2), NOW + timedelta(seconds=60))),
        (WANTED, OURS, ACTIVE, (OLD, again(1), again(2), again(3)), Fail(again(3))),
        (WANTED, OURS, ACTIVE, (OLD, UNSERVED), Retry(UNSERVED, None)),
        (WANTED, OURS, ACTIVE, (OLD, again(1), NEW._replace(name="new-2")), Promote(NEW._replace(name="new-2"))),
        # Changes by someone else
        (WANTED, Recorded("t", "b"), OTHER, (OLD, NEW), Promote(NEW, reverts=True)),
        (REPORT, Recorded("t", "b"), OTHER, (OLD, NEW), Hold(NEW)),
        (WANTED, OURS, OTHER, (OLD, RUNNING), Promote(OLD, reverts=True)),
        (WANTED, OURS, OTHER, (OLD, BROKEN), Promote(OLD, reverts=True)),
        (REPORT, OURS, OTHER, (OLD, RUNNING), Wait(RUNNING)),
        (WANTED, OURS, OTHER, (OLD, NEW), Promote(NEW)),
        # Manual promotion
        (MANUAL, OURS, ACTIVE, (OLD, NEW), Hold(NEW)),
        (MANUAL, OURS, ACTIVE, (OLD,), Import(1)),
        (MANUAL, OURS, OTHER, (OLD, NEW), Promote(OLD, reverts=True)),
        (MANUAL._replace(promote="new-1"), OURS, ACTIVE, (OLD, NEW), Promote(NEW)),
        (MANUAL._replace(promote="new-1"), OURS, ACTIVE, (OLD, RUNNING), Wait(RUNNING)),
        (MANUAL._replace(promote="new-1"), Recorded("t", "b"), Found("t", "b"), (OLD, NEW), Keep(NEW)),
        (MANUAL._replace(promote="old-1"), Recorded("t", "b"), Found("t", "b"), (OLD, NEW), Promote(OLD)),
        (MANUAL._replace(promote="old-1"), OURS, ACTIVE, (OLD, NEW), Hold(NEW)),
        (MANUAL._replace(promote="x-1"), OURS, ACTIVE, (OLD, NEW), Hold(NEW)),
        (WANTED._replace(promote="old-1"), Recorded("t", "b"), Found("t", "b"), (OLD, NEW), Keep(NEW)),
    ],
)  # fmt: skip
def test_next_step(
    wanted: Wanted, recorded: Recorded, found: Found | None, versions: tuple[Version, ...], step: Step
) -> None:
    assert next_step(wanted, recorded, found, versions, NOW) == step


def test_an_import_that_nobody_took_is_repeated_when_there_is_a_provisioner() -> None:
    assert next_step(WANTED, OURS, ACTIVE, (OLD, UNSERVED), NOW, served=True) == Import(2)


@pytest.mark.parametrize(
    ("recorded", "found", "expected"),
    [(NOTHING, None, False), (OURS, None, True), (OURS, ACTIVE, False), (OURS, OTHER, True), (NOTHING, OTHER, False)],
)
def test_drift(recorded: Recorded, found: Found | None, expected: bool) -> None:
    assert is_drifted(recorded, found) is expected


def test_old_versions_are_archived() -> None:
    versions = [Version(str(number), f"v-{number}", "x", "succeeded") for number in range(6)]
    versions[2] = versions[2]._replace(archived=True)
    versions[5] = versions[5]._replace(status="pending")
    assert [each.id for each in outdated(versions, 2, {"0"})] == ["1"]
    assert outdated(versions, 10, ()) == []
