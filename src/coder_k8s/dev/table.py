"""A table of the objects, updated in place on a terminal and appended as lines otherwise."""

from collections.abc import Sequence
from typing import NamedTuple, TextIO

from coder_k8s.api import CoderControlPlane, CoderObject, CoderProvisioner
from coder_k8s.api.shared import PodStatus
from coder_k8s.kube.conditions import find

UP, ERASE_LINE, ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\x1b[J"
COLORS = {"True": "\x1b[32m", "False": "\x1b[31m", "Unknown": "\x1b[33m"}
PLAIN = "\x1b[0m"


class Row(NamedTuple):
    """One object as strings."""

    kind: str
    name: str
    ready: str
    reason: str
    replicas: str
    daemons: str
    license: str
    message: str

    @property
    def is_ready(self) -> bool:
        return self.ready == "True"


HEADER = Row("KIND", "NAME", "READY", "REASON", "REPLICAS", "DAEMONS", "LICENSE", "")


def row(item: CoderObject) -> Row:
    """Return the row of an object. A condition of an older generation is ignored."""
    status = item.status
    condition = find(status.conditions, "Ready")
    current = condition is not None and condition.observed_generation == item.metadata.generation
    return Row(
        kind=type(item).__name__,
        name=str(item.key),
        ready=condition.status if condition and current else "Unknown",
        reason=condition.reason if condition and current else "NotObserved",
        replicas=f"{status.ready_replicas}/{item.spec.replicas}" if isinstance(status, PodStatus) else "-",
        daemons=_daemons(item) if isinstance(item, CoderProvisioner) else "-",
        license=(item.status.license_tier if isinstance(item, CoderControlPlane) else "") or "-",
        message=condition.message if condition and current and condition.status != "True" else "",
    )


def _daemons(item: CoderProvisioner) -> str:
    return f"{item.status.daemons.connected if item.status.daemons else 0}/{item.spec.replicas}"


def render(rows: Sequence[Row], width: int = 0, *, color: bool = False) -> list[str]:
    """Return the lines of the table, cut to a width if it is not 0."""
    lines = [HEADER, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    rendered = []
    for line in lines:
        text = "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        text = text[: width or None]
        if color and line.ready in COLORS:
            cell = f"  {line.ready.ljust(widths[2])}  "
            text = text.replace(cell, f"{COLORS[line.ready]}{cell}{PLAIN}", 1)
        rendered.append(text)
    return rendered


class Screen:
    """Shows rows and a footer when they change."""

    def __init__(self, out: TextIO, width: int) -> None:
        self._out = out
        self._width = width
        self._lines: list[str] = []

    def show(self, rows: Sequence[Row], footer: str) -> None:
        if self._out.isatty():
            self._rewrite([*render(rows, self._width, color=True), "", footer[: self._width]])
        else:
            self._append([*("  ".join(filter(None, each)) for each in rows), footer])

    def _rewrite(self, lines: list[str]) -> None:
        if lines == self._lines:
            return
        back = UP.format(len(self._lines)) if self._lines else ""
        self._out.write(back + "".join(f"{line}{ERASE_LINE}\n" for line in lines) + ERASE_BELOW)
        self._out.flush()
        self._lines = lines

    def _append(self, lines: list[str]) -> None:
        for line in [line for line in lines if line not in self._lines]:
            self._out.write(f"{line}\n")
        self._out.flush()
        self._lines = lines
