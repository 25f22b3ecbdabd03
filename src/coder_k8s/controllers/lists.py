"""Lists in which Kubernetes knows an item by its name."""

from typing import Any


def dedupe_by_name(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A variable that is given twice has its last value in a container, and server-side apply takes no duplicates."""
    return list({entry.get("name"): entry for entry in entries}.values())
