"""What can be said of the pages without running anything. `make docs` checks links within docs/."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import EXCUSES, LANGUAGES, ROOT, blocks, pages

TEXTS = ("README.md", "CONTRIBUTING.md")
LINK = re.compile(r"\]\((?P<target>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")


def test_every_command_is_run_or_says_why_not() -> None:
    used = set()
    for page in pages():
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{block}: {block.language} is not checked by anything"
            assert not block.excuse or block.language == "sh", f"{block}: only commands need an excuse"
            assert block.excuse in ("", *EXCUSES), f"{block}: {block.excuse} is not explained"
            used.add(block.excuse)
    assert not EXCUSES.keys() - used, "excuses that nobody uses"


def test_every_fence_is_understood() -> None:
    """A block that the pattern does not see would never be run."""
    for page in pages():
        fences = re.findall(r"^ *```", page.read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(list(blocks(page))), page


def test_every_excuse_stands_before_a_block() -> None:
    for page in pages():
        excused = sum(bool(block.excuse) for block in blocks(page))
        assert page.read_text().count("<!-- not run here:") == excused, page


@pytest.mark.parametrize("text", TEXTS)
def test_links_lead_somewhere(text: str) -> None:
    for found in LINK.finditer((ROOT / text).read_text()):
        if "://" in found["target"]:
            continue
        there = ROOT / (found["target"] or text)
        assert there.exists(), found["target"]
        assert found["anchor"] is None or found["anchor"] in anchors(there), found[0]


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_ci_runs_what_the_readme_says() -> None:
    assert "make test\n" in [block.text for block in blocks(ROOT / "README.md")]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")


def test_claims_name_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "README.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
