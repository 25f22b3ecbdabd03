"""Which step brings a template to its desired version.

A version has a digest of its files, variables and tags in its message. That message identifies it, so that nothing is
imported twice, whatever was recorded and whenever the operator restarts. The first row that applies decides:

| the template in Coder | the versions of this object | step |
|---|---|---|
| belongs to another owner | | `NameConflict`, or `Adopt` with the annotation |
| is absent, and only observed | | `Absent` |
| is absent, was there before, and drift is only reported | | `Absent` |
| is absent | the desired one is imported | `Create` |
| is absent | the desired one is not imported | as in the last four rows |
| is there, and only observed | | `Observe` |
| the active version is not the promoted one | the promoted one still exists, and nothing newer is to be promoted; \
drift is reverted | `Promote`, as a revert |
| | the policy is Manual, and the annotation names one that is imported and not active | `Promote` |
| the active version has the desired digest | | `Keep` |
| | the desired one is imported and was never promoted; the policy is OnSuccess | `Promote` |
| | the desired one is imported, and the policy is Manual or drift is only reported | `Hold` |
| | the desired one is being imported | `Wait` |
| | the desired one failed, for reasons of infrastructure, fewer than 3 times | `Import` again, after a while |
| | the desired one failed because no provisioner took it | `Import` again, when there is one; repeatedly after \
an increasing time |
| | the desired one failed otherwise | `Fail` |
| | the desired one does not exist | `Import` |
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

ATTEMPTS = 3
RETRY = timedelta(seconds=30)
"""After the first failure for reasons of infrastructure; doubled after each further one."""
WAITING = frozenset(("pending", "running", "canceling"))
UNSERVED = re.compile(r"detected as pending for [0-9.]+ \w+ and has been terminated by the reaper")
INFRASTRUCTURE = re.compile(r"terminated by the reaper|shutting down|connection (refused|reset)|i/o timeout")
"""Errors of a job that are not those of the template."""
NUMBER = re.compile(r"-([0-9]{1,6})\Z")
UNSERVED_RETRY, LONGEST_RETRY = timedelta(minutes=30), timedelta(days=1)
"""After a second failure because nobody took the job, although a provisioner has the tags; doubled after each one."""


class Version(NamedTuple):
    """A version of this object in coderd."""

    id: str
    name: str
    digest: str
    status: str
    """Of its job: pending, running, canceling, succeeded, failed or canceled."""
    archived: bool = False
    error: str = ""
    error_code: str = ""
    completed: datetime | None = None
    served: bool = True
    """Whether a provisioner can run the job, as far as that is known."""
    file: str = ""
    """ID of its archive; empty if the version is known from the status."""

    @property
    def number(self) -> int:
        """The number in its name; zero for a name that someone has changed."""
        found = NUMBER.search(self.name)
        return int(found.group(1)) if found else 0


class Found(NamedTuple):
    """The template in coderd."""

    id: str
    active: str
    """ID of the active version."""
    owned: bool = True
    """Whether it belongs to this object."""


class Wanted(NamedTuple):
    """What the object asks for."""

    digest: str
    manual: bool = False
    promote: str = ""
    """Name of the version in the annotation."""
    revert: bool = True
    observe: bool = False
    adopt: bool = False

    @property
    def named(self) -> str:
        """Name of the version to make active, with the policy Manual."""
        return self.promote if self.manual else ""


class Recorded(NamedTuple):
    """What the status has."""

    template: str = ""
    promoted: str = ""
    """ID of the version that this object made active last."""


class NameConflict(msgspec.Struct, frozen=True):
    """Another owner has a template of the name."""

    claimed_by: str = ""
    """Name of another object that manages the template."""


class Adopt(msgspec.Struct, frozen=True):
    """Take over the template of another owner."""


class Absent(msgspec.Struct, frozen=True):
    """There is no template, and none is created."""


class Observe(msgspec.Struct, frozen=True):
    """Only report."""


class Import(msgspec.Struct, frozen=True):
    """Create a version with this number."""

    number: int


class Wait(msgspec.Struct, frozen=True):
    """A provisioner imports the version."""

    version: Version


class Fail(msgspec.Struct, frozen=True):
    """The import failed, and is not repeated."""

    version: Version


class Retry(msgspec.Struct, frozen=True):
    """The import failed, and is repeated at this time; `None` when a provisioner can run it."""

    version: Version
    at: datetime | None


class Create(msgspec.Struct, frozen=True):
    """Create the template with its first version."""

    version: Version


class Promote(msgspec.Struct, frozen=True):
    """Make the version the active one."""

    version: Version
    reverts: bool = False


class Hold(msgspec.Struct, frozen=True):
    """The version is imported, and is not made active."""

    version: Version


class Keep(msgspec.Struct, frozen=True):
    """The active version is the desired one."""

    version: Version


Step = NameConflict | Adopt | Absent | Observe | Import | Wait | Fail | Retry | Create | Promote | Hold | Keep


def next_step(
    wanted: Wanted,
    recorded: Recorded,
    found: Found | None,
    versions: Sequence[Version],
    now: datetime,
    *,
    served: bool = False,
) -> Step:
    """The next step; `served` is whether a connected provisioner has the tags of the template."""
    desired = [each for each in versions if each.digest == wanted.digest]
    if found is None:
        if wanted.observe or (recorded.template and not wanted.revert):
            return Absent()
        step = _import(desired, now, served=served)
        return Create(step.version) if isinstance(step, Hold) else step
    if not found.owned and not wanted.observe:
        return Adopt() if wanted.adopt else NameConflict()
    if wanted.observe:
        return Observe()
    active = next((each for each in desired if each.id == found.active), None)
    step = Keep(active) if active else _import(desired, now, served=served)
    return _promotion(wanted, recorded, found, versions, step) or step


def is_drifted(recorded: Recorded, found: Found | None) -> bool:
    """Whether someone changed the active version, or deleted the template."""
    if found is None:
        return bool(recorded.template)
    return bool(recorded.promoted) and found.active != recorded.promoted


def _promotion(
    wanted: Wanted, recorded: Recorded, found: Found, versions: Sequence[Version], step: Step
) -> Promote | None:
    """The version to make active, if any."""
    named = next((each for each in versions if wanted.named and each.name == wanted.named), None)
    if named is not None and named.status == "succeeded":
        target, due = named, named.id != recorded.promoted
    elif isinstance(step, Keep) and not wanted.manual:
        return None
    elif isinstance(step, Hold) and not wanted.manual and step.version.id != recorded.promoted:
        target, due = step.version, True
    else:
        kept = next((each for each in versions if each.id == recorded.promoted), None)
        if kept is None:
            return None
        target, due = kept, False
    if target.id == found.active or not (due or wanted.revert):
        return None
    return Promote(target, reverts=not due)


def _import(desired: Sequence[Version], now: datetime, *, served: bool) -> Step:
    """The step of the import of the desired version; `Hold` when it is imported."""
    if not desired:
        return Import(1)
    for each in desired:
        if each.status == "succeeded":
            return Hold(each)
    last = max(desired, key=lambda each: each.number)
    if last.status in WAITING:
        return Wait(last)
    if UNSERVED.search(last.error):
        return _repeat(last, _unserved_until(desired, last, now), now) if served else Retry(last, None)
    failures = sum(bool(INFRASTRUCTURE.search(each.error)) for each in desired)
    if not INFRASTRUCTURE.search(last.error) or failures >= ATTEMPTS:
        return Fail(last)
    return _repeat(last, (last.completed or now) + RETRY * 2 ** (failures - 1), now)


def _repeat(last: Version, at: datetime, now: datetime) -> Step:
    return Import(last.number + 1) if now >= at else Retry(last, at)


def _unserved_until(desired: Sequence[Version], last: Version, now: datetime) -> datetime:
    """When an import that nobody took is repeated: at once after the first one."""
    failures = sum(bool(UNSERVED.search(each.error)) for each in desired)
    if failures < 2:
        return now
    delay: timedelta = UNSERVED_RETRY * 2 ** min(failures - 2, 10)
    return (last.completed or now) + min(LONGEST_RETRY, delay)


def outdated(versions: Iterable[Version], keep: int, used: Iterable[str]) -> list[Version]:
    """The versions of this object to archive, the oldest first: all but the newest ones and those in use.

    The versions are in the order in which they were created.
    """
    finished = [each for each in versions if not each.archived and each.status not in WAITING]
    kept = set(used)
    return [each for each in finished[:-keep] if each.id not in kept]
