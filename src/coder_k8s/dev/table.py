"""The objects of our kinds as a table that changes in place on a terminal, and as lines elsewhere."""

from collections.abc import Sequence
from typing import NamedTuple, TextIO

from coder_k8s.api import CoderControlPlane, CoderObject, CoderProvisioner
from coder_k8s.kube.conditions import find

UP, ERASE_LINE, ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\x1b[J"
COLOURS = {"True": "\x1b[32m", "False": "\x1b[31m", "Unknown": "\x1b[33m"}
PLAIN = "\x1b[0m"


class Row(NamedTuple):
    """One object, in words."""

    kind: str
    name: str
    phase: str
    ready: str
    reason: str
    replicas: str
    daemons: str
    license: str
    message: str

    @property
    def is_ready(self) -> bool:
        return self.ready == "True"


HEADER = Row("KIND", "NAME", "PHASE", "READY", "REASON", "REPLICAS", "DAEMONS", "LICENSE", "")


def row(item: CoderObject) -> Row:
    """What is told of an object; what was told of an earlier generation no longer counts."""
    status = item.status
    told = find(status.conditions, "Ready")
    current = told is not None and told.observed_generation == item.metadata.generation
    return Row(
        kind=type(item).__name__,
        name=str(item.key),
        phase=status.phase or "-",
        ready=told.status if told and current else "Unknown",
        reason=told.reason if told and current else "NotSeen",
        replicas=f"{status.ready_replicas}/{getattr(item.spec, 'replicas', 0)}",
        daemons=_daemons(item) if isinstance(item, CoderProvisioner) else "-",
        license=(item.status.license_tier if isinstance(item, CoderControlPlane) else "") or "-",
        message=told.message if told and current and told.status != "True" else "",
    )


def _daemons(item: CoderProvisioner) -> str:
    return f"{item.status.daemons.connected if item.status.daemons else 0}/{item.spec.replicas}"


def render(rows: Sequence[Row], width: int = 0, *, colour: bool = False) -> list[str]:
    """The table, each line cut to a width if there is one."""
    lines = [HEADER, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    rendered = []
    for line in lines:
        text = "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        text = text[: width or None]
        if colour and line.ready in COLOURS:
            cell = f"  {line.ready.ljust(widths[3])}  "
            text = text.replace(cell, f"{COLOURS[line.ready]}{cell}{PLAIN}", 1)
        rendered.append(text)
    return rendered


class Screen:
    """Shows rows and what is to be said of all of them, whenever that changed."""

    def __init__(self, out: TextIO, width: int) -> None:
        self._out = out
        self._width = width
        self._lines: list[str] = []

    def show(self, rows: Sequence[Row], footer: str) -> None:
        if self._out.isatty():
            self._rewrite([*render(rows, self._width, colour=True), "", footer[: self._width]])
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
