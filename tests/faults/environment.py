"""A namespace with users who change objects, and servers with faults."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from coder_k8s.api import RESOURCES
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Kind, Object
from tests.support import controlplanes, rotations
from tests.support.clock import Clock
from tests.support.databases import CoderdDatabase

from .faulty_servers import Fault, FaultyServer, inject_faults, rejecting
from .licensed_plane import LicensedPlane
from .workload import Workload

CHILDREN = (DEPLOYMENT, INGRESS, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT)


@dataclass
class FaultyEnvironment:
    """Users and faults; the same seed makes the same random choices."""

    work: Workload
    home: LicensedPlane
    routes: dict[Endpoint, Endpoint]
    faults: list[dict[str, Fault]]
    """The faults of each server."""
    rng: Random
    injected: Counter[str] = field(default_factory=Counter)

    async def run(self, seconds: float, faulty_seconds: float, longest: float) -> None:
        """Run the users for some seconds, with faults for a part of that time."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.work.run(seconds))
            group.create_task(self.home.run(seconds))
            group.create_task(self.clean(seconds))
            for each in self.faults:
                rng = Random(self.rng.random())  # noqa: S311 - deterministic
                group.create_task(inject_faults(each, rng, faulty_seconds, longest, self.injected))

    async def clean(self, seconds: float, pause: float = 5.0) -> None:
        """Delete orphaned children after some seconds, because no garbage collector runs in this cluster."""
        end, left = time.monotonic() + seconds, set[str]()
        while time.monotonic() < end:
            children = [each for kind in CHILDREN for each in await self._list(kind)]  # owners come before children
            owners = {owner.metadata.uid for resource in RESOURCES for _, owner in await self._list(resource.kind)}
            garbage = [each for each in children if each[1].controller and each[1].controller.uid not in owners]
            for kind, child in garbage:
                if child.metadata.uid in left:
                    with suppress(errors.NotFound):
                        await self.work.client.delete(kind, child, unchanged=False)
            left = {child.metadata.uid for _, child in garbage}
            await asyncio.sleep(pause)

    async def _list(self, kind: Kind[Any]) -> list[tuple[Kind[Any], Object]]:
        pages = self.work.client.list(kind, self.work.site.namespace)
        return [(kind, kind.type.decode(item)) async for page in pages for item in page.items]

    async def differences(self) -> list[str]:
        """Every difference from the steady state."""
        return await self.work.differences() + await self.home.differences()


@asynccontextmanager
async def faulty_environment(
    place: rotations.RotationNamespace, database: CoderdDatabase, kubeconfig: Path, seed: int
) -> AsyncIterator[FaultyEnvironment]:
    """The namespace with an additional licensed control plane on that database, and the faults of their servers."""
    print(f"seed {seed}")  # noqa: T201
    rng = Random(seed)  # noqa: S311 - deterministic
    async with (
        CoderdServer(database_url=database.url) as own,
        FaultyServer(place.coderds["one"].port) as shared,
        FaultyServer(own.port) as private,
        FaultyServer(database.server.port) as postgres,
    ):
        key = Key(place.namespace, "home")
        site = controlplanes.PlaneNamespace(place.client, kubeconfig, key, own, Clock())
        home = LicensedPlane(site, database, Random(rng.random()))  # noqa: S311
        await home.make(database.url.replace(f":{database.server.port}/", f":{postgres.port}/"))
        domain = f"{place.namespace}.svc.cluster.local"
        routes = {
            Endpoint(f"one.{domain}", 80): Endpoint("127.0.0.1", shared.port),
            Endpoint(f"home.{domain}", 80): Endpoint("127.0.0.1", private.port),
        }
        faults: list[dict[str, Fault]] = [
            {"coderd slow": each.slow, "coderd down": each.down, "coderd silent": each.silent}
            | {"coderd bad gateway": each.bad_gateway, "coderd wrong server": each.wrong_server}
            for each in (shared, private)
        ]
        of_postgres: dict[str, Fault] = {
            "PostgreSQL slow": postgres.slow,
            "PostgreSQL down": postgres.down,
            "PostgreSQL silent": postgres.silent,
            "PostgreSQL rejecting": lambda: rejecting(database),
        }
        yield FaultyEnvironment(Workload(place, Random(rng.random())), home, routes, [*faults, of_postgres], rng)  # noqa: S311
