"""Static checks of the pages. `make docs` checks links within docs/."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from coder_k8s.dev.samples import PLANE, PROVISIONED, PROXY
from tests.docs.pages import DOCS, EXCUSES, LANGUAGES, ROOT, blocks, pages

TEXTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
HEADER = re.compile(r"^(\|.*\|)\n\|(?: *:?-+:? *\|)+$", re.MULTILINE)
OBJECT = re.compile(r"\b(codercontrolplane|coderprovisioner|coderworkspaceproxy)[/ ](?!-)([\w-]+)")
LINK = re.compile(r"\]\((?P<target>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")


def test_every_command_runs_or_has_an_excuse() -> None:
    used = set()
    for page in pages():
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{block}: {block.language} is not tested"
            assert not block.excuse or block.language == "sh", f"{block}: only commands have excuses"
            assert block.excuse in ("", *EXCUSES), f"{block}: {block.excuse} is not explained"
            used.add(block.excuse)
    assert not EXCUSES.keys() - used, "unused excuses"


def test_every_fence_is_parsed() -> None:
    """A block that is not parsed would not run."""
    for page in pages():
        fences = re.findall(r"^ *```", page.read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(list(blocks(page))), page


def test_every_excuse_precedes_a_block() -> None:
    for page in pages():
        excused = sum(bool(block.excuse) for block in blocks(page))
        assert page.read_text().count("<!-- not run here:") == excused, page


@pytest.mark.parametrize("text", TEXTS)
def test_link_targets_exist(text: str) -> None:
    for found in LINK.finditer((ROOT / text).read_text()):
        if "://" in found["target"]:
            continue
        page = ROOT / (found["target"] or text)
        assert page.exists(), found["target"]
        assert found["anchor"] is None or found["anchor"] in anchors(page), found[0]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_ci_runs_the_command_of_the_readme() -> None:
    assert "make test\n" in [block.text for block in blocks(ROOT / "README.md")]
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()


def test_tests_that_the_readme_names_exist() -> None:
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "README.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_tables_have_a_header_in_every_column(page: Path) -> None:
    for header in HEADER.findall(page.read_text()):
        assert all(cell.strip() for cell in header.strip("|").split("|")), header


def test_guides_use_the_names_of_the_samples() -> None:
    """A reader of `make dev` finds the same objects in the guides. `frankfurt` is the proxy in another cluster."""
    samples = {"codercontrolplane": {PLANE.name}, "coderprovisioner": {PROVISIONED.name}}
    samples["coderworkspaceproxy"] = {PROXY.name, "frankfurt"}
    guides = [page for page in pages() if page.parent.name in ("how-to", "getting-started")]
    commands = [block for page in guides for block in blocks(page) if block.language == "sh"]
    named = {(kind, name, str(block)) for block in commands for kind, name in OBJECT.findall(block.text)}
    assert {kind for kind, _, _ in named} == samples.keys()
    assert [each for each in named if each[1] not in samples[each[0]]] == []


def test_releases_and_changelog_name_the_version() -> None:
    assert f"currently\n{version('coder-k8s')}." in (DOCS / "releases.md").read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(
        rf"^## \[{version('coder-k8s')}\]|describes version {version('coder-k8s')}\.", changelog, re.MULTILINE
    )
