"""Control planes and provisioners whose ServiceAccount runs workspaces, in any namespace."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.controllers.controlplane import rbac as controlplane_rbac
from coder_k8s.controllers.controlplane import wiring as controlplane
from coder_k8s.controllers.provisioner import rbac as provisioner_rbac
from coder_k8s.controllers.provisioner import wiring as provisioner
from coder_k8s.controllers.workspace_roles import FINALIZER, WorkspaceRoles
from coder_k8s.kube.client import Client
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.objects import Key, Kind, Manifest
from tests.controllers.controlplane.administrator import Administrator, administrator
from tests.controllers.controlplane.planes import manifest
from tests.support import eventually, objects
from tests.support.operators import Builder

READY = "WorkspaceRBACReady"
EVERYWHERE = [""]
PROVISIONER_FIELDS = {
    "namespaces": "workspaceNamespaces",
    "deployments": "enableDeployments",
    "enabled": "workspacePermissions",
}
PLANE_FIELDS = {**PROVISIONER_FIELDS, "enabled": "workspacePerms", "rules": "extraRules"}


class Subject(NamedTuple):
    """A kind, its controller, and how its spec has the fields for workspaces."""

    kind: Kind[Any]
    build: Callable[..., Controller]
    roles: WorkspaceRoles[Any]
    spec: Callable[..., Manifest]

    def allowing(self, *patterns: str) -> Builder:
        """The controller, with namespaces that opt in by option."""
        return partial(self.build, allow_workspace_namespaces=patterns)


def plane_spec(**fields: Any) -> Manifest:
    return {"rbac": {PLANE_FIELDS[name]: value for name, value in fields.items()}}


def provisioner_spec(**fields: Any) -> Manifest:
    return {PROVISIONER_FIELDS[name]: value for name, value in fields.items()}


PLANE = Subject(CONTROL_PLANE, controlplane.build, controlplane_rbac.ROLES, plane_spec)
PROVISIONERS = Subject(PROVISIONER, provisioner.build, provisioner_rbac.ROLES, provisioner_spec)
SUBJECTS = (PLANE, PROVISIONERS)
both_kinds = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.kind.name)


class Owners(Administrator):
    """Writes objects of one of these kinds."""

    def __init__(self, client: Client, subject: Subject) -> None:
        super().__init__(client)
        self.subject = subject
        self.kind = subject.kind

    async def make(self, namespace: str, name: str = "", **fields: Any) -> Key:
        """Create an object with these fields of `Subject.spec`; the control plane of a provisioner is not ready."""
        spec = self.subject.spec(**fields)
        if self.kind is CONTROL_PLANE:
            return await super().make(namespace, name or "demo", **spec)
        if await objects.find(self.client, CONTROL_PLANE, Key(namespace, "demo")) is None:
            await self.client.create(CONTROL_PLANE, manifest(namespace))
        key = Key(namespace, name or "build")
        await objects.create(self.client, PROVISIONER, key, {"controlPlaneRef": {"name": "demo"}, **spec})
        return key

    async def switch(self, key: Key, **fields: Any) -> None:
        """Change fields of `Subject.spec`."""
        await self.change(key, **self.subject.spec(**fields))

    async def get(self, key: Key) -> Any:
        return await self.client.get(self.kind, key)

    async def names(self, key: Key, namespace: str) -> set[tuple[str, str]]:
        """The Role and the RoleBinding of an object in a namespace."""
        names = self.subject.roles.names(await self.get(key), namespace)
        return {("Role", names.role), ("RoleBinding", names.binding)}

    async def becomes(self, namespace: str, *owners: Key) -> None:
        """Wait until the Roles and RoleBindings of these objects, and no others, are in a namespace."""
        expected = {each for key in owners for each in await self.names(key, namespace)}

        async def check() -> bool:
            assert await self.granted(namespace) == expected
            return True

        await eventually(check)

    async def denies(self, key: Key, namespace: str) -> None:
        """Wait until the condition names a namespace that has not opted in."""

        async def check() -> bool:
            return namespace in (await self.condition(key, READY, "NamespaceNotAllowed")).message

        await eventually(check)

    async def finalizers(self, key: Key, expected: list[str]) -> None:
        async def check() -> bool:
            assert (await self.get(key)).metadata.finalizers == expected
            return True

        await eventually(check)

    async def spread(self, number: int = 2) -> tuple[Key, list[str]]:
        """An object with Roles in other namespaces, which must be allowed."""
        home, *places = [await self.make_namespace() for _ in range(number + 1)]
        key = await self.make(home, namespaces=places)
        await self.condition(key, READY, "Applied")
        assert (await self.get(key)).metadata.finalizers == [FINALIZER]
        return key, places

    async def delete_owner(self, key: Key) -> None:
        await self.delete(self.kind, key)

    async def owner_gone(self, key: Key) -> None:
        await self.gone(self.kind, key)


@asynccontextmanager
async def owners_of(kubeconfig: Path, subject: Subject) -> AsyncIterator[Owners]:
    async with administrator(kubeconfig) as admin:
        yield Owners(admin.client, subject)
