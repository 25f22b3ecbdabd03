"""What the simulation promises: no build is lost, and no scheduled job is later than `wakeInterval`."""

from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from coder_k8s.cli import main
from coder_k8s.console.commands.simulate import NAMES
from coder_k8s.simulation.run import SCALERS, simulate
from coder_k8s.simulation.traces import TRACES, InvalidTrace, read_csv

WAKE_INTERVAL = 600.0
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(1, 10))])
def test_the_operator_loses_no_build_and_is_not_late(name: str, seed: int) -> None:
    trace = TRACES[name](Random(f"{name} {seed}"))  # noqa: S311 - the same in every run
    result = simulate(trace, SCALERS["coder-k8s"](trace), seed)
    assert (result.lost, result.never, len(result.waits)) == (0, 0, len(trace.jobs))
    assert max(result.late, default=0.0) <= WAKE_INTERVAL


def test_the_command_prints_a_table_and_draws_a_chart(tmp_path: Path) -> None:
    chart = tmp_path / "night.svg"
    found = CliRunner().invoke(main, ["simulate", "--trace", "night", "--seeds", "1", "--svg", str(chart)])
    assert found.exit_code == 0, found.output
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.output.splitlines()]
    assert header[:4] == ["trace", "replicas by", "wait p50", "p95"]
    assert [row[1] for row in rows] == list(SCALERS)
    keda, own = rows[2], rows[3]
    assert keda[-1].endswith("never")
    assert own[6] == "0"
    lines = ElementTree.parse(chart).getroot().findall(f"{SVG}polyline")  # noqa: S314 - our own
    assert len(lines) == 2 * len(SCALERS) - 1


def test_all_traces_can_be_chosen() -> None:
    assert set(NAMES) == set(TRACES)


def test_your_own_jobs_can_be_simulated(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    rows = [f"2026-11-16T09:{minute:02}:00Z,{90 + minute},{'gpu=true' if minute % 2 else ''}" for minute in range(30)]
    file.write_text("\n".join(["created_at,duration_seconds,tags", *rows]))
    trace = read_csv(file, 7, 0)
    assert {(pool.name, pool.spec.max_replicas, pool.spec.min_replicas) for pool in trace.pools} == {
        ("untagged", 7, 0),
        ("gpu=true", 7, 0),
    }
    found = CliRunner().invoke(main, ["simulate", "--jobs", str(file), "--seeds", "1", "--max-replicas", "7"])
    assert found.exit_code == 0, found.output
    assert found.output.count("| jobs ") == len(SCALERS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no jobs"),
        ("created_at,duration_seconds\n", "has no jobs"),
        ("created_at\n2026-11-16T09:00:00Z\n", "has no column 'duration_seconds'"),
        ("created_at,duration_seconds\nyesterday,5\n", "not valid"),
        ("created_at,duration_seconds\n2026-11-16T09:00:00Z,long\n", "not valid"),
    ],
)
def test_a_file_without_jobs_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(text)
    with pytest.raises(InvalidTrace, match=message):
        read_csv(file, 5, 1)
    found = CliRunner().invoke(main, ["simulate", "--jobs", str(file)])
    assert found.exit_code == 1
    assert message.split()[-1] in found.output
