"""Users who create, change and delete objects of every kind at random."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key, Kind, Manifest
from tests.support.rotations import RotationNamespace

NUMBER = 3
"""The maximum number of objects of each kind."""

Choice = Callable[[Random], Any]
INGRESS = {"ingress": {"host": "coder.example.com"}}
CHANGES: dict[Kind[Any], dict[str, Choice]] = {
    CONTROL_PLANE: {
        "replicas": lambda rng: rng.randint(1, 4),
        "image": lambda rng: f"coder:v2.{rng.randint(30, 36)}.0",
        "expose": lambda rng: rng.choice((None, INGRESS)),
        "serviceAccount": lambda rng: rng.choice((None, {"name": f"account-{rng.randint(1, 3)}"})),
        "rbac": lambda rng: rng.choice((None, {"workspacePerms": False})),
        "extraArgs": lambda rng: rng.choice((None, ["--verbose"])),
    },
    PROVISIONER: {
        "replicas": lambda rng: rng.randint(1, 4),
        "tags": lambda rng: {"round": str(rng.randint(1, 9))},
        "workspacePermissions": lambda rng: rng.choice((True, False)),
        "key": lambda rng: rng.choice((None, {"secretName": f"key-{rng.randint(1, 9**6)}"})),
    },
    WORKSPACE_PROXY: {
        "replicas": lambda rng: rng.randint(1, 4),
        "image": lambda rng: f"coder:v2.{rng.randint(30, 36)}.0",
        "derpOnly": lambda rng: rng.choice((True, False)),
    },
}
SPECS: dict[Kind[Any], Manifest] = {
    CONTROL_PLANE: {"operatorAccess": {"disabled": True}},
    PROVISIONER: {"controlPlaneRef": {"name": "one"}},
    WORKSPACE_PROXY: {"controlPlaneRef": {"name": "one"}},
}


@dataclass
class Workload:
    """Random changes in a namespace; a seed determines the choices."""

    site: RotationNamespace
    rng: Random
    done: int = 0
    made: dict[Kind[Any], list[str]] = field(default_factory=lambda: {kind: [] for kind in SPECS})
    """The names of the existing objects. Names are not reused, because no garbage collector deletes old children."""

    @property
    def client(self) -> Client:
        return self.site.client

    async def run(self, seconds: float, pause: float = 0.2) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await self.act()
            await asyncio.sleep(self.rng.uniform(0, pause))

    async def act(self) -> None:
        """Create, change or, rarely, delete an object."""
        kind = self.rng.choice(list(SPECS))
        if len(self.made[kind]) < NUMBER:
            await self.create(kind)
        elif self.rng.random() < 0.05:
            await self.delete(kind)
        else:
            await self.change(kind, self.rng.choice(self.made[kind]))

    async def create_all(self) -> None:
        """Create the maximum number of objects of each kind."""
        for kind in SPECS:
            for _ in range(NUMBER):
                await self.create(kind)

    async def change_all(self, times: int) -> None:
        """Change every object several times in a row."""
        for kind, names in self.made.items():
            for name in names:
                for _ in range(times):
                    await self.change(kind, name)

    async def replace_some(self) -> None:
        """For every kind, delete an object, change one and create one."""
        for kind in SPECS:
            await self.delete(kind)
            await self.change(kind, self.rng.choice(self.made[kind]))
            await self.create(kind)

    async def create(self, kind: Kind[Any]) -> None:
        self.done += 1
        name = f"demo-{self.done}"
        self.made[kind].append(name)
        metadata = {"namespace": self.site.namespace, "name": name}
        await self.client.create(kind, {"metadata": metadata, "spec": SPECS[kind]})

    async def change(self, kind: Kind[Any], name: str) -> None:
        self.done += 1
        what = self.rng.choice(list(CHANGES[kind]))
        patch = {"spec": {what: CHANGES[kind][what](self.rng)}}
        await self.client.merge(kind, Key(self.site.namespace, name), patch)

    async def delete(self, kind: Kind[Any]) -> None:
        self.done += 1
        name = self.rng.choice(self.made[kind])
        self.made[kind].remove(name)
        await self.site.delete(kind, name)

    async def differences(self) -> list[str]:
        """Every difference from the steady state."""
        found = []
        for kind in SPECS:
            async for page in self.client.list(kind, self.site.namespace):
                found += [each for item in page.items for each in self._differences(kind, kind.type.decode(item))]
        keys, provisioners = self.site.found(), self.made[PROVISIONER]
        if len(keys) != len(provisioners):
            found.append(f"{len(keys)} keys for {len(provisioners)} provisioners")
        proxies = self.site.coderds["one"].state.proxies
        if len(proxies) != len(self.made[WORKSPACE_PROXY]):
            found.append(f"{len(proxies)} registered for {len(self.made[WORKSPACE_PROXY])} workspace proxies")
        return found

    def _differences(self, kind: Kind[Any], live: Any) -> list[str]:
        if live.metadata.name in ("one", "two", "home"):
            return []  # control planes that the other objects refer to, and that of LicensedPlane
        if live.metadata.name not in self.made[kind]:
            return [f"{kind.name} {live.key} is not deleted"]
        if live.status.observed_generation != live.metadata.generation:
            return [f"{kind.name} {live.key} has a status of an older generation"]
        if live.status.ready_replicas != live.spec.replicas:
            return [f"{kind.name} {live.key} has a wrong number of ready replicas"]
        return []


class Steady(Protocol):
    """An object with differences from a steady state."""

    async def differences(self) -> list[str]: ...


async def is_steady(state: Steady) -> bool:
    differences = await state.differences()
    assert not differences, differences
    return True
