"""Parses PromQL expressions, and runs promtool."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from coder_k8s.dev.binaries import program

GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"\b([a-z_:][\w:]*)\s*\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"[^\"]*\"")
RANGE = re.compile(r"\[[^\]]*\]")
NAME = re.compile(r"\b([a-z_:][\w:]*)\b(?!\s*\()")
WORDS = {"and", "or", "unless", "bool", "offset"}


class Use(NamedTuple):
    """The metrics of an expression with the labels of their selectors, and the grouping labels."""

    metrics: dict[str, set[str]]
    grouping: set[str]


def uses(expr: str) -> Use:
    metrics: dict[str, set[str]] = {}
    grouping = {label.strip() for labels in GROUPING.findall(expr) for label in labels.split(",")} - {""}
    rest = GROUPING.sub(" ", expr)
    for name, matchers in selectors(rest):
        metrics.setdefault(name, set()).update(MATCHER.findall(matchers))
    for name in NAME.findall(RANGE.sub(" ", SELECTOR.sub(" ", rest))):
        if name not in WORDS:
            metrics.setdefault(name, set())
    return Use(metrics, grouping)


def selectors(expr: str) -> list[tuple[str, str]]:
    """The name and the matchers of each metric that has matchers."""
    return SELECTOR.findall(expr)


def assert_known(expr: str, known: Mapping[str, set[str]]) -> None:
    """Assert that an expression uses only existing metrics and labels."""
    used = uses(expr)
    assert used.metrics, expr
    for name, labels in used.metrics.items():
        assert name in known, f"{name} does not exist: {expr}"
        assert labels <= known[name], expr
    assert used.grouping <= set().union(*(known[name] for name in used.metrics)), expr


def promtool(*arguments: str | Path) -> str:
    """Run promtool and return its output; fails if promtool fails."""
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write(path: Path, content: Any) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
