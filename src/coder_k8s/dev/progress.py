"""What `coder-k8s dev` says while it starts: one line per step, with the time it took."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

ERASE = "\r\x1b[K"
TICK = 0.2


class Step:
    """A step that is under way; what it says last stands in its line."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.name = name
        self.detail = ""
        self._say = say

    def say(self, detail: str) -> None:
        self.detail = detail
        self._say(detail)


class Progress:
    """Writes a line when a step ends; on a terminal, that line counts the seconds until then."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.terminal = out.isatty()
        self._out = out
        self._clock = clock
        self._began = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the first step."""
        return self._clock() - self._began

    def say(self, text: str = "") -> None:
        print(text, file=self._out, flush=True)

    @contextmanager
    def step(self, name: str, *, talkative: bool = False) -> Iterator[Step]:
        """A step; a `talkative` one says something if it takes long, which is a line too where none can count."""
        began, ended = self._clock(), threading.Event()
        step = Step(name, self.say if talkative and not self.terminal else lambda _: None)

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
            if mark == "x" or not talkative or (self.terminal and step.detail):
                self.say(line(mark))
