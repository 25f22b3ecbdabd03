"""Child processes that never outlive us.

Linux sends a child the signal of its choice (`PR_SET_PDEATHSIG`) when the thread that started it ends, however it
ends. The child has to ask for that itself, between fork and exec. `preexec_fn` may deadlock in a process with
threads, so a tiny launcher asks and then becomes the program. That the *thread* counts is why a process can be
started from the main thread alone.
"""

import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
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
    sys.exit("cannot tie this process to its parent")
if os.getppid() != int(parent):
    sys.exit("the parent ended before its child began")
os.execvp(command[0], command)
"""

# Below the range from which the kernel picks source ports: a client that keeps dialling a server that is down
# could otherwise be given that very port, connect to itself and hold it.
PORTS = range(15000, 32000)


class ProcessFailed(Exception):
    """A process ended, or did not get ready in time; the message holds the end of its log."""


class Process:
    """A program with its log and a way to tell that it is ready."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        ready: Callable[[], bool] = lambda: True,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.command = [str(word) for word in command]
        self.name = Path(self.command[0]).name
        self.log = log
        self.ready = ready
        self.env = env
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin; only from the main thread, whose end is the end of the child."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"start {self.name} from the main thread: a child dies with the thread that started it")
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*launcher, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,  # Ctrl-C is for us alone, so that we can still use the child while we stop
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
        """Block until the program is ready; asyncio code calls this in a thread."""
        ready = poll(lambda: not self.running or self.ready(), timeout)
        if not self.running:
            raise ProcessFailed(f"{self.name} ended with {self.child.returncode}; {tail(self.log)}")
        if not ready:
            raise ProcessFailed(f"{self.name} was not ready within {timeout:g} s; {tail(self.log)}")

    def stop(self, grace: float = 10) -> int:
        """Ask the program to end, insist after `grace` seconds, and return its exit code."""
        self.child.terminate()
        try:
            return self.child.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.child.returncode

    def kill(self) -> None:
        """End the program at once, as a crash would; a no-op when it has ended."""
        if self.running:
            self.child.kill()
            self.child.wait()

    def pause(self) -> None:
        """Freeze the program: its sockets stay open and nothing answers."""
        self.child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.send_signal(signal.SIGCONT)


def poll(check: Callable[[], bool], timeout: float, interval: float = 0.05) -> bool:
    """Whether `check` comes true within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, worded for an error message."""
    text = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"the end of {log}:", *text[-lines:]]) if text else f"{log} is empty"


def answer(port: int, path: str) -> str | None:
    """What a server of this machine answers, if all is well with it."""
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
    """A port of the loopback address on which nothing listens."""
    while not is_free(port := choose(PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended are in no one's way
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
