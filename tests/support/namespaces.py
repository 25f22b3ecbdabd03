"""A namespace with Coder and the objects under test, from the point of view of a user."""

from pathlib import Path
from typing import Any, Generic, TypeVar

from coder_k8s.coderd.connections import Endpoint
from coder_k8s.kube.client import Client
from coder_k8s.kube.conditions import Condition
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured
from tests.support import eventually, objects
from tests.support.children import Children, managed
from tests.support.clock import Clock
from tests.support.operators import Builder, Operator

T = TypeVar("T", bound=Object)


class Namespace(Generic[T]):
    """Objects of one kind and the operator that reconciles them; `key` is the object under test."""

    kind: Kind[T]
    builders: tuple[Builder, ...]
    children_kinds: tuple[Kind[Unstructured], ...] = ()
    deployment_prefix = ""
    timeout = 30.0
    """The default time to wait for a condition or a deletion, in seconds."""

    def __init__(self, client: Client, kubeconfig: Path, key: Key, clock: Clock) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        """The kubeconfig of the operator."""
        self.namespace, self.name = key.namespace, key.name
        self.clock = clock
        self.watched = [key.namespace]
        """The namespaces that the operator watches."""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    def key_of(self, name: str = "") -> Key:
        """The key of an object in this namespace; by default that of the object under test."""
        return Key(self.namespace, name or self.name)

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        """The local endpoint of each Service."""
        return {}

    def operator(self, **options: Any) -> Operator:
        options = {"connect_to": self.routes, "now": self.clock, "user": self.client, **options}
        operator = Operator(self.kubeconfig, self.watched, *self.builders, **options)
        operator.key = self.key
        return operator

    async def make(self, name: str = "", **spec: Any) -> T:
        return await objects.create(self.client, self.kind, self.key_of(name), spec)

    async def change(self, name: str = "", **spec: Any) -> None:
        """Change the spec; `None` removes a field."""
        await self.client.merge(self.kind, self.key_of(name), {"spec": spec})

    async def get(self, name: str = "") -> T:
        return await self.client.get(self.kind, self.key_of(name))

    async def find(self, kind: Kind[Any], name: str) -> Any:
        """An object in this namespace, or None."""
        return await objects.find(self.client, kind, self.key_of(name))

    async def delete(self, kind: Kind[Any], name: str) -> None:
        await objects.delete(self.client, kind, self.key_of(name))

    async def gone(self, kind: Kind[Any], name: str, within: float | None = None) -> None:
        """Wait until the object does not exist."""
        await objects.gone(self.client, kind, self.key_of(name), within or self.timeout)

    async def set_annotations(self, kind: Kind[Any], name: str, annotations: dict[str, str | None]) -> None:
        await objects.annotate(self.client, kind, self.key_of(name), annotations)

    async def put_secret(self, secret: str, **values: str) -> None:
        """Create a Secret, or replace its content."""
        await objects.put_data(self.client, SECRET, self.key_of(secret), values)

    async def secret_value(self, secret: str, field: str) -> str:
        """A value in a Secret; empty if it does not exist."""
        return await objects.secret_value(self.client, self.key_of(secret), field)

    async def children(self) -> Children:
        """All children that the operator created in this namespace."""
        return await managed(self.client, self.children_kinds, [self.namespace])

    async def deployment(self, name: str = "") -> Unstructured:
        """Wait for a Deployment; by default that of the object under test."""
        key = self.key_of(name or self.deployment_prefix + self.name)
        found = await eventually(lambda: objects.find(self.client, DEPLOYMENT, key))
        assert found is not None
        return found

    async def roll_out(self, ready: int = 1, name: str = "") -> None:
        """Report a Deployment as rolled out; by default that of the object under test."""
        await objects.roll_out(self.client, self.key_of(name or self.deployment_prefix + self.name), ready)

    async def condition(
        self,
        type: str,  # noqa: A002 - the field's name in Kubernetes
        reason: str,
        status: str = "",
        *,
        name: str = "",
        within: float | None = None,
    ) -> Condition:
        """Wait until the condition has this reason at the current generation, and return it."""
        within = within or self.timeout
        return await objects.condition(self.client, self.kind, self.key_of(name), type, reason, status, within)

    async def message(self, type: str, reason: str, expected: str, *, name: str = "") -> None:  # noqa: A002
        """Wait until the condition has this reason and message."""

        async def check() -> bool:
            found = await self.condition(type, reason, name=name)
            assert found.message == expected, found
            return True

        await eventually(check)

    async def conditions(self, name: str = "") -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        return await objects.conditions(self.client, self.kind, self.key_of(name))

    async def events(self, reason: str = "", name: str = "") -> list[Manifest]:
        """The events of an object, oldest first."""
        return await objects.events(self.client, self.key_of(name), reason)

    async def event(self, reason: str, name: str = "") -> Manifest:
        """Wait for the only event with this reason."""
        found = await eventually(lambda: self.events(reason, name))
        assert len(found) == 1, found
        return found[0]

    async def note(self, reason: str, name: str = "") -> str:
        """Wait for an event with this reason, and return the note of the newest."""
        found = await eventually(lambda: self.events(reason, name))
        return str(found[-1]["note"])
