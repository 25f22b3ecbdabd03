"""Where the control plane's database is, as its own pods are told."""

import base64
from collections.abc import Iterator
from typing import Any

from coder_k8s.api import CoderControlPlane
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key

from .sources import KINDS

VARIABLE = "CODER_PG_CONNECTION_URL"


class URLMissing(Exception):
    """The spec does not say where the database is, or what it refers to is not there."""


async def connection_url(client: Client, plane: CoderControlPlane) -> str:
    """The value in the pods: `extraEnv` wins over `envFrom`, and there the last source wins."""
    entries = [entry for entry in plane.spec.extra_env if entry["name"] == VARIABLE]
    if len(entries) > 1:
        raise URLMissing(f"extraEnv defines {VARIABLE} more than once: keep one")
    if entries:
        return await _from_entry(client, plane, entries[0])
    for kind, name, prefix in reversed(list(_sources(plane))):
        values = await _values(client, kind, Key(plane.metadata.namespace, name))
        for key, value in values.items():
            if prefix + key == VARIABLE:
                return value
    raise URLMissing(f"neither extraEnv nor a source of envFrom defines {VARIABLE}")


async def _from_entry(client: Client, plane: CoderControlPlane, entry: dict[str, Any]) -> str:
    if value := entry.get("value"):
        if "$(" in value:
            raise URLMissing(f"{VARIABLE} is put together from other variables: give the whole URL, best in a Secret")
        return str(value)
    for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if reference := entry.get("valueFrom", {}).get(field):
            values = await _values(client, kind, Key(plane.metadata.namespace, reference.get("name", "")))
            if value := values.get(reference["key"]):
                return value
            raise URLMissing(f"{VARIABLE}: there is no key {reference['key']} in {kind} {reference.get('name', '')}")
    raise URLMissing(f"extraEnv defines {VARIABLE} without a value, a secretKeyRef or a configMapKeyRef")


def _sources(plane: CoderControlPlane) -> Iterator[tuple[str, str, str]]:
    for entry in plane.spec.env_from:
        for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if reference := entry.get(field):
                yield kind, reference.get("name", ""), entry.get("prefix", "")


async def _values(client: Client, kind: str, key: Key) -> dict[str, str]:
    try:
        data: dict[str, str] = (await client.get(KINDS[kind], key)).manifest.get("data") or {}
    except errors.NotFound:
        return {}
    if kind == "ConfigMap":
        return data
    return {name: base64.b64decode(value).decode(errors="replace") for name, value in data.items()}
