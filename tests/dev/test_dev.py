"""`coder-k8s dev` as a process. Each start takes seconds, so each test checks several things."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import poll

pytestmark = pytest.mark.slow

TIMEOUT = 180.0
SAMPLES = ("CoderControlPlane  coder/coder", "CoderProvisioner  coder/gpu", "CoderWorkspaceProxy  coder/sydney")


class Run:
    """One `coder-k8s dev` process and its output."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.folder = folder
        self._output = folder.with_suffix(".output")
        programs = os.environ["PATH"].split(os.pathsep)
        path = os.pathsep.join(each for each in programs if not (Path(each) / "coder").exists())
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coder_k8s", "dev", "--folder", str(folder), *options],
                env=os.environ | {"PATH": path} | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def words(self) -> list[str]:
        """The lines of the output, with uniform spacing."""
        return ["  ".join(line.split()) for line in self.output.splitlines()]

    def wait_for(self, words: str) -> None:
        assert poll(lambda: words in self.output or self.process.poll() is not None, TIMEOUT), self.output
        assert words in self.output

    def end(self, *number: signal.Signals) -> int:
        """Send a signal, if one is given, wait, and check that no child process is left."""
        for each in number:
            self.process.send_signal(each)
        code = self.process.wait(TIMEOUT)
        assert poll(lambda: not running_in(self.folder), 30), running_in(self.folder)
        return code

    def get(self, path: str) -> Any:
        """Return an object of its cluster."""
        port = json.loads((self.folder / "memory.json").read_text())["apiserver"]
        status, body = ClusterAccess(self.folder, port).request("GET", path)
        assert status == 200, body
        return json.loads(body)

    def status(self) -> str:
        kubeconfig = str(self.folder / "admin.kubeconfig")
        command = [sys.executable, "-m", "coder_k8s", "status", "-A", "--kubeconfig", kubeconfig]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def running_in(folder: Path) -> list[str]:
    """Return the commands of processes that use a folder or its links, by arguments or working directory."""
    places = [str(folder), *(str(path.resolve()) for path in folder.glob("postgres"))]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text().replace("\0", " ")
            at = str((process / "cwd").readlink())
        except OSError:
            continue
        if any(place in command or at.startswith(place) for place in places):
            found.append(command)
    return found


@pytest.fixture(scope="module")
def folders() -> Iterator[Path]:
    """A folder for all runs of this module, deleted with the folders that they link to."""
    with tempfile.TemporaryDirectory(prefix="scratch-") as folder:
        yield Path(folder)
        for link in Path(folder).glob("*/postgres"):
            shutil.rmtree(link.resolve())


@pytest.fixture(scope="module")
def coder(folders: Path) -> str:
    """A fake `coder` program."""
    program = folders / "bin" / "coder"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n" + (Path(__file__).parent / "fake_coder.py").read_text())
    program.chmod(0o755)
    return str(program)


@pytest.mark.timeout(400)
def test_state_is_kept_and_two_can_run_at_once(folders: Path, coder: str) -> None:
    first = Run(folders / "one", PATH=with_coder(coder))
    other = Run(folders / "two", f"--coder={coder}", CODER_URL="x")
    first.wait_for("all Ready")
    assert "SIMULATOR" in first.output
    assert str(first.folder / "admin.kubeconfig") in first.output
    assert "kubectl get coder -A" in first.output
    assert "operator coder-system  running  " in first.status()
    events = first.get("/apis/events.k8s.io/v1/namespaces/coder/events")["items"]
    assert {event["reason"] for event in events} >= {"OperatorTokenIssued", "LicenseApplied", "Ready"}
    assert [event["note"] for event in events if event["type"] == "Warning"] == [], "the first run is clean"

    other.wait_for("all Ready")
    assert "REAL, pods run as processes" in other.output
    assert "SIMULATOR" not in other.output
    assert "CoderProvisioner" not in other.output, "without a license there can be none"
    called = [json.loads(path.read_text()) for path in Path(coder).parent.glob("*.json")]
    assert len(called) == 2
    for each in called:
        assert_called_as_server(each, other)
    addresses = {each["arguments"][1] for each in called}
    assert len(addresses) == 2, "each pod has its own address"
    assert other.end(signal.SIGINT) == 0
    assert "Traceback" not in other.output

    taken = Run(folders / "one")
    assert taken.process.wait(TIMEOUT) == 1
    assert f"another `coder-k8s dev` uses {folders / 'one'}" in taken.output

    keys = json.loads((folders / "one" / "simulator.json").read_text())
    assert first.end(signal.SIGKILL) == -signal.SIGKILL

    again = Run(folders / "one", "--check")
    assert again.end() == 0, again.output
    for sample in SAMPLES:
        assert any(line.startswith(f"{sample}  True") for line in again.words), again.output
    assert json.loads((folders / "one" / "simulator.json").read_text()) == keys, "another key was created"


