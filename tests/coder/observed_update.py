"""Observes an update of a real Coder: the responses of its Service, and the sessions of its pods in PostgreSQL.

Each pod uses its name as `application_name`, so that PostgreSQL reports which pods are connected. A trigger in the
database records which pod runs each migration, and which pods are connected at this moment.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import aiohttp
import asyncpg

from coder_k8s.api.updates import Step
from coder_k8s.controllers.labels import COMPONENT
from coder_k8s.kube.objects import Manifest, Unstructured
from tests.support import eventually
from tests.support.real_coder import RealPlane, image

SERVER = "coder-control-plane"
TIMEOUT = 240.0
EVERY = 0.1
NAMED_SESSIONS: Manifest = {"name": "PGAPPNAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
RECORD = """
CREATE SCHEMA audit;
CREATE TABLE audit.changes (pod text NOT NULL, connected text[] NOT NULL);
CREATE FUNCTION audit.record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_stat_clear_snapshot();
    INSERT INTO audit.changes SELECT current_setting('application_name'), array_agg(DISTINCT application_name)
        FROM pg_stat_activity WHERE datname = current_database();
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT ON schema_migrations FOR EACH ROW EXECUTE FUNCTION audit.record();
"""
SESSIONS = """
SELECT (SELECT version FROM schema_migrations), array_agg(DISTINCT application_name)
FROM pg_stat_activity WHERE datname = current_database()
"""


class Sessions(NamedTuple):
    """The schema of the database, and the names of its clients at the same moment."""

    schema: int
    clients: frozenset[str]


@dataclass
class ObservedUpdate:
    """What was observed while an update ran."""

    images: dict[str, str] = field(default_factory=dict)
    """The image of each pod of Coder, by name."""
    sessions: list[Sessions] = field(default_factory=list)
    changes: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    """The pod that migrated the database, and all clients at this moment, for each migration that was committed."""
    responses: list[tuple[float, int]] = field(default_factory=list)
    """When the Service responded, with which status; 0 without a response."""

    @property
    def downtime(self) -> float:
        """Seconds between the last response of the old version and the first one of the new one."""
        ok = [at for at, status in self.responses if status == 200]
        return max((after - before for before, after in pairwise(ok)), default=0.0)

    @property
    def failures(self) -> int:
        return sum(status != 200 for _, status in self.responses)

    def connected(self, schema: int) -> set[str]:
        """The images whose pods were connected to the database while it had this schema."""
        return {used for each in self.sessions if each.schema == schema for used in self._images(each.clients)}

    def connected_during_migration(self) -> set[str]:
        """The images whose pods were connected to the database while it was migrated."""
        return {used for _, clients in self.changes for used in self._images(clients)}

    def migrated(self) -> set[str]:
        """The pods that migrated the database."""
        return {pod for pod, _ in self.changes}

    def pods(self, used: str) -> set[str]:
        """The pods of an image."""
        return {name for name, found in self.images.items() if found == used}

    def _images(self, clients: frozenset[str]) -> set[str]:
        return {self.images[each] for each in clients & self.images.keys()}


async def make_observable(plane: RealPlane, version: str, **spec: Any) -> None:
    """Create a control plane whose sessions in the database have the names of its pods, and wait until it is ready."""
    await plane.make(version=version, extraEnv=[*plane.env, NAMED_SESSIONS], **spec)
    await plane.ready()


@asynccontextmanager
async def observing(plane: RealPlane) -> AsyncIterator[ObservedUpdate]:
    """Observe pods, database and Service until the end of the block."""
    found = ObservedUpdate()
    connection = await asyncpg.connect(plane.database.url)
    try:
        await connection.execute(RECORD)
        tasks = [asyncio.create_task(each) for each in (_observe_responses(plane, found), _observe(plane, found))]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks), [task.exception() for task in tasks if not task.cancelled()]
        rows = await connection.fetch("SELECT pod, connected FROM audit.changes")
        found.changes = [(row["pod"], frozenset(row["connected"])) for row in rows]
    finally:
        await connection.close()


async def _observe_responses(plane: RealPlane, found: ObservedUpdate) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
        while True:
            try:
                async with http.get(f"{plane.url}/api/v2/buildinfo") as answer:
                    await answer.read()
                    found.responses.append((time.monotonic(), answer.status))
            except (aiohttp.ClientError, TimeoutError):
                found.responses.append((time.monotonic(), 0))
            await asyncio.sleep(EVERY)


async def _observe(plane: RealPlane, found: ObservedUpdate) -> None:
    connection = await asyncpg.connect(plane.database.url)
    try:
        while True:
            found.images |= {pod.metadata.name: image_of(pod) for pod in await servers(plane)}
            # This waits while a migration holds its lock; PostgreSQL reads the list of clients after the wait.
            row = await connection.fetchrow(SESSIONS)
            if row is not None and row[0] is not None:
                schema, clients = row
                found.sessions.append(Sessions(schema, frozenset(clients)))
            await asyncio.sleep(EVERY)
    finally:
        connection.terminate()


async def servers(plane: RealPlane) -> list[Unstructured]:
    """The pods of Coder, without those of Jobs."""
    return [pod for pod in await plane.pods() if pod.metadata.labels.get(COMPONENT) == SERVER]


def image_of(pod: Unstructured) -> str:
    return str(pod.manifest["spec"]["containers"][0]["image"])


async def is_updated(plane: RealPlane, version: str) -> bool:
    """Whether an update to a version is complete."""
    update = (await plane.get()).status.update
    return update is not None and (update.step, update.image) == (Step.COMPLETE, image(version))


async def updated(plane: RealPlane, version: str, within: float = TIMEOUT) -> None:
    """Wait until an update to a version is complete and all pods are ready."""

    async def done() -> bool:
        live = await plane.get()
        assert await is_updated(plane, version), live.status.update
        return live.status.ready_replicas == live.spec.replicas

    await eventually(done, within)
