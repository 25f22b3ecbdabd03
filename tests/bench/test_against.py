"""The comparison with another operator."""

from pathlib import Path

import pytest

from bench import against
from bench.against import Comparison, Measured, Moment, is_quiet
from bench.candidates import Candidate, InvalidCandidate, parse, this_operator
from bench.cluster import CRDS, bench_cluster
from coder_k8s.dev.processes import ProcessFailed


def test_a_command_line_contains_the_kubeconfig_and_equals_signs(tmp_path: Path) -> None:
    found = parse(f"other={tmp_path}=manager --kubeconfig={{kubeconfig}} --name 'two words'")
    assert found == Candidate("other", tmp_path, ("manager", "--kubeconfig={kubeconfig}", "--name", "two words"))


@pytest.mark.parametrize("text", ["other", "other=config/crd", "=config/crd=manager", "other=config/crd= "])
def test_an_incomplete_argument_is_rejected(text: str) -> None:
    with pytest.raises(InvalidCandidate, match="expected NAME=CRDS=COMMAND"):
        parse(text)


def test_missing_crds_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidCandidate, match="there are no CRDs at"):
        parse(f"other={tmp_path / 'absent'}=manager")


@pytest.mark.parametrize(
    ("seen", "quiet"),
    [
        ([], False),
        ([Moment(0, 1.0, 5), Moment(4, 1.0, 5)], False),
        ([Moment(0, 1.0, 5), Moment(5, 1.0, 6)], False),
        ([Moment(0, 1.0, 5), Moment(5, 1.5, 5)], False),
        ([Moment(0, 1.0, 5), Moment(5, 1.2, 5)], True),
    ],
)
def test_quiet(seen: list[Moment], quiet: bool) -> None:
    assert is_quiet(seen, 5) == quiet


def test_the_table_has_ratios() -> None:
    ours = Measured(
        start_cpu=0.3,
        idle=40,
        wall=2,
        cpu=0.5,
        server_cpu=3,
        writes=600,
        resident=50,
        restart_cpu=0.4,
        restart_writes=0,
    )
    other = Measured(
        start_cpu=0.3,
        idle=80,
        wall=4,
        cpu=2.0,
        server_cpu=4,
        writes=800,
        resident=99,
        restart_cpu=0,
        restart_writes=101,
    )
    text = against.report([Comparison(number=100, ours=ours, other=other)], "this", "that")
    assert "| metric | control planes | this | that | ratio |" in text
    assert "| operator CPU per object, ms | 100 | 5.00 | 20.00 | 0.25 |" in text
    assert "| writes per object | 100 | 6.00 | 8.00 | 0.75 |" in text
    assert "| writes after a restart | 100 | 0 | 101 | 0.00 |" in text
    assert "| CPU to start, s | 100 | 0.30 | 0.30 | 1.00 |" in text
    assert "| CPU to restart, s | 100 | 0.40 | 0.00 | - |" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_an_operator_is_measured_by_what_it_writes() -> None:
    """The other operator is this one, with another command line."""
    ours = this_operator()
    other = parse(f"other={CRDS}={' '.join(ours.command)} --workers=2")
    async with bench_cluster(other.crds) as here:
        found = await against.measure(here, other, 3, window=2)
        with (
            Candidate("broken", CRDS, ("false",)).running(here) as process,
            pytest.raises(ProcessFailed, match="false exited with 1"),
        ):
            await against.settled(here, process, window=2)
    assert (found.writes, found.restart_writes) == (3 * 6, 0)
    assert found.wall > 0
    assert 0 < found.idle <= found.resident * 1.1
    assert found.server_cpu > 0
