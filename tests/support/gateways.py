"""What a controller of Gateways says about routes."""

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


async def answer(client: Client, key: Key, status: str, reason: str, message: str = "") -> None:
    """Say of a route, for all its Gateways, whether they accept it as it is now."""
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
    """Gateways that accept every route, and every change of one."""
    routes = Informer(client, HTTP_ROUTE, [""], metrics=Metrics())
    answered: set[tuple[str, int]] = set()

    async def accept(key: Key) -> None:
        with suppress(errors.NotFound):
            await answer(client, key, "True", "Accepted")

    async with asyncio.TaskGroup() as group:

        def heard(change: Change[Unstructured]) -> None:
            if change.new is None:
                return
            known = (change.new.metadata.uid, change.new.metadata.generation)
            if known not in answered:
                answered.add(known)
                group.create_task(accept(change.new.key))

        routes.listen(heard)
        watching = group.create_task(routes.run())
        await routes.synced.wait()
        yield
        watching.cancel()
