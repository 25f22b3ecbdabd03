"""Adds the reference pages of the kinds to the navigation, as a hook of mkdocs."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    pages = sorted(Path(config.docs_dir, "reference").glob("coder*.md"))
    reference = next(section["Reference"] for section in config.nav if "Reference" in section)
    reference[:0] = [{_title(page): f"reference/{page.name}"} for page in pages]
    return config


def _title(page: Path) -> str:
    return next(line.removeprefix("# ") for line in page.read_text().splitlines() if line.startswith("# "))
