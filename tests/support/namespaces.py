"""A namespace with Coder and the objects under test, as their user sees it."""

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
    """Objects of one kind and the operator that reconciles them; `key` is the object that most tests are about."""

    kind: Kind[T]
    builders: tuple[Builder, ...]
    children_kinds: tuple[Kind[Unstructured], ...] = ()
    deployment_prefix = ""

    def __init__(self, client: Client, kubeconfig: Path, key: Key, clock: Clock) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        """The operator's."""
        self.namespace, self.name = key
        self.clock = clock
        self.watched = [key.namespace]
        """The namespaces that the operator watches."""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    def key_of(self, name: str = "") -> Key:
        """The key of an object in this namespace; of the object under test without a name."""
        return Key(self.namespace, name or self.name)

    @property
    def routes(self) -> dict[Endpoint, Endpoint]:
        """Which port of this machine is behind which Service."""
        return {}

    def operator(self, **options: Any) -> Operator:
        options = {"connect_to": self.routes, "now": self.clock, **options}
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
        """An object of this namespace, None when there is none."""
        return await objects.find(self.client, kind, self.key_of(name))

    async def delete(self, kind: Kind[Any], name: str) -> None:
        await objects.delete(self.client, kind, self.key_of(name))

    async def gone(self, kind: Kind[Any], name: str, within: float = 10) -> None:
        """Wait until there is no such object."""
        await objects.gone(self.client, kind, self.key_of(name), within)

    async def set_annotations(self, kind: Kind[Any], name: str, annotations: dict[str, str | None]) -> None:
        await objects.annotate(self.client, kind, self.key_of(name), annotations)

    async def put_secret(self, secret: str, **values: str) -> None:
        """Create a Secret, or replace its content."""
        await objects.put_data(self.client, SECRET, self.key_of(secret), values)

    async def secret_value(self, secret: str, field: str) -> str:
        """What a Secret holds; empty when it does not."""
        return await objects.secret_value(self.client, self.key_of(secret), field)

    async def children(self) -> Children:
        """All that the operator made here, for whichever object."""
        return await managed(self.client, self.children_kinds, [self.namespace])

    async def deployment(self, name: str = "") -> Unstructured:
        """A Deployment, as soon as it exists; that of the object under test without a name."""
        key = self.key_of(name or self.deployment_prefix + self.name)
        found = await eventually(lambda: objects.find(self.client, DEPLOYMENT, key))
        assert found is not None
        return found

    async def roll_out(self, ready: int = 1, name: str = "") -> None:
        """Have a Deployment report that it is rolled out; that of the object under test without a name."""
        await objects.roll_out(self.client, self.key_of(name or self.deployment_prefix + self.name), ready)

    async def condition(
        self,
        type: str,  # noqa: A002 - Kubernetes' own word
        reason: str,
        status: str = "",
        *,
        name: str = "",
        within: float = 10,
    ) -> Condition:
        """The condition, as soon as it has this reason at the present generation."""
        return await objects.condition(self.client, self.kind, self.key_of(name), type, reason, status, within)

    async def conditions(self, name: str = "") -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        return await objects.conditions(self.client, self.kind, self.key_of(name))

    async def events(self, reason: str = "", name: str = "") -> list[Manifest]:
        """The events about an object, oldest first."""
        return await objects.events(self.client, self.key_of(name), reason)

    async def event(self, reason: str, name: str = "") -> Manifest:
        """The one event of that reason, as soon as it is there."""
        found = await eventually(lambda: self.events(reason, name))
        assert len(found) == 1, found
        return found[0]

    async def note(self, reason: str, name: str = "") -> str:
        """What the newest event of that reason says, as soon as there is one."""
        found = await eventually(lambda: self.events(reason, name))
        return str(found[-1]["note"])
