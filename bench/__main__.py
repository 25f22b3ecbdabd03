"""Runs the measurements: `python -m bench [--only NAME,...] [--report]`."""

import argparse
import asyncio
import os
import platform
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.place import say
from bench.report import Section, page
from bench.scenarios import coderd, converge, idle, noise, repair, restart, startup, storm

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "performance"
NUMBERS = (100, 300, 1000, 3000)


@dataclass(frozen=True)
class Scenario:
    """Something to measure, each run for itself."""

    figures: type[Any]
    runs: Sequence[Callable[[], Awaitable[Any]]]
    tell: Callable[[Sequence[Any]], Section]


SCENARIOS = {
    "converge": Scenario(converge.Figures, [partial(converge.run, number) for number in NUMBERS], converge.tell),
    "restart": Scenario(restart.Figures, [partial(restart.run, number) for number in NUMBERS], restart.tell),
    "repair": Scenario(repair.Figures, [partial(repair.run, number) for number in NUMBERS[:3]], repair.tell),
    "idle": Scenario(
        idle.Figures,
        [partial(idle.run, number, seconds) for number, seconds in ((100, 60), (300, 60), (1000, 300))],
        idle.tell,
    ),
    "noise": Scenario(noise.Figures, [partial(noise.run, 300)], noise.tell),
    "storm": Scenario(storm.Figures, [partial(storm.run, number) for number in NUMBERS[:3]], storm.tell),
    "coderd": Scenario(coderd.Figures, [coderd.run], coderd.tell),
    "startup": Scenario(startup.Figures, [startup.run], startup.tell),
}


def measure(name: str, scenario: Scenario) -> None:
    """Run a scenario and keep what it found so far after every run."""
    found: list[Any] = []
    for number, run in enumerate(scenario.runs, 1):
        say(f"{name}, {number} of {len(scenario.runs)}")
        found.append(asyncio.run(run()))  # type: ignore[arg-type]
        result = {"measured": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "runs": found}
        (RESULTS / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


def write_page() -> None:
    """Put all results there are into words."""
    sections, machines = [], []
    for name, scenario in SCENARIOS.items():
        file = RESULTS / f"{name}.json"
        if file.exists():
            result = msgspec.json.decode(file.read_bytes())
            machines.append(f"{result['machine']}, {result['measured']}")
            sections.append(scenario.tell(msgspec.convert(result["runs"], list[scenario.figures])))  # type: ignore[name-defined]
    PLOTS.mkdir(exist_ok=True)
    for section in sections:
        for plot, svg in section.plots.items():
            (PLOTS / f"{plot}.svg").write_text(svg)
    PAGE.write_text(page("; ".join(dict.fromkeys(machines)), sections))


def machine() -> str:
    processor = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    name = processor[1] if processor else platform.machine()
    return f"{name}, {os.cpu_count()} cores, {memory:.0f} GB of memory, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the operator and write docs/performance.md.")
    names = ",".join(SCENARIOS)
    parser.add_argument("--only", default=names, metavar="NAME,...", help=f"what to measure, of {names}")
    parser.add_argument("--report", action="store_true", help="measure nothing: put the results there are into words")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(SCENARIOS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {names}")
    RESULTS.mkdir(exist_ok=True)
    for name in [] if given.report else chosen:
        measure(name, SCENARIOS[name])
        write_page()
    write_page()


if __name__ == "__main__":
    main()
