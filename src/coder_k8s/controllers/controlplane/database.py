"""The connection URL of the control plane's database, from the environment of its pods."""

from typing import Any

from coder_k8s.api import CoderControlPlane
from coder_k8s.controllers.secrets import decoded
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key

from .sources import KINDS, Source, sources_of_variable, whole_sources

VARIABLE = "CODER_PG_CONNECTION_URL"


class URLMissing(Exception):
    """The spec has no connection URL, or refers to a Secret or ConfigMap that does not have it."""


async def connection_url(client: Client, plane: CoderControlPlane) -> str:
    """The value that the pods get: `extraEnv` has precedence over `envFrom`, and later sources over earlier ones."""
    entries = [entry for entry in plane.spec.extra_env if entry["name"] == VARIABLE]
    if len(entries) > 1:
        raise URLMissing(f"{VARIABLE} is defined more than once in extraEnv; keep one")
    if entries:
        return await _from_entry(client, plane, entries[0])
    for source in reversed(list(whole_sources(plane))):
        for key, value in (await _values(client, plane, source) or {}).items():
            if source.prefix + key == VARIABLE:
                return value
    raise URLMissing(f"{VARIABLE} is defined neither in extraEnv nor in envFrom; set it to the URL of Coder's database")


async def _from_entry(client: Client, plane: CoderControlPlane, entry: dict[str, Any]) -> str:
    if value := entry.get("value"):
        if "$(" in value:
            raise URLMissing(f"{VARIABLE} contains other variables; set the complete URL, preferably in a Secret")
        return str(value)
    for source in sources_of_variable(entry):
        values = await _values(client, plane, source)
        if value := (values or {}).get(source.key):
            return value
        raise URLMissing(f"{source.absence(exists=values is not None)}, to which {VARIABLE} refers")
    raise URLMissing(f"{VARIABLE} in extraEnv has no value; set a value, a secretKeyRef or a configMapKeyRef")


async def _values(client: Client, plane: CoderControlPlane, source: Source) -> dict[str, str] | None:
    """The values of a source; `None` if it does not exist."""
    key = Key(plane.metadata.namespace, source.name)
    try:
        data: dict[str, str] = (await client.get(KINDS[source.kind], key)).manifest.get("data") or {}
    except errors.NotFound:
        return None
    if source.kind == "ConfigMap":
        return data
    return {name: value.decode(errors="replace") for name, value in decoded(data).items()}
