"""Simulates a Gateway controller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from coder_k8s.kube import errors
from coder_k8s.kube.cache import Change
from coder_k8s.kube.client import Client
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import HTTP_ROUTE
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Unstructured, timestamp


async def set_accepted(client: Client, key: Key, status: str, reason: str, message: str = "") -> None:
    """Write the Accepted condition of all parents of a route, for its current generation."""
    route = await client.get(HTTP_ROUTE, key)
    accepted = {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": route.metadata.generation,
        "lastTransitionTime": timestamp(datetime.now(UTC)),
    }
    parents = [
        {"parentRef": parent, "controllerName": "example.com/gateway", "conditions": [accepted]}
        for parent in route.manifest["spec"]["parentRefs"]
    ]
    await client.merge(HTTP_ROUTE, key, {"status": {"parents": parents}}, "status")


@asynccontextmanager
async def accepting(client: Client) -> AsyncIterator[None]:
    """Accept every route, and every change of one, during the block."""
    routes = Informer(client, HTTP_ROUTE, [""], metrics=Metrics())
    accepted_generations: set[tuple[str, int]] = set()

    async def accept(key: Key) -> None:
        with suppress(errors.NotFound):
            await set_accepted(client, key, "True", "Accepted")

    async with asyncio.TaskGroup() as group:

        def on_change(change: Change[Unstructured]) -> None:
            if change.new is None:
                return
            known = (change.new.metadata.uid, change.new.metadata.generation)
            if known not in accepted_generations:
                accepted_generations.add(known)
                group.create_task(accept(change.new.key))

        routes.listen(on_change)
        watching = group.create_task(routes.run())
        await routes.synced.wait()
        yield
        watching.cancel()
