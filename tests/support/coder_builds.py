"""Selects the tests that need a real Coder: those whose builds are in the cache.

`@pytest.mark.coder(*versions)` names the builds. Without one of them, a test is deselected, and the summary has one
line about all of these tests.
"""

from pathlib import Path

import pytest

from coder_k8s.dev.coder_build import LATEST, cached

MARKER = "coder"
MISSING = "missing-coder"
"""The file in which the workers of a run report the missing versions."""


def versions(item: pytest.Item) -> set[str]:
    """The builds of Coder that a test needs."""
    marks = list(item.iter_markers(MARKER))
    return {str(version) for mark in marks for version in mark.args or (LATEST,)}


def missing(item: pytest.Item) -> set[str]:
    return {version for version in versions(item) if not cached(version).exists()}


class CoderBuilds:
    """Deselects tests without their builds; `folder` is shared with the workers of the run."""

    def __init__(self, folder: Path) -> None:
        self._report = folder / MISSING

    @pytest.hookimpl(trylast=True)  # after the selection by name and marker
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = {item: found for item in items if (found := missing(item))}
        if left_out:
            config.hook.pytest_deselected(items=list(left_out))
            items[:] = [item for item in items if item not in left_out]
            self._report.write_text(f"{len(left_out)} {', '.join(sorted(set().union(*left_out.values())))}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._report.exists():
            count, _, needed = self._report.read_text().partition(" ")
            terminalreporter.write_line(
                f"real Coder: {count} tests not run, because coder {needed} is not built (`make test-coder`)",
                yellow=True,
            )
