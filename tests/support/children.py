"""Children of operators, in a form that can be compared across operators and runs."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Kind, Unstructured

VOLATILE = re.compile(
    r"\.metadata\.(uid|resourceVersion|generation|creationTimestamp|labels\.coder\.com/applied-digest)\b"
    r"|\.(status|apiVersion|kind|data)\b|clusterIP|nodePort|checksum/(proxy-token|provisioner-key)"
)

Children = Sequence[tuple[Kind[Unstructured], Unstructured]]


async def managed(client: Client, kinds: Sequence[Kind[Unstructured]], namespaces: Sequence[str]) -> Children:
    """All children that operators created in these namespaces."""
    return [
        (kind, kind.type.decode(item))
        for kind in kinds
        for namespace in namespaces
        async for page in client.list(kind, namespace, labels=MANAGED)
        for item in page.items
    ]


async def collect_garbage(client: Client, children: Children) -> bool:
    """Delete children whose owner is gone, as Kubernetes does; return whether there were any."""
    orphans = [(kind, child) for kind, child in children if child.controller is not None]
    for kind, child in orphans:
        await client.delete(kind, child, unchanged=False)
    return bool(orphans)


def lines(children: Children, uid: str) -> set[tuple[str, str]]:
    """All fields of children that an operator sets, independent of the UID of the owner."""
    manifests = [(kind, child, json.loads(json.dumps(child.manifest).replace(uid, "uid"))) for kind, child in children]
    entries = (entry for kind, child, manifest in manifests for entry in flat(manifest, f"{kind.name} {child.key}"))
    return {entry for entry in entries if not VOLATILE.search(entry[0])}


def flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every leaf value of an object with its path."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield path, repr(value)
    for name, item in inner:
        yield from flat(item, f"{path}.{name}")
