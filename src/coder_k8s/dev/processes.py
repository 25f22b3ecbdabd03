"""Child processes that stop when this process exits for any reason.

With `PR_SET_PDEATHSIG`, Linux sends a child a signal when the thread that started it exits. The child has to set this
itself, between fork and exec. `preexec_fn` can deadlock in a process with threads, so a small launcher sets it and then
executes the program. Because Linux uses the *thread*, a process can be started only from the main thread.
"""

import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

LAUNCHER = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
    sys.exit("cannot set PR_SET_PDEATHSIG")
if os.getppid() != int(parent):
    sys.exit("the parent exited before its child started")
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job of a shell ignores it, and its children inherit that
os.execvp(command[0], command)
"""

# Below the range of ephemeral ports: otherwise a client that retries to connect to a stopped server could get the same
# port as source port, connect to itself and block the port.
PORTS = range(15000, 32000)
RESERVED_SECONDS = 300


class ProcessFailed(Exception):
    """A process exited, or was not ready in time; the message contains the end of its log."""


class Process:
    """A program with its log and a readiness check."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        ready: Callable[[], bool] = lambda: True,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command = [str(word) for word in command]
        self.name = Path(self.command[0]).name
        self.log = log
        self.ready = ready
        self.env = env
        self.cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program. Must be called in the main thread, because the child stops with its thread."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"start {self.name} from the main thread: a child stops with the thread that started it")
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*launcher, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,  # Ctrl-C must not stop the child before this process has cleaned up
            )

    @property
    def child(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise ProcessFailed(f"{self.name} was not started")
        return self._child

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def wait_ready(self, timeout: float = 60) -> None:
        """Block until the program is ready. Call it in a thread from asyncio code."""
        ready = poll(lambda: not self.running or self.ready(), timeout)
        if not self.running:
            raise ProcessFailed(f"{self.name} exited with {self.child.returncode}; {tail(self.log)}")
        if not ready:
            raise ProcessFailed(f"{self.name} was not ready within {timeout:g} s; {tail(self.log)}")

    def stop(self, grace: float = 10) -> int:
        """Send SIGTERM, send SIGKILL after `grace` seconds, and return the exit code."""
        self.child.terminate()
        try:
            return self.child.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.child.returncode

    def kill(self) -> None:
        """Send SIGKILL, if the program is running."""
        if self.running:
            self.child.kill()
            self.child.wait()

    def pause(self) -> None:
        """Suspend the program with SIGSTOP: its sockets stay open but it does not respond."""
        self.child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.send_signal(signal.SIGCONT)


def poll(check: Callable[[], bool], timeout: float, interval: float = 0.05) -> bool:
    """Return whether `check` becomes true within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def tail(log: Path, lines: int = 20) -> str:
    """Return the end of a log for an error message."""
    text = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"the end of {log}:", *text[-lines:]]) if text else f"{log} is empty"


def answer(port: int, path: str) -> str | None:
    """Return the body of a local server's response, or `None` if the request fails."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return text if response.status == HTTPStatus.OK else None


def free_port(choose: Callable[[range], int] = secrets.choice) -> int:
    """Return a free port of the loopback address, which no other process gets until its server has started."""
    while not (is_free(port := choose(PORTS)) and reserve(port)):
        pass
    return port


def reserve(port: int) -> bool:
    """Reserve a port for some minutes; return False if it is reserved already."""
    folder = Path(tempfile.gettempdir(), f"ports-coder-k8s-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    file = folder / str(port)
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        if time.time() - file.stat().st_mtime < RESERVED_SECONDS:
            return False
        file.touch()
    return True


def is_free(port: int) -> bool:
    """Return whether a port of the loopback address is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
