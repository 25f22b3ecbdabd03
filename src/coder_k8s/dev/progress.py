"""The output of `coder-k8s dev` while it starts: one line per step, with its duration."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

ERASE = "\r\x1b[K"
TICK = 0.2


class Step:
    """A running step; its line shows the last detail."""

    def __init__(self, name: str, write: Callable[[str], None]) -> None:
        self.name = name
        self.detail = ""
        self._write = write

    def show(self, detail: str) -> None:
        self.detail = detail
        self._write(detail)


class Progress:
    """Writes a line when a step completes; on a terminal, the line shows the elapsed seconds meanwhile."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.terminal = out.isatty()
        self._out = out
        self._clock = clock
        self._began = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the first step."""
        return self._clock() - self._began

    def write(self, text: str = "") -> None:
        print(text, file=self._out, flush=True)

    @contextmanager
    def step(self, name: str, *, verbose: bool = False) -> Iterator[Step]:
        """Run a step. A `verbose` step prints its details as lines if the output is not a terminal."""
        began, ended = self._clock(), threading.Event()
        step = Step(name, self.write if verbose and not self.terminal else lambda _: None)

        def line(mark: str) -> str:
            return f"{mark} {self._clock() - began:6.1f} s  {name:<12} {step.detail}".rstrip()

        def count() -> None:
            while not ended.wait(TICK):
                self._out.write(ERASE + line(" ")[: shutil.get_terminal_size().columns - 1])
                self._out.flush()

        counter = threading.Thread(target=count, daemon=True)
        if self.terminal:
            counter.start()
        mark = "x"
        try:
            yield step
            mark = "+"
        finally:
            ended.set()
            if self.terminal:
                counter.join()
                self._out.write(ERASE)
            if mark == "x" or not verbose or (self.terminal and step.detail):
                self.write(line(mark))
