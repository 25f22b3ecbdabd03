"""A terminal for tests, which renders what is written to it."""

import io
import re


class Terminal(io.StringIO):
    """Supports only the control sequences that the project uses."""

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> list[str]:
        lines, at, column = [""], 0, 0
        for part in re.split(r"(\x1b\[\d*[AKJm]|\r|\n)", self.getvalue()):
            if part == "\r":
                column = 0
            elif part == "\n":
                at, column = at + 1, 0
                lines += [""] * (at + 1 - len(lines))
            elif part.endswith("A") and part.startswith("\x1b"):
                at -= int(part[2:-1])
            elif part == "\x1b[K":
                lines[at] = lines[at][:column]
            elif part == "\x1b[J":
                lines[at:] = [lines[at][:column]]
            elif not part.startswith("\x1b"):
                lines[at] = lines[at][:column] + part + lines[at][column + len(part) :]
                column += len(part)
        return lines