def with_coder(coder: str) -> str:
    return os.pathsep.join([str(Path(coder).parent), os.environ["PATH"]])


@pytest.mark.timeout(400)
def test_check_fails_if_a_sample_is_not_ready_in_time(folders: Path, coder: str) -> None:
    run = Run(folders / "late", "--fresh", "--check", "--timeout=0s", f"--coder={coder}")
    assert run.end() == 1
    assert "CoderControlPlane coder/coder is not Ready: " in run.output


def assert_called_as_server(called: dict[str, Any], run: Run) -> None:
    ports = json.loads((run.folder / "memory.json").read_text())
    settings = called["settings"]
    command, address = called["arguments"]
    assert command == "server"
    assert re.fullmatch(r"--http-address=127\.\d+\.\d+\.\d+:8080", address)
    assert settings["CODER_ACCESS_URL"] == f"http://127.0.0.1:{ports['coderd']}"
    assert f"@127.0.0.1:{ports['postgres']}/coder" in settings["CODER_PG_CONNECTION_URL"]
    assert settings["CODER_TELEMETRY_ENABLE"] == "false"
    assert "CODER_URL" not in settings, "it is for another Coder"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("/nowhere/coder", "Error: /nowhere/coder is not a program: use the path of `coder`, build, or build:2.36.1"),
        (sys.executable, "is not Coder: `coder version --output json` shows no version"),
        ("build:2.36", "Error: the version of Coder must be complete, such as 2.36.1, not 2.36"),
    ],
)
def test_what_is_not_coder_is_one_line(folders: Path, source: str, error: str) -> None:
    run = Run(folders / "none", f"--coder={source}")
    assert run.process.wait(TIMEOUT) == 1
    [line] = run.output.splitlines()
    assert error in line


@pytest.mark.timeout(400)
def test_without_go_one_line_says_so(folders: Path) -> None:
    run = Run(folders / "none", "--coder=build:2.0.0", PATH="/nowhere")
    assert run.end() == 1
    assert run.output.splitlines()[-1].startswith("Error: coder 2.0.0 is missing. Put Go on PATH")
    assert "Traceback" not in run.output


@pytest.mark.coder
@pytest.mark.timeout(400)
def test_a_build_of_coder_runs_and_starts_again(folders: Path) -> None:
    first = Run(folders / "real", "--check", "--coder=build")
    assert first.end() == 0, first.output
    assert any(line.startswith("CoderControlPlane  coder/coder  True") for line in first.words), first.output

    again = Run(folders / "real", "--coder=build")
    again.wait_for("all Ready")
    assert "curl http://127.0.0.1:" in again.output
    pods = again.get("/api/v1/namespaces/coder/pods")["items"]
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [1, 1], (
        "the pods of the first run"
    )
    assert again.end(signal.SIGTERM) == 0
    assert "Traceback" not in again.output


@pytest.mark.timeout(400)
def test_it_can_be_stopped_while_it_starts(folders: Path) -> None:
    run = Run(folders / "three")
    run.wait_for("PostgreSQL")
    assert run.end(signal.SIGTERM) == 0
    assert "Traceback" not in run.output
