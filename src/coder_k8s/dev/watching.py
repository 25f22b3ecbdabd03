"""Whether the samples are Ready, for people to watch and for scripts to ask."""

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
        f"kubectl delete service -n {samples.NAMESPACE} {samples.PLANE.name}  # it returns",
    ),
    PROVISIONER: (
        f"kubectl patch cprov -n {samples.NAMESPACE} {samples.PROVISIONED.name} --type=merge -p '{TAGS}'  # a new key",
    ),
}
"""Worth trying, by the kind that must be among the samples."""


class Watching:
    """Follows all objects of our kinds, and the processes that they depend on."""

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
        self._looked = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Self]:
        for informer in self._informers:
            informer.listen(lambda _: self._changed.set())
        following = [asyncio.create_task(informer.run()) for informer in self._informers]
        try:
            for informer in self._informers:
                await informer.synced.wait()
            yield self
        finally:
            for task in following:
                task.cancel()
            await asyncio.wait(following)

    def rows(self) -> list[Row]:
        return [row(item) for informer in self._informers for item in sorted(informer, key=lambda item: item.key)]

    async def unready(self) -> list[str]:
        """The samples that are not Ready and why, once the operator of this run has looked at them."""
        if not self._looked:
            kinds = {each.split()[0] for each in self._wanted}
            self._looked = await asyncio.to_thread(self._operator.has_looked, len(kinds))
        found = {f"{each.kind} {each.name}": each for each in self.rows()}
        told = {name: found[name] for name in self._wanted if name in found}
        missing = [f"{name} does not exist" for name in self._wanted if name not in found]
        waiting = [
            f"{name} is not Ready: {each.reason}" + (f": {each.message}" if each.message else "")
            for name, each in told.items()
            if not each.is_ready
        ]
        unseen = [] if self._looked else ["the operator has not looked at every sample yet"]
        return [*missing, *waiting] or unseen

    async def check(self, timeout: float) -> int:  # noqa: ASYNC109 - how long a script waits
        """Wait until all samples are Ready; returns an exit code, and says what is missing."""
        deadline = self._progress.elapsed + timeout
        while (unready := await self.unready()) and self._progress.elapsed < deadline:
            await self._tick()
        self._progress.say("\n".join(f"  {line}" for line in render(self.rows())))
        if unready:
            self._progress.say("\n".join(["", f"not Ready within {timeout:g} s:", *(f"  {line}" for line in unready)]))
            return 1
        self._progress.say(f"\nall samples are Ready, {self._progress.elapsed:.1f} s after the start")
        return 0

    def introduce(self, kubeconfig: Path, kubectl: Path) -> None:
        """Say what a person can do now."""
        setup = f"export KUBECONFIG={kubeconfig}"
        if shutil.which("kubectl") is None:
            setup += f" PATH=$PATH:{kubectl.parent}"
        self._progress.say("\nworth trying in another terminal:\n")
        known = {name.split()[0] for name in self._wanted}
        commands = [line for kind, lines in COMMANDS.items() if kind.name in known for line in lines]
        self._progress.say("\n".join(f"  {line}" for line in (setup, *commands)))
        self._progress.say()

    async def show(self) -> None:
        """Show the table and its changes, for ever."""
        screen = Screen(self._out, shutil.get_terminal_size().columns)
        ready_after = 0.0
        while True:
            unready = await self.unready()
            ready_after = ready_after or (0.0 if unready else self._progress.elapsed)
            state = "waiting" if unready else f"all Ready, {ready_after:.1f} s after the start"
            screen.show(self.rows(), f"{state}; Ctrl-C stops everything")
            await self._tick()

    async def _tick(self) -> None:
        """Wait for a change, but look after the processes in any case."""
        try:
            async with asyncio.timeout(TICK):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()
        for process in self._processes:
            if not process.running:
                raise ProcessFailed(f"{process.name} ended with {process.child.returncode}; {tail(process.log)}")
