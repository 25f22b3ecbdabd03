"""Environment variables of a container. Nothing here does I/O."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coder_k8s.kube.objects import Manifest

from . import quantity

REFERENCE = re.compile(r"\$(\$|\((?P<name>[^)]*)\))")
SUBSCRIPT = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")
KEY_REFS = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}
OBJECT_REFS = {"secretRef": "Secret", "configMapRef": "ConfigMap"}
ALLOCATABLE = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti"}
"""Resources of the node, which a container without a limit has."""

Source = tuple[str, str]
"""Kind and name of a Secret or ConfigMap in the namespace of the pod."""
Sources = Mapping[Source, Mapping[str, bytes] | None]
"""The content of each; `None` if it does not exist."""


class ConfigError(Exception):
    """A container cannot be configured; the message is that of a kubelet."""


@dataclass(frozen=True)
class Addresses:
    """Addresses of a pod and its node, as processes of the pod see them."""

    pod: str
    host: str


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace references to variables.

    | text      | result                                          |
    |-----------|-------------------------------------------------|
    | `$(NAME)` | the value; unchanged if there is no such variable |
    | `$$`      | `$`, so `$$(NAME)` becomes `$(NAME)`            |
    | other     | unchanged                                       |
    """
    return REFERENCE.sub(lambda match: "$" if match[1] == "$" else variables.get(match["name"], match[0]), text)


def sources(container: Manifest) -> set[Source]:
    """Return the Secrets and ConfigMaps that a container references in its environment."""
    keys = [entry.get("valueFrom", {}) for entry in container.get("env", [])]
    return {
        *((kind, each[field]["name"]) for each in keys for field, kind in KEY_REFS.items() if field in each),
        *(
            (kind, each[field]["name"])
            for each in container.get("envFrom", [])
            for field, kind in OBJECT_REFS.items()
            if field in each
        ),
    }


def environment(
    container: Manifest, pod: Manifest, addresses: Addresses, found: Sources, defaults: Mapping[str, str]
) -> dict[str, str]:
    """Return all variables of a container, in order: those of the image, of `envFrom`, of `env`."""
    variables = dict(defaults)
    for entry in container.get("envFrom", []):
        variables |= {entry.get("prefix", "") + name: value for name, value in _all_values(entry, found)}
    for entry in container.get("env", []):
        value = _value(entry, container, pod, addresses, found)
        if value is not None:
            variables[entry["name"]] = expand(value, variables) if "valueFrom" not in entry else value
    return variables


def _all_values(entry: Manifest, found: Sources) -> Iterator[tuple[str, str]]:
    for field, kind in OBJECT_REFS.items():
        if field not in entry:
            continue
        reference = entry[field]
        content = found[kind, reference["name"]]
        if content is None and not reference.get("optional"):
            raise ConfigError(f'{kind.lower()} "{reference["name"]}" not found')
        for name, value in (content or {}).items():
            yield name, value.decode(errors="replace")


def _value(entry: Manifest, container: Manifest, pod: Manifest, addresses: Addresses, found: Sources) -> str | None:
    """Return the value of an entry; `None` if an optional source does not have it."""
    source: Manifest = entry.get("valueFrom") or {}
    if not source:
        return str(entry.get("value", ""))
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], addresses)
    if "resourceFieldRef" in source:
        return _resource(container, pod, source["resourceFieldRef"])
    for name, kind in KEY_REFS.items():
        if name in source:
            return _key(kind, source[name], pod, found)
    raise ConfigError(f"the variable {entry['name']} has an unsupported source: {', '.join(source)}")


def _key(kind: str, reference: Manifest, pod: Manifest, found: Sources) -> str | None:
    name, key = reference["name"], reference["key"]
    content = found[kind, name]
    if content is not None and key in content:
        return content[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    if content is None:
        raise ConfigError(f'{kind.lower()} "{name}" not found')
    raise ConfigError(f"couldn't find key {key} in {kind} {pod['metadata']['namespace']}/{name}")


def field(pod: Manifest, path: str, addresses: Addresses) -> str:
    """Return a field of a pod (the downward API)."""
    if match := SUBSCRIPT.fullmatch(path):
        return str(pod["metadata"].get(match["map"], {}).get(match["key"], ""))
    spec = pod["spec"]
    fields: dict[str, Any] = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"].get("namespace", ""),
        "metadata.uid": pod["metadata"].get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": addresses.host,
        "status.hostIPs": addresses.host,
        "status.podIP": addresses.pod,
        "status.podIPs": addresses.pod,
    }
    if path not in fields:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return str(fields[path])


def _resource(container: Manifest, pod: Manifest, reference: Manifest) -> str:
    containers = {each["name"]: each for each in pod["spec"]["containers"]}
    of = containers.get(reference.get("containerName", ""), container).get("resources", {})
    when, _, name = reference["resource"].partition(".")
    amount = of.get(when, {}).get(name)
    if amount is None:
        amount = ALLOCATABLE.get(name, "0") if when == "limits" else "0"
    return quantity.divided(str(amount), str(reference.get("divisor") or "0"))
