"""The text and tables of docs/performance.md."""

from collections.abc import Iterable, Sequence

import msgspec


class Verdict(msgspec.Struct, kw_only=True):
    """A target and the measured result."""

    name: str
    target: str
    found: str
    met: bool
    limit: str = ""
    """Explanation of a missed target."""


class Section(msgspec.Struct, kw_only=True):
    """The section of one scenario."""

    title: str
    text: str
    verdicts: list[Verdict] = []
    plots: dict[str, str] = {}
    """SVG by file name."""


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; all columns except the first are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def page(machine: str, sections: Sequence[Section]) -> str:
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    missed = [verdict for verdict in verdicts if not verdict.met]
    parts = [
        "# Performance",
        "Resource usage of the operator, measured with a real kube-apiserver and etcd. They run on the same machine "
        "as the operator and the program that simulates users. `make bench` runs the measurements and writes this "
        "page; the raw results are in `bench/results`. Do not compare results of different machines; compare ratios "
        "within one run.",
        f"Measured on {machine}.",
        "## Targets",
        table(
            ["metric", "target", "measured", "result"],
            [(each.name, each.target, each.found, "met" if each.met else "**missed**") for each in verdicts],
        ),
    ]
    if missed:
        parts += ["Causes of missed targets:", "\n".join(f"- {each.name}: {each.limit}" for each in missed)]
    for section in sections:
        parts += [f"## {section.title}", section.text]
        parts += [f"![{name}](performance/{name}.svg)" for name in section.plots]
    return "\n\n".join(parts) + "\n"
