"""Runs the measurements: `python -m bench [--only NAME,...] [--short] [--report] [--against NAME=CRDS=COMMAND]`."""

import argparse
import asyncio
import compileall
import os
import platform
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench import against, candidates
from bench.cluster import print_progress
from bench.report import Section, page
from bench.scenarios import coderd, converge, idle, noise, repair, restart, startup, storm

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs"
TRIAL = ROOT / "build" / "bench"
"""Directory for the results and the page of a short run, and the results of a comparison."""


@dataclass(frozen=True)
class Scenario:
    """A measurement with one or more runs."""

    figures: type[Any]
    section: Callable[[Sequence[Any]], Section]
    runs: Sequence[Callable[[], Awaitable[Any]]]
    short: Callable[[], Awaitable[Any]]
    """One small run, to test the scenario."""


def each(run: Callable[..., Awaitable[Any]], *numbers: int) -> list[Callable[[], Awaitable[Any]]]:
    return [partial(run, number) for number in numbers]


SCENARIOS: Mapping[str, Scenario] = {
    "converge": Scenario(
        converge.Figures, converge.section, each(converge.run, 100, 300, 1000, 3000), partial(converge.run, 20)
    ),
    "restart": Scenario(
        restart.Figures, restart.section, each(restart.run, 100, 300, 1000, 3000), partial(restart.run, 20)
    ),
    "repair": Scenario(repair.Figures, repair.section, each(repair.run, 100, 300, 1000), partial(repair.run, 20, 40)),
    "idle": Scenario(
        idle.Figures,
        idle.section,
        each(partial(idle.run, seconds=300), 100, 300, 1000),
        partial(idle.run, 20, seconds=5),
    ),
    "noise": Scenario(noise.Figures, noise.section, each(noise.run, 100, 300, 1000), partial(noise.run, 20, 100, 5)),
    "storm": Scenario(storm.Figures, storm.section, each(storm.run, 100, 300, 1000), partial(storm.run, 20, 10)),
    "coderd": Scenario(coderd.Figures, coderd.section, [coderd.run], partial(coderd.run, 2, 6, 10)),
    "startup": Scenario(startup.Figures, startup.section, [startup.run], partial(startup.run, 2)),
}
NAMES = ",".join(SCENARIOS)


def measure(name: str, runs: Sequence[Callable[[], Awaitable[Any]]], results: Path) -> None:
    """Run a scenario, and save the results after each run."""
    found: list[Any] = []
    for number, run in enumerate(runs, 1):
        print_progress(f"{name}, {number} of {len(runs)}")
        found.append(asyncio.run(run()))  # type: ignore[arg-type]
        result = {"measured": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "runs": found}
        (results / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


def pages(results: Path) -> dict[str, str]:
    """Return the page and its plots by file name, from all available results."""
    sections, machines = [], []
    for name, scenario in SCENARIOS.items():
        file = results / f"{name}.json"
        if file.exists():
            result = msgspec.json.decode(file.read_bytes())
            machines.append(f"{result['machine']}, {result['measured']}")
            sections.append(scenario.section([msgspec.convert(run, scenario.figures) for run in result["runs"]]))
    plots = {f"performance/{name}.svg": svg for section in sections for name, svg in section.plots.items()}
    return {"performance.md": page("; ".join(dict.fromkeys(machines)), sections), **plots}


def write_pages(results: Path, docs: Path) -> None:
    (docs / "performance").mkdir(parents=True, exist_ok=True)
    for name, content in pages(results).items():
        (docs / name).write_text(content)


def compare(other: candidates.Candidate, numbers: Sequence[int], results: Path) -> str:
    """Compare with another operator, save the results after each run, and return the table."""
    ours, found = candidates.this_operator(), []
    for number in numbers:
        found.append(asyncio.run(against.compare(number, ours, other)))
        (results / f"against-{other.name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return f"{machine()}\n\n{against.report(found, ours.name, other.name)}\n"


def machine() -> str:
    """Return a description of the machine."""
    processor = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    name = processor[1] if processor else platform.machine()
    return f"{name}, {os.cpu_count()} cores, {memory:.0f} GB of memory, Python {platform.python_version()}"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the operator and write docs/performance.md.")
    parser.add_argument("--only", default=NAMES, metavar="NAME,...", help=f"scenarios to run; available: {NAMES}")
    parser.add_argument(
        "--short", action="store_true", help=f"run with a few objects; results are in build/{TRIAL.name}"
    )
    parser.add_argument("--report", action="store_true", help="write the page from existing results, without measuring")
    parser.add_argument(
        "--against",
        metavar=candidates.FORMAT,
        help="instead, compare with another operator and print a table; CRDS is a file or folder, COMMAND starts the "
        f"operator, with the kubeconfig in KUBECONFIG and as {candidates.KUBECONFIG}",
    )
    parser.add_argument(
        "--numbers",
        default="100,300",
        metavar="N,...",
        help="numbers of control planes of a comparison, one run each (default: %(default)s)",
    )
    return parser


def main() -> None:
    parser = arguments()
    given = parser.parse_args()
    TRIAL.mkdir(parents=True, exist_ok=True)
    compileall.compile_dir(ROOT / "src", quiet=1)  # as in the image
    if given.against:
        try:
            other, numbers = candidates.parse(given.against), [int(number) for number in given.numbers.split(",")]
        except (candidates.InvalidCandidate, ValueError) as error:
            parser.error(str(error))
        print(compare(other, numbers, TRIAL))
        return
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(SCENARIOS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; available: {NAMES}")
    results, docs = (TRIAL, TRIAL) if given.short else (RESULTS, DOCS)
    results.mkdir(exist_ok=True)
    for name in [] if given.report else chosen:
        scenario = SCENARIOS[name]
        measure(name, [scenario.short] if given.short else scenario.runs, results)
        write_pages(results, docs)
    write_pages(results, docs)


if __name__ == "__main__":
    main()
