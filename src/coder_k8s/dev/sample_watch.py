"""Shows whether the samples are Ready, as a table or as an exit code."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, TextIO

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, CoderObject
from coder_k8s.kube.client import Client
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.metrics import Metrics

from . import samples
from .operator import Operator
from .processes import Process, ProcessFailed, tail
from .progress import Progress
from .table import Row, Screen, render, row

TICK = 0.5
TAGS = '{"spec":{"tags":{"hardware":"tpu"}}}'
COMMANDS = {
    CONTROL_PLANE: (
        "kubectl get coder -A",
        f"kubectl delete service -n {samples.NAMESPACE} {samples.PLANE.name}  # it is created again",
    ),
    PROVISIONER: (
        f"kubectl patch cprov -n {samples.NAMESPACE} {samples.PROVISIONED.name} --type=merge -p '{TAGS}'  # new key",
    ),
}
"""Suggested commands, by the kind that they need."""


class SampleWatch:
    """Watches all objects of the three kinds, and the processes."""

    def __init__(
        self,
        client: Client,
        wanted: Sequence[str],
        operator: Operator,
        processes: Sequence[Process],
        progress: Progress,
        out: TextIO,
    ) -> None:
        self._informers: list[Informer[CoderObject]] = [
            Informer(client, resource.kind, metrics=Metrics()) for resource in RESOURCES
        ]
        self._wanted = wanted
        self._operator = operator
        self._processes = processes
        self._progress = progress
        self._out = out
        self._changed = asyncio.Event()
        self._reconciled = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Self]:
        for informer in self._informers:
            informer.listen(lambda _: self._changed.set())
        watches = [asyncio.create_task(informer.run()) for informer in self._informers]
        try:
            for informer in self._informers:
                await informer.synced.wait()
            yield self
        finally:
            for task in watches:
                task.cancel()
            await asyncio.wait(watches)

    def rows(self) -> list[Row]:
        return [row(item) for informer in self._informers for item in sorted(informer, key=lambda item: item.key)]

    async def unready(self) -> list[str]:
        """Return the samples that are not Ready with the reason, after this operator has reconciled them."""
        if not self._reconciled:
            kinds = {each.split()[0] for each in self._wanted}
            self._reconciled = await asyncio.to_thread(self._operator.has_reconciled, len(kinds))
        found = {f"{each.kind} {each.name}": each for each in self.rows()}
        present = {name: found[name] for name in self._wanted if name in found}
        missing = [f"{name} does not exist" for name in self._wanted if name not in found]
        waiting = [
            f"{name} is not Ready: {each.reason}" + (f": {each.message}" if each.message else "")
            for name, each in present.items()
            if not each.is_ready
        ]
        pending = [] if self._reconciled else ["the operator has not reconciled every sample yet"]
        return [*missing, *waiting] or pending

    async def check(self, timeout: float) -> int:  # noqa: ASYNC109 - the timeout of --check
        """Wait until all samples are Ready, print those that are not, and return the exit code."""
        deadline = self._progress.elapsed + timeout
        while (unready := await self.unready()) and self._progress.elapsed < deadline:
            await self._tick()
        self._progress.write("\n".join(f"  {line}" for line in render(self.rows())))
        if unready:
            self._progress.write(
                "\n".join(["", f"not Ready within {timeout:g} s:", *(f"  {line}" for line in unready)])
            )
            return 1
        self._progress.write(f"\nall samples are Ready, {self._progress.elapsed:.1f} s after the start")
        return 0

    def print_commands(self, kubeconfig: Path, kubectl: Path, more: Sequence[str]) -> None:
        """Print commands to try; `more` are those of one mode."""
        setup = f"export KUBECONFIG={kubeconfig}"
        if shutil.which("kubectl") is None:
            setup += f" PATH=$PATH:{kubectl.parent}"
        self._progress.write("\nTry in another terminal:\n")
        known = {name.split()[0] for name in self._wanted}
        commands = [line for kind, lines in COMMANDS.items() if kind.name in known for line in lines]
        self._progress.write("\n".join(f"  {line}" for line in (setup, *commands, *more)))
        self._progress.write()

    async def show(self) -> None:
        """Show the table and its changes until the task is cancelled."""
        screen = Screen(self._out, shutil.get_terminal_size().columns)
        ready_after = 0.0
        while True:
            unready = await self.unready()
            ready_after = ready_after or (0.0 if unready else self._progress.elapsed)
            state = "waiting" if unready else f"all Ready, {ready_after:.1f} s after the start"
            screen.show(self.rows(), f"{state}; Ctrl-C stops everything")
            await self._tick()

    async def _tick(self) -> None:
        """Wait for a change or a short time, and fail if a process has exited."""
        try:
            async with asyncio.timeout(TICK):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()
        for process in self._processes:
            if not process.running:
                raise ProcessFailed(f"{process.name} exited with {process.child.returncode}; {tail(process.log)}")
