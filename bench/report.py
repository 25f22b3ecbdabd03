"""The words and tables of docs/performance.md."""

from collections.abc import Iterable, Sequence

import msgspec


class Verdict(msgspec.Struct, kw_only=True):
    """A target beside what was found."""

    name: str
    target: str
    found: str
    met: bool
    limit: str = ""
    """What limits it, for when it is missed."""


class Section(msgspec.Struct, kw_only=True):
    """One measurement as the reader sees it."""

    title: str
    text: str
    verdicts: list[Verdict] = []
    plots: dict[str, str] = {}
    """SVG by file name."""


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; all but the first column are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def page(machine: str, sections: Sequence[Section]) -> str:
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    missed = [verdict for verdict in verdicts if not verdict.met]
    parts = [
        "# Performance",
        "What the operator costs, measured on a real kube-apiserver and etcd on one machine, which they share with the "
        "operator and with the program that plays the users. `make bench` measures anew and writes this page; the raw "
        "figures are in `bench/results`. Figures of different machines do not compare: look at the "
        "ratios within a run.",
        f"Measured on {machine}.",
        "## Targets",
        table(
            ["what", "target", "found", ""],
            [(each.name, each.target, each.found, "met" if each.met else "**missed**") for each in verdicts],
        ),
    ]
    if missed:
        parts += ["What limits those that were missed:", "\n".join(f"- {each.name}: {each.limit}" for each in missed)]
    for section in sections:
        parts += [f"## {section.title}", section.text]
        parts += [f"![{name}](performance/{name}.svg)" for name in section.plots]
    return "\n\n".join(parts) + "\n"
