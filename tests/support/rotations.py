"""A provisioner, two control planes, all changes that rotate its key, and the expected steady state."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderProvisioner
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.provisioner import wiring
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.records import StoredKey
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import find
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest, Unstructured, timestamp
from tests.support import objects
from tests.support.clients import UserClient
from tests.support.clock import Clock
from tests.support.namespaces import Namespace
from tests.support.operators import Builder

PLANES = ("one", "two")
ORGANIZATIONS = ("default", "other")
REQUEST = "coder.com/rotate-key"
CHECKSUM = "checksum/provisioner-key"
OTHER_PODS = {
    "image": "coder:v2.36.1",
    "replicas": 2,
    "extraEnv": [{"name": "COLOUR", "value": "blue"}],
    "resources": {"limits": {"memory": "1Gi"}},
}
RIGHTS: tuple[Manifest, ...] = (
    {"workspacePermissions": True, "enableDeployments": False},
    {"workspacePermissions": True, "enableDeployments": True},
    {"workspacePermissions": False, "enableDeployments": True},
)
MANAGED = "app.kubernetes.io/managed-by=coder-k8s"


class Found(NamedTuple):
    """A key and its control plane."""

    plane: str
    key: StoredKey


class RotationNamespace(Namespace[CoderProvisioner]):
    """A namespace with a provisioner and two control planes, as users and the administrators of coderd see it."""

    kind = PROVISIONER
    builders: tuple[Builder, ...] = (wiring.build,)
    children_kinds = wiring.CHILDREN
    replicas = 1

    def __init__(
        self, client: Client, kubeconfig: Path, key: Key, coderds: Mapping[str, CoderdServer], clock: Clock
    ) -> None:
        super().__init__(client, kubeconfig, key, clock)
        self.coderds = coderds
        self.foreign: set[str] = set()
        """The IDs of keys that the operator did not create."""

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        return {
            Endpoint(f"{plane}.{self.namespace}.svc.cluster.local", 80): Endpoint("127.0.0.1", coderd.port)
            for plane, coderd in self.coderds.items()
        }

    def found(self) -> list[Found]:
        """All keys that the operator created, on both control planes."""
        every = [Found(plane, key) for plane, coderd in self.coderds.items() for key in coderd.state.keys.values()]
        assert self.foreign <= {each.key.id for each in every}, "a foreign key is gone"
        return [each for each in every if each.key.id not in self.foreign]

    async def make_planes(self) -> None:
        """Create paused control planes that provisioners can use, with keys that the operator did not create."""
        for plane, coderd in self.coderds.items():
            state = coderd.state
            state.install_license()
            state.add_key("foreign", {"round": "0"})
            state.add_key("foreign", organization=state.add_organization("other"))
            self.foreign |= {key.id for key in state.keys.values()}
            where = {"namespace": self.namespace, "name": plane, "annotations": {"coder.com/paused": "true"}}
            made = await self.client.create(CONTROL_PLANE, {"metadata": where, "spec": {}})
            await self.put_secret(f"{plane}-token", token=state.token)
            status = {
                **objects.ready_plane_status(made.key),
                "image": "ghcr.io/coder/coder:latest",
                "operatorTokenSecretRef": {"name": f"{plane}-token", "key": "token"},
                "externalProvisionerDaemonsEntitlement": "entitled",
                "entitlementsLastChecked": timestamp(self.clock()),
            }
            await self.client.merge(CONTROL_PLANE, made.key, {"status": status}, "status")

    async def forget_entitlements(self) -> None:
        """Remove from the status of the control planes when their entitlements were checked."""
        for plane in self.coderds:
            status = {"entitlementsLastChecked": None}
            await self.client.merge(CONTROL_PLANE, self.key_of(plane), {"status": status}, "status")

    async def make(self, name: str = "demo", **spec: Any) -> CoderProvisioner:
        self.name = name
        rotation = {"rotation": {"interval": "48h"}}
        return await super().make(name, controlPlaneRef={"name": "one"}, replicas=self.replicas, key=rotation, **spec)

    async def provisioner(self) -> CoderProvisioner | None:
        return await objects.find(self.client, PROVISIONER, self.key)

    async def secret_name(self) -> str:
        """The name of the Secret that holds the key."""
        return (await self.get()).spec.key.secret_name or f"{self.name}-provisioner-key"

    async def differences(self) -> list[str]:
        """Every difference from the steady state."""
        provisioner, keys = await self.provisioner(), self.found()
        if provisioner is None:
            return [f"{each.key.name} is left at {each.plane}" for each in keys]
        if len(keys) != 1:
            return [f"{len(keys)} keys in coderd: {[each.key.name for each in keys]}, not one"]
        [(plane, key)] = keys
        secrets = await objects.list_all(self.client, SECRET, self.namespace, MANAGED)
        deployment = await self.find(DEPLOYMENT, f"provisioner-{self.name}")
        url = (await self.client.get(CONTROL_PLANE, Key(self.namespace, plane))).status.url
        compared = {
            "status.controlPlaneURL": (provisioner.status.control_plane_url, url),
            **self._of_coderd(provisioner, plane, key),
            **_of_secrets(provisioner, self.name, [each for each in secrets if _owner(each) == self.name], key),
            **_of_deployment(provisioner, self.name, deployment, key),
            **_of_status(provisioner, key),
        }
        return [f"{what} is {is_!r}, not {must!r}" for what, (is_, must) in compared.items() if is_ != must]

    def _of_coderd(self, provisioner: CoderProvisioner, plane: str, key: StoredKey) -> dict[str, tuple[Any, Any]]:
        spec, state = provisioner.spec, self.coderds[plane].state
        base = spec.key.name or self.name
        return {
            "the key's control plane": (plane, spec.control_plane_ref.name),
            "the key's organization": (key.organization, state.find_organization(spec.organization_name)),
            "the key's tags": (key.tags, spec.tags),
            "that the key has one of its names": (bool(re.fullmatch(f"{base}(-[0-9a-f]{{4}})?", key.name)), True),
        }


def _of_secrets(
    provisioner: CoderProvisioner, name: str, secrets: list[Unstructured], key: StoredKey
) -> dict[str, tuple[Any, Any]]:
    spec = provisioner.spec
    wanted = spec.key.secret_name or f"{name}-provisioner-key"
    encoded = objects.encoded(key.secret)
    held = {
        each.metadata.name: (each.manifest.get("data") or {}).get(spec.key.secret_key) == encoded for each in secrets
    }
    answered = {each.metadata.annotations.get(REQUEST) for each in secrets}
    return {
        "that Secrets hold the key": (held, {wanted: True}),
        "the request that was answered": (answered, {provisioner.metadata.annotations.get(REQUEST)}),
    }


def _of_deployment(
    provisioner: CoderProvisioner, name: str, deployment: Unstructured | None, key: StoredKey
) -> dict[str, tuple[Any, Any]]:
    if deployment is None:
        return {"the Deployment": (None, "there")}
    wanted = provisioner.spec.key.secret_name or f"{name}-provisioner-key"
    checksum = deployment.manifest["spec"]["template"]["metadata"]["annotations"][CHECKSUM]
    return {
        "the checksum of the pods": (checksum, fnv1a32(key.secret.encode())),
        "the Secret of the pods": (secret_of(deployment.manifest["spec"]["template"]), wanted),
    }


def _of_status(provisioner: CoderProvisioner, key: StoredKey) -> dict[str, tuple[Any, Any]]:
    spec, status = provisioner.spec, provisioner.status
    ready = find(status.conditions, "Ready")
    text = "".join(f"{name}\0{value}\0" for name, value in sorted(spec.tags.items()))
    return {
        "status.provisionerKeyName": (status.provisioner_key_name, key.name),
        "status.provisionerKeyID": (status.provisioner_key_id, key.id),
        "status.organizationName": (status.organization_name, spec.organization_name),
        "status.organizationID": (status.organization_id, key.organization),
        "status.tagsHash": (status.tags_hash, fnv1a32(text.encode())),
        "status.controlPlaneRefName": (status.control_plane_ref_name, spec.control_plane_ref.name),
        "status.keyCreated": (status.key_created, key.created_at.replace(microsecond=0)),
        "status.retiringKeys": (status.retiring_keys, []),
        "status.secretRef": (status.secret_ref and status.secret_ref.key, spec.key.secret_key),
        "status.observedGeneration": (status.observed_generation, provisioner.metadata.generation),
        "Ready": (ready and (ready.status, ready.observed_generation), ("True", provisioner.metadata.generation)),
    }


def _owner(child: Unstructured) -> str:
    return child.controller.name if child.controller else ""


def secret_of(template: Mapping[str, Any]) -> str:
    """The Secret with the key of the pods of this template."""
    [container] = template["spec"]["containers"]
    return next(str(each["valueFrom"]["secretKeyRef"]["name"]) for each in container["env"] if "valueFrom" in each)


@asynccontextmanager
async def rotation_namespace(
    admin: Path, operator: Path, namespace: str, clock: Clock, replicas: int = 1
) -> AsyncIterator[RotationNamespace]:
    """A namespace for a provisioner, with two control planes."""
    async with AsyncExitStack() as stack:
        coderds = {plane: await stack.enter_async_context(CoderdServer(now=clock)) for plane in PLANES}
        http = await stack.enter_async_context(Http(load(admin), "user", Metrics()))
        place = RotationNamespace(UserClient(http, "user"), operator, Key(namespace, "demo"), coderds, clock)
        place.replicas = replicas
        await place.make_planes()
        yield place


Change = Callable[[RotationNamespace, int], Awaitable[None]]


async def change_tags(site: RotationNamespace, turn: int) -> None:
    await site.change(tags={"round": str(turn)})


async def change_key_name(site: RotationNamespace, turn: int) -> None:
    await site.change(key={"name": f"named-{turn}"})


async def change_organization(site: RotationNamespace, turn: int) -> None:
    await site.change(organizationName=ORGANIZATIONS[turn % 2])


async def change_control_plane(site: RotationNamespace, turn: int) -> None:
    await site.change(controlPlaneRef={"name": PLANES[turn % 2]})


async def change_url(site: RotationNamespace, turn: int) -> None:
    plane = (await site.client.get(PROVISIONER, site.key)).spec.control_plane_ref.name
    url = f"http://{plane}.{site.namespace}.svc.cluster.local:{8000 + turn}"
    await site.client.merge(CONTROL_PLANE, Key(site.namespace, plane), {"status": {"url": url}}, "status")


async def change_secret_name(site: RotationNamespace, turn: int) -> None:
    await site.change(key={"secretName": f"kept-{turn}"})


async def change_pods(site: RotationNamespace, turn: int) -> None:
    back = {**dict.fromkeys(OTHER_PODS), "replicas": site.replicas}
    await site.change(**(OTHER_PODS if turn % 2 else back))


async def change_rights(site: RotationNamespace, turn: int) -> None:
    await site.change(**RIGHTS[turn % 3])


async def delete_secret(site: RotationNamespace, turn: int) -> None:
    await site.delete(SECRET, await site.secret_name())


async def empty_secret(site: RotationNamespace, turn: int) -> None:
    await site.client.merge(SECRET, Key(site.namespace, await site.secret_name()), {"data": {"key": ""}})


async def delete_key(site: RotationNamespace, turn: int) -> None:
    [(plane, key)] = site.found()
    site.coderds[plane].state.delete_key(key.name, key.organization)


async def request(site: RotationNamespace, turn: int) -> None:
    await site.client.merge(PROVISIONER, site.key, {"metadata": {"annotations": {REQUEST: f"request-{turn}"}}})


ROTATIONS: dict[str, Change] = {
    "tags": change_tags,
    "key name": change_key_name,
    "organization": change_organization,
    "control plane": change_control_plane,
    "secret deleted": delete_secret,
    "secret emptied": empty_secret,
    "key deleted": delete_key,
    "request": request,
}
"""Every change that makes the operator replace the key, except its age, which tests advance."""
