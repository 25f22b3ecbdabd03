"""Repair: children that are deleted or edited while the operator has other things to do."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random

import msgspec

from bench import samples
from bench.place import CHILDREN, Place, at_rate, at_rest, leads, place, planes
from bench.report import Section, Verdict, table
from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube.cache import Change
from coder_k8s.kube.containment import contains
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Child, Key, Kind, Manifest

TIMES = 200
LOAD = 20.0
"""Status changes per second of Deployments, meanwhile."""
LIMIT = 50.0
PATIENCE = 30.0
RENAMED: Manifest = {"metadata": {"labels": {"app.kubernetes.io/name": "edited"}}}
EDITS: dict[Kind[Child], Manifest] = {
    SERVICE_ACCOUNT: RENAMED,
    SERVICE: RENAMED,
    ROLE: {"rules": []},
    ROLE_BINDING: {"subjects": []},
    DEPLOYMENT: {"spec": {"replicas": 7}},
}
Caches = dict[Kind[Child], Informer[Child]]


class Figures(msgspec.Struct, kw_only=True):
    """Milliseconds each."""

    number: int
    deleted: list[float]
    """From the event of the deletion to that of the new object."""
    edited: list[float]
    """From the event of the edit to that of its repair."""
    round_trips: list[float]
    """How long the writes took that did the harm."""

    @property
    def beyond(self) -> float:
        """The 99th percentile of all repairs, without two round trips."""
        repairs = [*self.deleted, *self.edited]
        return samples.percentile(repairs, 99) - 2 * samples.percentile(self.round_trips, 50)


class Watcher:
    """Awaits what the API server tells about one object."""

    def __init__(self, caches: Caches) -> None:
        self._wanted: Key | None = None
        self._kind: Kind[Child] | None = None
        self._told: asyncio.Queue[tuple[float, Child | None]] = asyncio.Queue()
        for kind, cache in caches.items():
            cache.listen(lambda change, kind=kind: self._look(kind, change))  # type: ignore[misc]

    def _look(self, kind: Kind[Child], change: Change[Child]) -> None:
        if (kind, change.key) == (self._kind, self._wanted):
            self._told.put_nowait((time.monotonic(), change.new))

    def begin(self, kind: Kind[Child], key: Key) -> None:
        self._kind, self._wanted = kind, key
        self._told = asyncio.Queue()

    async def until(self, harmed: bool, edit: Manifest | None) -> float:
        """When the object was first seen harmed, or whole again."""
        async with asyncio.timeout(PATIENCE):
            while True:
                when, seen = await self._told.get()
                is_harmed = seen is None or (edit is not None and contains(seen.manifest, edit))
                if is_harmed == harmed:
                    return when


async def run(number: int, times: int = TIMES, seed: int = 1) -> Figures:
    async with place() as here, AsyncExitStack() as stack:
        with here.operator() as operator:
            await leads(operator)
            await here.converge(planes(number))
            await at_rest(operator, number)
            caches = {kind: await stack.enter_async_context(here.informer(kind, MANAGED)) for kind in CHILDREN}
            return await measure(here, caches, number, times, Random(seed))  # noqa: S311 - no secret


async def measure(here: Place, caches: Caches, number: int, times: int, rng: Random) -> Figures:
    figures = Figures(number=number, deleted=[], edited=[], round_trips=[])
    watcher = Watcher(caches)

    async def disturb() -> None:
        chosen = rng.choice(list(caches[DEPLOYMENT]))
        counts = dict.fromkeys(("replicas", "readyReplicas"), rng.randrange(3))
        await here.admin.merge(DEPLOYMENT, chosen.key, {"status": counts}, "status")

    load = asyncio.create_task(at_rate(LOAD, disturb))
    try:
        for count in range(times):
            kind = rng.choice([kind for kind in CHILDREN if count % 2 or kind is not DEPLOYMENT])
            chosen = rng.choice(list(caches[kind]))
            edit = EDITS[kind] if count % 2 else None
            repair = await _harm(here, watcher, kind, chosen, edit, figures)
            (figures.deleted if edit is None else figures.edited).append(repair)
    finally:
        load.cancel()
        await asyncio.wait([load])
    if load.done() and not load.cancelled():
        load.result()
    return figures


async def _harm(
    here: Place, watcher: Watcher, kind: Kind[Child], chosen: Child, edit: Manifest | None, figures: Figures
) -> float:
    """How long it took until the object was whole again."""
    watcher.begin(kind, chosen.key)
    began = time.monotonic()
    if edit is None:
        await here.admin.delete(kind, chosen, unchanged=False)
    else:
        await here.admin.merge(kind, chosen.key, edit)
    figures.round_trips.append((time.monotonic() - began) * 1000)
    harmed = await watcher.until(True, edit)
    return (await watcher.until(False, edit) - harmed) * 1000


def tell(runs: Sequence[Figures]) -> Section:
    header = ["control planes", "deleted p50", "p99", "edited p50", "p99", "round trip p50", "p99"]
    rows = [
        (
            run.number,
            *(
                f"{samples.percentile(values, share):.0f}"
                for values in (run.deleted, run.edited, run.round_trips)
                for share in (50, 99)
            ),
        )
        for run in runs
    ]
    worst = max(runs, key=lambda run: run.beyond)
    text = (
        "A child is deleted or edited at random, again and again, while Deployments report "
        f"{LOAD:g} status changes per second. Milliseconds from the API server's event of the harm to its event of the "
        "repair, beside how long the harmful write itself took. The first edit of an object takes three round trips to "
        "repair: the fields of its create move to server-side apply.\n\n"
    )
    tail = samples.percentile(worst.round_trips, 99)
    verdict = Verdict(
        name="repair of a child, p99 beyond two round trips",
        target=f"< {LIMIT:g} ms",
        found=f"{worst.beyond:.0f} ms (N = {worst.number})",
        met=worst.beyond < LIMIT,
        limit=f"the API server, which the load keeps busy: one round trip alone takes {tail:.0f} ms at p99.",
    )
    return Section(title="Repair", text=text + table(header, rows), verdicts=[verdict])
