"""Versions of Coder between which a direct update is known to fail."""

import re

import msgspec

Version = tuple[int, int, int]
VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class KnownPath(msgspec.Struct, frozen=True):
    """An update that fails: from one of these versions to one of those, both ends included."""

    sources: tuple[Version, Version]
    targets: tuple[Version, Version]
    first: str
    """The version to update to first."""


KNOWN_BAD = (KnownPath(((2, 26, 0), (2, 26, 5)), ((2, 27, 0), (2, 27, 8)), "2.26.6"),)


def parse(version: str) -> Version | None:
    """The numbers of a version, such as `v2.36.1+6cb386f`."""
    found = VERSION.match(version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def tag(image: str) -> str:
    """The tag of an image, which is often its version."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def intermediate_version(source: str, target: str) -> str:
    """The version that must be installed between two others; empty if the update is not known to fail."""
    before, after = parse(source), parse(target)
    if before is None or after is None:
        return ""
    for path in KNOWN_BAD:
        if path.sources[0] <= before <= path.sources[1] and path.targets[0] <= after <= path.targets[1]:
            return path.first
    return ""
