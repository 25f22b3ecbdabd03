"""All that an operator has to do with: people who want something of it, and neighbours that cause trouble."""

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
from tests.support import coderd, rotations
from tests.support.databases import CoderdDatabase

from .home import Home
from .neighbours import Neighbour, Trouble, refusing, suffer
from .workload import Workload

CHILDREN = (DEPLOYMENT, INGRESS, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT)


@dataclass
class Town:
    """A seed makes everybody in it do the same again, as far as the operator lets them."""

    work: Workload
    home: Home
    routes: dict[Endpoint, Endpoint]
    troubles: list[dict[str, Trouble]]
    """What may happen to each of the neighbours."""
    rng: Random
    suffered: Counter[str] = field(default_factory=Counter)

    async def live(self, seconds: float, troubled: float, longest: float) -> None:
        """Let everybody work for a while, with troubles for a part of that time."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.work.run(seconds))
            group.create_task(self.home.run(seconds))
            group.create_task(self.clean(seconds))
            for each in self.troubles:
                rng = Random(self.rng.random())  # noqa: S311 - the same in every run
                group.create_task(suffer(each, rng, troubled, longest, self.suffered))

    async def clean(self, seconds: float, pause: float = 5.0) -> None:
        """Collect garbage, some seconds old, for a while: no controller of Kubernetes does so here."""
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

    async def flaws(self) -> list[str]:
        """What is not at rest yet."""
        return await self.work.flaws() + await self.home.flaws()


@asynccontextmanager
async def town(place: rotations.Site, database: CoderdDatabase, kubeconfig: Path, seed: int) -> AsyncIterator[Town]:
    """A town around a place, with a control plane more that has that database."""
    print(f"seed {seed}")  # noqa: T201
    rng = Random(seed)  # noqa: S311 - the same in every run
    async with (
        CoderdServer(database_url=database.url) as own,
        Neighbour(place.coderds["one"].port) as shared,
        Neighbour(own.port) as private,
        Neighbour(database.server.port) as postgres,
    ):
        key = Key(place.namespace, "home")
        site = coderd.Site(place.client, kubeconfig, key, own, coderd.Clock())
        home = Home(site, database, Random(rng.random()))  # noqa: S311
        await home.make(database.url.replace(f":{database.server.port}/", f":{postgres.port}/"))
        domain = f"{place.namespace}.svc.cluster.local"
        routes = {
            Endpoint(f"one.{domain}", 80): Endpoint("127.0.0.1", shared.port),
            Endpoint(f"home.{domain}", 80): Endpoint("127.0.0.1", private.port),
        }
        troubles: list[dict[str, Trouble]] = [
            {"coderd slow": each.slow, "coderd down": each.down, "coderd silent": each.silent}
            | {"coderd away": each.away, "coderd strange": each.strange}
            for each in (shared, private)
        ]
        of_postgres: dict[str, Trouble] = {
            "PostgreSQL slow": postgres.slow,
            "PostgreSQL down": postgres.down,
            "PostgreSQL silent": postgres.silent,
            "PostgreSQL refusing": lambda: refusing(database),
        }
        yield Town(Workload(place, Random(rng.random())), home, routes, [*troubles, of_postgres], rng)  # noqa: S311
