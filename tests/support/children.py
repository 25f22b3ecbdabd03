"""What operators made, as it can be compared with what others made at another time."""

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
    """All that operators made there."""
    return [
        (kind, kind.type.decode(item))
        for kind in kinds
        for namespace in namespaces
        async for page in client.list(kind, namespace, labels=MANAGED)
        for item in page.items
    ]


async def collect_garbage(client: Client, children: Children) -> bool:
    """Remove what had an owner, as Kubernetes does; whether there was any. The rest is for the operator to remove."""
    orphans = [(kind, child) for kind, child in children if child.controller is not None]
    for kind, child in orphans:
        await client.delete(kind, child, unchanged=False)
    return bool(orphans)


def lines(children: Children, uid: str) -> set[tuple[str, str]]:
    """All that an operator decides about children, whichever object of that name they are of."""
    manifests = [(kind, child, json.loads(json.dumps(child.manifest).replace(uid, "uid"))) for kind, child in children]
    entries = (entry for kind, child, manifest in manifests for entry in flat(manifest, f"{kind.name} {child.key}"))
    return {entry for entry in entries if not VOLATILE.search(entry[0])}


def flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every value in an object that holds no other, with its path."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield path, repr(value)
    for name, item in inner:
        yield from flat(item, f"{path}.{name}")
