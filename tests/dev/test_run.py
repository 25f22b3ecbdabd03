"""The shared cluster of a test run, tested by starting pytest."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coder_k8s.dev.processes import poll
from tests.support import alive

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ALONE = pytest.param("0", marks=pytest.mark.campaign)
"""Without workers, the process that runs the tests also owns the cluster; `make test` has workers."""

PURE = """
import tempfile
from pathlib import Path

def test_no_cluster():
    folders = list(Path(tempfile.gettempdir()).glob("coder-k8s-*"))
    assert [list(folder.iterdir()) for folder in folders] == [[]]
"""

SHARING = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_uses_the_cluster(cluster, namespace, worker_id, number):
    assert cluster.request("GET", "/api/v1/namespaces/" + namespace)[0] == 200
    with open("seen", "a") as seen:
        print(worker_id, cluster.url, cluster.folder, file=seen)
"""

NEEDS_CODER = """
import pytest

@pytest.mark.coder("0.0.1")
def test_real(full_cluster):
    raise AssertionError

@pytest.mark.coder("0.0.1", "0.0.2")
def test_update(full_cluster):
    raise AssertionError

def test_pure():
    pass
"""

STUCK = """
import time
from pathlib import Path

def test_stuck(cluster):
    programs = Path("/proc").glob("[0-9]*/cmdline")
    pids = [path.parent.name for path in programs if f"={cluster.folder}" in path.read_text()]
    Path("part").write_text(" ".join(pids))
    Path("part").rename("pids")
    time.sleep(100)
"""


@pytest.fixture
def run(scratch: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """Start pytest with the conftest of this project, on a generated test file."""

    def start(tests: str, *options: str) -> subprocess.Popen[str]:
        (scratch / "test_sample.py").write_text(tests)
        alone = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
        command = [sys.executable, "-m", "pytest", *alone, *options]
        return subprocess.Popen(command, cwd=scratch, env=environment, stdout=subprocess.PIPE, text=True)

    return start


@pytest.mark.parametrize("workers", [ALONE, "1"])
def test_pure_tests_start_no_cluster(run: Callable[..., "subprocess.Popen[str]"], workers: str) -> None:
    with run(PURE, "-n", workers) as pure:
        output, _ = pure.communicate(timeout=100)
    assert pure.returncode == 0, output


@pytest.mark.parametrize("workers", [ALONE, "2"])
def test_without_a_build_of_coder_one_line_says_so(run: Callable[..., "subprocess.Popen[str]"], workers: str) -> None:
    with run(NEEDS_CODER, "-n", workers, "-q") as pure:
        output, _ = pure.communicate(timeout=100)
    assert pure.returncode == 0, output
    expected = "real Coder: 2 tests not run, because coder 0.0.1, 0.0.2 is not built (`make test-coder`)"
    assert [line for line in output.splitlines() if "oder" in line and "Warning" not in line][-1:] == [expected]
    assert "1 passed" in output


def test_workers_share_a_cluster_that_stops_with_the_run(
    run: Callable[..., "subprocess.Popen[str]"], scratch: Path
) -> None:
    with run(SHARING, "-n", "2") as sharing:
        output, _ = sharing.communicate(timeout=100)
    assert sharing.returncode == 0, output

    seen = [line.split() for line in (scratch / "seen").read_text().splitlines()]
    assert {worker for worker, *_ in seen} == {"gw0", "gw1"}
    [(_, folder)] = {(url, folder) for _, url, folder in seen}
    assert not Path(folder).exists()
    assert not any(f"={folder}" in path.read_text() for path in Path("/proc").glob("[0-9]*/cmdline"))


@pytest.mark.parametrize("workers", [ALONE, "1"])
def test_the_cluster_stops_with_a_killed_run(
    run: Callable[..., "subprocess.Popen[str]"], scratch: Path, workers: str
) -> None:
    pids = scratch / "pids"
    with run(STUCK, "-n", workers) as stuck:
        assert poll(pids.exists, timeout=60)
        stuck.kill()
        programs = [int(pid) for pid in pids.read_text().split()]
        assert len(programs) == 2
        assert poll(lambda: not any(alive(pid) for pid in programs), timeout=5)
