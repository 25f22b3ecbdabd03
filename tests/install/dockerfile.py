"""Parses a Dockerfile, and runs its build stage in plain folders, without a container engine."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Step = tuple[str, str]
"""An instruction and its arguments."""


class StepFailed(Exception):
    """A build step failed; the message is its output."""


@dataclass
class Stage:
    """The steps from one FROM to the next."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [text for name, text in self.steps if name == instruction]


def read(path: Path) -> list[Stage]:
    """The stages of a Dockerfile."""
    stages: list[Stage] = []
    for name, text in _instructions(path.read_text()):
        if name == "FROM":
            base, _, stage = text.partition(" AS ")
            stages.append(Stage(base, stage))
        elif stages:
            stages[-1].steps.append((name, text))
    return stages


def build(stage: Stage, context: Path, work: Path, python: Path, arguments: dict[str, str]) -> None:
    """Run a stage: `work` is its working directory, `python` the folder with the programs of its base image."""
    environment = os.environ | {"PATH": f"{python}:{os.defpath}", "HOME": str(work)}
    work.mkdir()
    for instruction, text in stage.steps:
        if instruction == "ARG":
            name, _, default = text.partition("=")
            environment[name] = arguments.get(name, default)
        elif instruction == "ENV":
            environment |= dict(pair.split("=", 1) for pair in shlex.split(text))
        elif instruction == "COPY":
            _copy(context, work, shlex.split(text))
        elif instruction == "RUN":
            command = ["/bin/sh", "-c", text]
            done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise StepFailed(f"{text}\n{done.stdout}{done.stderr}")
        else:
            assert instruction == "WORKDIR", instruction


def _instructions(text: str) -> Iterator[Step]:
    joined = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    for line in joined.splitlines():
        if line.strip():
            instruction, _, rest = line.partition(" ")
            yield instruction, rest.strip()


def _copy(context: Path, work: Path, words: list[str]) -> None:
    *sources, target = words
    for source in (context / name for name in sources):
        if source.is_dir():
            shutil.copytree(source, work / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder = work / target
            folder.mkdir(exist_ok=True)
            shutil.copy(source, folder)
