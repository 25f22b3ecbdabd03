"""Tags of provisioner daemons and their jobs."""

from collections.abc import Mapping

UNTAGGED = {"owner": "", "scope": "organization"}
NO_USER = "00000000-0000-0000-0000-000000000000"


def complete(*given: Mapping[str, str] | None, user: str = NO_USER) -> dict[str, str]:
    """Merge tags, drop empty values, and add the scope and its owner."""
    tags = {key: value for each in given for key, value in (each or {}).items() if value}
    owned = tags.get("scope") == "user"
    return {**tags, "owner": user if owned else "", "scope": "user" if owned else "organization"}


def covers(tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether tags include all wanted ones; an untagged job needs an untagged daemon."""
    return tags == UNTAGGED if wanted == UNTAGGED else wanted.items() <= tags.items()
