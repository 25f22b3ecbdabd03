"""Limits on the size of modules, functions and constructors."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import coder_k8s

ROOT = Path(coder_k8s.__path__[0])
MODULES = sorted(ROOT.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef

LINES_OF_A_MODULE = 300
LINES_OF_A_FUNCTION = 45
ARGUMENTS_OF_A_CONSTRUCTOR = 7
"""Without `self`. Records (dataclasses, named tuples, structs) have no constructor of their own."""


def violations(source: str) -> Iterator[str]:
    if (lines := len(source.splitlines())) > LINES_OF_A_MODULE:
        yield f"the module has {lines} lines"
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Function):
            continue
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > LINES_OF_A_FUNCTION:
            yield f"{node.name} has {lines} lines"
        arguments = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1
        if node.name == "__init__" and arguments > ARGUMENTS_OF_A_CONSTRUCTOR:
            yield f"the constructor at line {node.lineno} has {arguments} arguments"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_too_large(path: Path) -> None:
    assert list(violations(path.read_text())) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1\n" * 300, []),
        ("x = 1\n" * 301, ["the module has 301 lines"]),
        ("def f():\n" + "    x = 1\n" * 45, ["f has 46 lines"]),
        ("class C:\n    def __init__(self, a, b, c, d, e, f, *, g): ...\n", []),
        (
            "class C:\n    def __init__(self, a, b, c, d, e, f, g, *, h): ...\n",
            ["the constructor at line 2 has 8 arguments"],
        ),
    ],
)
def test_what_counts_as_too_large(source: str, found: list[str]) -> None:
    assert list(violations(source)) == found
