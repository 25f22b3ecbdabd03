"""One process of a container, with its log and termination message."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from coder_k8s.dev.processes import Process

MESSAGE_LIMIT = 4096
LOG_LIMIT = 2048
LOG_LINES = 80
"""Limits of a termination message, and of one that is the end of the log."""


class Instance:
    """Runs a program in a folder until it exits; the log is appended to."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path, log: Path, message: Path) -> None:
        self._process = Process(command, log, env=env, cwd=folder)
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        self._message = message
        self._exited = asyncio.Event()

    def start(self) -> None:
        self._message.unlink(missing_ok=True)
        self._process.start()
        # The descriptor of a process becomes readable when the process exits.
        exited = os.pidfd_open(self._process.pid)
        loop = asyncio.get_running_loop()

        def on_exit() -> None:
            loop.remove_reader(exited)
            os.close(exited)
            self._process.child.wait()
            self.kill()
            self._exited.set()

        loop.add_reader(exited, on_exit)

    async def wait(self) -> int:
        """Wait for the exit, and return the exit code: 128 and the number of the signal that ended the process."""
        await self._exited.wait()
        code = self._process.child.returncode
        return code if code >= 0 else 128 - code

    async def stop(self, grace: float) -> None:
        """Send SIGTERM, send SIGKILL after the grace period, and wait for the exit."""
        if not self._exited.is_set():
            self._process.child.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._exited.wait()
        self.kill()
        await self._exited.wait()

    def kill(self) -> None:
        """Kill the process and those that it has started, as the end of a container does."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def message(self, policy: str, exit_code: int) -> str:
        """Return the termination message."""
        written = _read(self._message, 0, MESSAGE_LIMIT)
        if written or policy != "FallbackToLogsOnError" or exit_code == 0:
            return written
        return log_message(_read(self._log, self._log_start, 0))


def log_message(log: str) -> str:
    """Return the end of a log as termination message, which has limits for lines and bytes."""
    last_lines = "".join(log.splitlines(keepends=True)[-LOG_LINES:])
    return last_lines.encode()[-LOG_LIMIT:].decode(errors="ignore")


def _read(path: Path, start: int, limit: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(limit or -1).decode(errors="replace")
    except OSError:
        return ""
