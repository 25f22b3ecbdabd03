"""Runs `coder-k8s controller` as a process."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from coder_k8s.dev.processes import Process, tail
from tests.support import eventually

COMMAND = [sys.executable, "-m", "coder_k8s"]
ANYWHERE = "127.0.0.1:0"
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class OperatorProcess(Process):
    """An operator process, its log, probes and metrics."""

    def __init__(self, name: str, folder: Path, kubeconfig: Path, *flags: str) -> None:
        command = [*COMMAND, "controller", "--kubeconfig", str(kubeconfig)]
        command += ["--health-probe-bind-address", ANYWHERE, "--metrics-bind-address", ANYWHERE, *flags]
        super().__init__(command, folder / f"{name}.log", env=dict(os.environ))
        self.addresses: dict[str, str] = {}

    @property
    def log_entries(self) -> list[dict[str, Any]]:
        """All log entries."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def log_entry(self, message: str) -> dict[str, Any]:
        """The first log entry that contains this message; empty if there is none."""
        return next((line for line in self.log_entries if message in line["msg"]), {})

    @property
    def defects(self) -> list[str]:
        """Log lines with tracebacks or warnings of asyncio."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if "Traceback" in line or '"logger":"asyncio"' in line]

    @property
    def identity(self) -> str:
        identity: str = self.log_entry("starting")["identity"]
        return identity

    async def get(self, server: str, path: str) -> tuple[int, str]:
        """Send a request; `server` is `health` or `metrics`."""
        if server not in self.addresses:
            line = await eventually(lambda: self.log_entry(f"serving {server}"))
            self.addresses[server] = line["address"]
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"http://{self.addresses[server]}{path}") as answer,
        ):
            text = await answer.text()
            if server == "metrics":
                self.log.with_suffix(".metrics").write_text(text)  # tests/security searches it for secrets
            return answer.status, text

    async def is_ready(self) -> bool:
        return (await self.get("health", "/readyz"))[0] == 200

    async def metric(self, name: str, /, **labels: str) -> float:
        """The sum of the samples that have these labels; fails if there are none."""
        chosen = await self._samples(name, labels)
        assert chosen, f"no {name} with {labels}"
        return sum(chosen)

    async def count(self, name: str, /, **labels: str) -> float:
        """The sum of the samples that have these labels, or zero."""
        return sum(await self._samples(name, labels))

    async def writes(self) -> float:
        """The number of writes to the API server."""
        return sum([await self.count("rest_client_requests_total", method=method) for method in WRITES])

    async def _samples(self, name: str, labels: dict[str, str]) -> list[float]:
        _, text = await self.get("metrics", "/metrics")
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]

    async def leads(self) -> bool:
        return await self.metric("leader_election_master_status") == 1

    async def exit_code(self, within: float) -> int:
        """Wait until the process ends, and return its exit code."""
        try:
            return await asyncio.to_thread(self.child.wait, within)
        except Exception as error:
            raise AssertionError(f"still running after {within:g} s; {tail(self.log)}") from error


Start = Callable[..., OperatorProcess]
