"""Lists whose items Kubernetes merges by name."""

from typing import Any


def dedupe_by_name(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the last entry of each name, as a container does; server-side apply rejects duplicates."""
    return list({entry.get("name"): entry for entry in entries}.values())
