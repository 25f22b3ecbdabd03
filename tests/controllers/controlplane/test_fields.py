"""Every field of the spec is set on a live object and removed again; the children follow."""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Manifest
from tests.support import eventually
from tests.support.children import flat
from tests.support.installation import CONFIG
from tests.support.manifests import parse
from tests.support.operators import Operator

from .administrator import ensure_gateway_api, operator_of
from .fields import AWAY, FIXED, HOME, KUBERNETES_OWN, NAME, NEED_AN_UPDATE, NEED_CODERD, NOTHING, ROWS, Look, Row
from .planes import Observer, manifest, observing, rolling_out


def leaves(schema: Manifest, path: str = "") -> Iterator[str]:
    """Every field without subfields."""
    for name, inner in schema["properties"].items():
        if "properties" in inner and name not in KUBERNETES_OWN:
            yield from leaves(inner, f"{path}{name}.")
        else:
            yield path + name


def test_every_field_has_a_row() -> None:
    crd = parse((CONFIG / "crd" / f"{CONTROL_PLANE.plural}.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = [row.field for row in ROWS]
    assert len(rows) == len(set(rows))
    assert {*rows} | FIXED | NEED_CODERD | NEED_AN_UPDATE == set(leaves(schema))


@pytest.fixture
async def observer(gateway_cluster: Cluster) -> AsyncIterator[Observer]:
    """Watches two namespaces with the children of a control plane, whose Deployment is rolled out immediately."""
    ensure_gateway_api(gateway_cluster)
    for name, labels in ((HOME, {}), (AWAY, {"coder.com/workspaces-from": HOME})):
        gateway_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    async with observing(gateway_cluster.kubeconfig, [HOME, AWAY]) as observer, rolling_out(observer):
        yield observer


async def test_children_follow_some_fields(gateway_cluster: Cluster, observer: Observer) -> None:
    await children_follow(gateway_cluster, observer, ROWS[::4])


@pytest.mark.campaign
@pytest.mark.timeout(400)
async def test_children_follow_every_field(gateway_cluster: Cluster, observer: Observer) -> None:
    await children_follow(gateway_cluster, observer, ROWS)


async def children_follow(cluster: Cluster, observer: Observer, rows: Sequence[Row]) -> None:
    async with Operator(operator_of(cluster), [""], wiring.build):
        await observer.client.create(CONTROL_PLANE, manifest(HOME, NAME))
        await eventually(lambda: {kind for kind, _ in observer.children()} == BASICS)
        before = state(observer)
        for row in rows:
            await drive(observer, row)
            await eventually(partial(is_steady, observer, row, before))


BASICS = {kind.name for kind in (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)}


async def drive(observer: Observer, row: Row) -> None:
    """Set a field and remove it; the fields that it needs stay until the end."""
    for look in row.looks:
        assert find(observer, look) != look.then, f"{row.field} has no effect"
    await observer.change(HOME, NAME, **spec({**row.given, row.field: row.value}))
    for look in row.looks:
        await eventually(partial(shows, observer, row, look, look.then))
    await observer.change(HOME, NAME, **spec({row.remove or row.field: None}))
    for look in row.looks:
        await eventually(partial(shows, observer, row, look, look.after))
    await observer.change(HOME, NAME, **spec({name.split(".")[0]: None for name in row.given}))


def shows(observer: Observer, row: Row, look: Look, expected: Any) -> bool:
    assert (row.field, look.path, find(observer, look)) == (row.field, look.path, expected)
    return True


def find(observer: Observer, look: Look) -> Any:
    """The value at a path; list items are found by index or by name."""
    if not observer.has(look.kind, look.namespace, look.name):
        return NOTHING
    value: Any = observer.get(look.kind, look.namespace, look.name).manifest
    for step in look.path:
        if isinstance(value, list):
            value = dict(enumerate(value)) if isinstance(step, int) else {item["name"]: item for item in value}
        if step not in value:
            return NOTHING
        value = value[step]
    return value


def spec(fields: dict[str, Any]) -> Manifest:
    """A patch from dotted names."""
    patch: Manifest = {}
    for field, value in fields.items():
        *parents, last = field.split(".")
        place = patch
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return patch


def state(observer: Observer) -> set[tuple[str, str]]:
    """All fields of the children that the operator sets, labels included, as paths with their values."""
    return {
        entry
        for (kind, key), child in observer.children().items()
        for entry in flat(child.manifest, f"{kind} {key}")
        if not VOLATILE.search(entry[0])
    }


VOLATILE = re.compile(r"\.(metadata\.(uid|resourceVersion|generation|creationTimestamp)|status|apiVersion|kind)\b")


def is_steady(observer: Observer, row: Row, before: set[tuple[str, str]]) -> bool:
    now = state(observer)
    assert (row.field, now - before, before - now) == (row.field, set(), set())
    return True
