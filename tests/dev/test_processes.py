import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coder_k8s.dev.processes import LAUNCHER, PORTS, Process, ProcessFailed, free_port, poll
from tests.support import alive

# Starts a child as a test would, prints its pid, and waits to be killed.
PARENT = """
import signal, sys, time
from pathlib import Path
from coder_k8s.dev.processes import Process
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
child = Process(["sleep", "60"], Path(sys.argv[1]))
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_stops_with_its_parent(log: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert poll(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", timeout=10)
        parent.send_signal(number)
    assert poll(lambda: not alive(child), timeout=5)


def test_a_child_without_a_parent_does_not_start() -> None:
    someone_else = str(os.getppid())
    command = [sys.executable, "-c", LAUNCHER, someone_else, "echo", "begun"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the parent exited" in done.stderr


def test_only_the_main_thread_can_start_a_process(log: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            Process(["true"], log).start()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_an_early_exit_is_reported_with_the_log(log: Path) -> None:
    process = Process(["sh", "-c", "echo wrong flag >&2; exit 3"], log, ready=lambda: False)
    process.start()
    with pytest.raises(ProcessFailed, match=r"(?s)sh exited with 3; .*wrong flag"):
        process.wait_ready(timeout=10)


def test_program_that_does_not_exist_is_reported(log: Path) -> None:
    process = Process(["/nowhere/program"], log, ready=lambda: False)
    process.start()
    with pytest.raises(ProcessFailed, match="No such file or directory"):
        process.wait_ready(timeout=10)


def test_never_ready_is_reported_with_the_log(log: Path) -> None:
    process = Process(["sh", "-c", "echo loading; exec sleep 60"], log, ready=lambda: False)
    process.start()
    assert poll(lambda: "loading" in log.read_text(), timeout=10)
    with pytest.raises(ProcessFailed, match=r"(?s)sh was not ready within 0\.1 s; .*loading"):
        process.wait_ready(timeout=0.1)
    process.kill()


def test_environment_and_readiness(log: Path) -> None:
    process = Process(
        ["sh", "-c", "echo $GREETING; exec sleep 60"],
        log,
        ready=lambda: log.read_text() == "hello\n",
        env=os.environ | {"GREETING": "hello"},
    )
    process.start()
    process.wait_ready(timeout=10)
    process.kill()
    assert not process.running


def test_stop_returns_the_exit_code(log: Path) -> None:
    process = Process(["sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"], log)
    process.start()
    assert poll(lambda: log.read_text() == "up\n", timeout=10)
    assert process.stop() == 7


def test_stop_kills_after_the_grace_period(log: Path) -> None:
    process = Process(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"], log)
    process.start()
    assert poll(lambda: log.read_text() == "up\n", timeout=10)
    assert process.stop(grace=0.1) == -signal.SIGKILL


def test_a_suspended_process_continues_when_resumed(log: Path) -> None:
    process = Process(["sh", "-c", "while :; do echo tick; sleep 0.01; done"], log)
    process.start()
    assert poll(lambda: "tick" in log.read_text(), timeout=10)
    process.pause()
    assert poll(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T", timeout=5)
    frozen = log.stat().st_size
    process.resume()
    assert poll(lambda: log.stat().st_size > frozen, timeout=5)
    process.kill()


def test_a_port_in_use_is_skipped(listener: socket.socket) -> None:
    """Nor is a port returned again before its server could start."""
    taken, reserved = listener.getsockname()[1], free_port()
    choices = iter([taken, reserved, *reversed(PORTS)])
    assert free_port(choose=lambda _: next(choices)) not in {taken, reserved}
