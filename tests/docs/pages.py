"""The pages of the documentation, and the blocks of code in them.

A test runs the commands of a `sh` block, unless the comment `<!-- not run here: KEY -->` precedes it; `EXCUSES` has the
keys. A block with a `title` is a file that the commands use.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.manifests import parse, parse_all

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

EXCUSES = {
    "registry": "needs a container engine and a registry",
    "instead": "an alternative to a block that is run; tests/install tests all ways to install",
    "interactive": "runs until it is interrupted",
    "dev": "is run by tests/dev",
    "make": "runs these tests, or a part of them",
    "coder": "needs a real Coder server, or its command line",
    "cloudnativepg": "needs CloudNativePG and nodes that run it",
    "takeover": "needs an installation to adopt; tests/install/test_takeover.py has one",
    "kustomize": "test_commands runs it separately, after all pages",
    "metrics-server": "needs pods that use CPU, and metrics-server",
    "check": "needs pods of the operator; tests/console/test_check.py has them",
    "prometheus": "needs the Prometheus operator",
    "pip": "needs a package index",
    "kubeconform": "needs kubeconform, and the schemas of Kubernetes from the internet",
}
LANGUAGES = {"sh", "yaml", "json", "text", "promql", ""}
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)(?: +title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
EXCUSE = re.compile(r"<!-- not run here: (?P<key>\S+) -->\n+ *$")


class Block(NamedTuple):
    """A fenced block of code."""

    page: Path
    line: int
    language: str
    title: str
    text: str
    excuse: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def documents(self) -> list[Any]:
        """The documents of a YAML block."""
        return [document for document in parse_all(self.text) if document]


def pages() -> list[Path]:
    """Return all pages: the README, the pages of the navigation in its order, then the other ones."""
    listed = [DOCS / name for name in _listed(navigation())]
    others = [path for path in sorted(DOCS.rglob("*.md")) if path not in listed]
    return [ROOT / "README.md", *listed, *others]


def navigation() -> Any:
    """Return the navigation of mkdocs."""
    return parse((ROOT / "mkdocs.yml").read_text())["nav"]


def _listed(entry: Any) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case list():
            for each in entry:
                yield from _listed(each)
        case dict():
            yield from _listed(list(entry.values()))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        before = text[: found.start()]
        excuse = EXCUSE.search(before)
        indent = len(found["indent"])
        lines = "\n".join(line[indent:] for line in found["text"].splitlines())
        key = excuse["key"] if excuse else ""
        yield Block(page, before.count("\n") + 1, found["language"], found["title"] or "", lines + "\n", key)
