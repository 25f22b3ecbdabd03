"""Records every state of objects in a namespace, in the order in which the API server stores them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import yaml

from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Manifest

TIMEOUT = 20.0


class History:
    """All states of the objects of one kind in one namespace, from a watch."""

    def __init__(self, client: Client, kind: Kind[Any], namespace: str) -> None:
        self.client = client
        self.kind = kind
        self.namespace = namespace
        self.states: list[Manifest] = []
        self._changed = asyncio.Condition()

    def add(self, raw: msgspec.Raw) -> None:
        state = msgspec.json.decode(raw)
        del state["metadata"]["managedFields"]
        self.states.append(state)

    def of(self, name: str) -> list[Manifest]:
        return [state for state in self.states if state["metadata"]["name"] == name]

    def at(self, name: str, version: int) -> Manifest | None:
        """The state of an object before this resourceVersion."""
        return next((state for state in reversed(self.of(name)) if version_of(state) < version), None)

    async def until(self, name: str, satisfied: Callable[[Manifest], object]) -> Manifest:
        """Wait until the newest state of an object satisfies this condition, and return it."""
        async with self._changed:
            try:
                async with asyncio.timeout(TIMEOUT):
                    await self._changed.wait_for(lambda: (states := self.of(name)) and satisfied(states[-1]))
            except TimeoutError:
                latest = yaml.safe_dump(self.of(name)[-1:])
                raise AssertionError(f"not satisfied within {TIMEOUT:g} s:\n{latest}") from None
            return self.of(name)[-1]

    async def run(self, version: str) -> None:
        events = self.client.watch(self.kind, self.namespace, version, seconds=600, idle_timeout=600)
        async with aclosing(events):
            async for event in events:
                if event.type in ("ADDED", "MODIFIED", "DELETED"):
                    async with self._changed:
                        self.add(event.object)
                        self._changed.notify_all()


@asynccontextmanager
async def recording(client: Client, namespace: str, *kinds: Kind[Any]) -> AsyncIterator[list[History]]:
    """Record the history of these kinds during the block."""
    histories = [History(client, kind, namespace) for kind in kinds]
    async with asyncio.TaskGroup() as group:
        tasks = []
        for history in histories:
            async for page in client.list(history.kind, namespace):
                version = page.resource_version
                for item in page.items:
                    history.add(item)
            tasks.append(group.create_task(history.run(version)))
        try:
            yield histories
        finally:
            for task in tasks:
                task.cancel()


def version_of(state: Manifest) -> int:
    return int(state["metadata"]["resourceVersion"])
