"""Draw the terminal output of a command as SVG: `python docs/picture.py assets/status.svg coder-k8s status`.

The command runs in a pseudo-terminal. With `--until`, the picture is taken when that text appears, and the command is
stopped.
"""

import argparse
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

COLUMNS, ROWS = 110, 60
SIZE, ADVANCE, LEADING, MARGIN = 13, 7.83, 19, 18
FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
COLORS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea"}
PHRASE = re.compile(r"\S+(?: \S+)*")
SEQUENCE = re.compile(r"\x1b\[(?P<arguments>[0-9;?]*)(?P<kind>[A-Za-z])|(?P<text>[^\x1b])", re.DOTALL)


class Cell(NamedTuple):
    """A character and its style."""

    text: str = " "
    style: tuple[str, ...] = ()


class Screen:
    """A minimal terminal: lines, colors, and cursor movements."""

    def __init__(self) -> None:
        self.lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._style: tuple[str, ...] = ()

    def feed(self, text: str) -> None:
        for found in SEQUENCE.finditer(text):
            if found["text"]:
                self._put(found["text"])
            else:
                self._control(found["kind"], found["arguments"])

    def __str__(self) -> str:
        return "\n".join("".join(cell.text for cell in line).rstrip() for line in self.lines).strip("\n")

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row += 1
            self.lines += [[] for _ in range(self._row + 1 - len(self.lines))]
        elif character.isprintable():
            line = self.lines[self._row]
            line += [Cell()] * (self._column + 1 - len(line))
            line[self._column] = Cell(character, self._style)
            self._column += 1

    def _control(self, kind: str, arguments: str) -> None:
        if kind == "A":
            self._row = max(0, self._row - int(arguments or 1))
        elif kind in "KJ":
            del self.lines[self._row][self._column :]
            if kind == "J":
                del self.lines[self._row + 1 :]
        elif kind == "m":
            codes = [code for code in arguments.split(";") if code.strip("0")]
            self._style = (*self._style, *codes) if codes else ()


def run(command: list[str], until: str) -> Screen:
    """Return the screen of a command when it exits, or when a text appears."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # do not let the command inherit SIG_IGN
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)  # noqa: S603
    os.close(child)
    screen = Screen()
    for text in _read(parent):
        screen.feed(text)
        if until and until in str(screen):
            process.send_signal(signal.SIGINT)
            break
    for _ in _read(parent):
        pass
    if process.wait() != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}:\n{screen}")
    if until not in str(screen):
        sys.exit(f"{until!r} did not appear:\n{screen}")
    return screen


def _read(terminal: int) -> Iterator[str]:
    try:
        while data := os.read(terminal, 65536):
            yield data.decode(errors="replace")
    except OSError:  # Linux reports a closed terminal as an error
        return


def draw(screen: Screen, prompt: str) -> str:
    lines = [[Cell(character, ("1",)) for character in f"$ {prompt}"], [], *screen.lines]
    while not any(cell.text.strip() for cell in lines[-1]):
        lines.pop()
    width = 2 * MARGIN + ADVANCE * max(len(line) for line in lines)
    height = 2 * MARGIN + LEADING * len(lines)
    texts = [
        f'<text x="{MARGIN}" y="{MARGIN + LEADING * (row + 0.75):.1f}">{_spans(line)}</text>'
        for row, line in enumerate(lines)
        if line
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}">',
            f"<title>{escape(prompt)}</title>",
            '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
            f'<g font-family="{FONTS}" font-size="{SIZE}" fill="#e6edf3">',
            *texts,
            "</g>",
            "</svg>\n",
        ]
    )


def _spans(line: list[Cell]) -> str:
    """Return spans of words with equal style. Each column has its own position, independent of the font."""
    spans, begin = [], 0
    for end in range(1, len(line) + 1):
        if end == len(line) or line[end].style != line[begin].style:
            text = "".join(cell.text for cell in line[begin:end])
            spans += [_span(found[0], begin + found.start(), line[begin].style) for found in PHRASE.finditer(text)]
            begin = end
    return "".join(spans)


def _span(text: str, column: int, style: tuple[str, ...]) -> str:
    color = next((COLORS[code] for code in style if code in COLORS), "")
    attributes = [f'fill="{color}"'] if color else ['fill="#8b949e"'] if "2" in style else []
    attributes += ['font-weight="bold"'] if "1" in style else []
    place = f'x="{MARGIN + ADVANCE * column:.1f}" textLength="{ADVANCE * len(text):.1f}"'
    return f"<tspan {' '.join([place, *attributes])}>{escape(text)}</tspan>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--until", default="", help="take the picture when this text appears")
    parser.add_argument("--prompt", help="text after the prompt; defaults to the command")
    parser.add_argument("picture", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    screen = run(arguments.command, arguments.until)
    arguments.picture.write_text(draw(screen, arguments.prompt or " ".join(arguments.command)))


if __name__ == "__main__":
    main()
