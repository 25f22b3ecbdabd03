"""The input of a report from the API server. It includes secrets, so it is kept in memory only."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from coder_k8s.controllers.labels import MANAGED
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    HTTP_ROUTE,
    INGRESS,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured, key_of

from .container_logs import Logs, skipped
from .objects import all_kinds, listed
from .operator import LABEL
from .session import Session

REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", Unstructured)
CHILDREN = (DEPLOYMENT, REPLICA_SET, POD, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS, HTTP_ROUTE)
EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)


@dataclass
class Bundle:
    """Objects, events and logs, and the problems when reading them."""

    objects: list[Manifest] = field(default_factory=list)
    """Coder resources, their children and the objects of the operator, with `kind` and `apiVersion`."""
    sources: list[Manifest] = field(default_factory=list)
    """Secrets and ConfigMaps of their namespaces, with their values."""
    events: list[Manifest] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    """Logs by path in the report."""
    versions: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unknown_secrets: set[str] = field(default_factory=set)
    """Namespaces whose Secrets cannot be listed."""


async def gather(session: Session, operator_namespace: str) -> Bundle:
    """Read everything that the user has permission to read. A rejected list does not affect the other lists."""
    bundle = Bundle()
    for own in all_kinds():
        bundle.objects += await _listed(session, bundle, own, session.namespace)
    for kind in CHILDREN:
        bundle.objects += await _listed(session, bundle, kind, session.namespace, MANAGED)
    namespaces = sorted({key_of(each).namespace for each in bundle.objects})
    operators = [
        each for kind in (DEPLOYMENT, POD) for each in await _listed(session, bundle, kind, operator_namespace, LABEL)
    ]
    bundle.objects += operators
    for namespace in sorted({*namespaces, operator_namespace}):
        bundle.sources += await _listed(session, bundle, SECRET, namespace)
        bundle.events += _about(bundle, await _listed(session, bundle, EVENT, namespace))
    for namespace in namespaces:
        bundle.sources += await _listed(session, bundle, CONFIG_MAP, namespace)
    await _read_logs(session, bundle, operators)
    await _read_version(session, bundle)
    return bundle


async def _listed(
    session: Session, bundle: Bundle, kind: Kind[Any], namespace: str, labels: str = ""
) -> list[Manifest]:
    whole = Kind(kind.group, kind.version, kind.name, kind.plural, Unstructured)
    try:
        found = await listed(session, whole, namespace, labels=labels)
    except errors.NotFound:
        return []  # the Gateway API may not be installed
    except errors.KubeError as error:
        scope = f"namespace {namespace}" if namespace else "all namespaces"
        bundle.problems.append(skipped(f"{kind.plural} in {scope}", error))
        if kind == SECRET:
            bundle.unknown_secrets.add(namespace)
        return []
    return [{**each.manifest, "apiVersion": kind.api_version, "kind": kind.name} for each in found]


async def _read_version(session: Session, bundle: Bundle) -> None:
    try:
        bundle.versions["kubernetes"] = msgspec.json.decode(await session.http.send("GET", "/version", {}, {}))
    except errors.KubeError as error:
        bundle.problems.append(skipped("version of Kubernetes", error))
    except ValueError as error:
        bundle.problems.append(f"Skipped (failed): version of Kubernetes: {error}")


def _about(bundle: Bundle, events: list[Manifest]) -> list[Manifest]:
    """Return the events for objects of the bundle."""
    known = {(each["kind"], key_of(each)) for each in bundle.objects}

    def regards(event: Manifest) -> bool:
        of = event.get("regarding", {})
        return (of.get("kind"), Key(of.get("namespace", ""), of.get("name", ""))) in known

    return [event for event in events if regards(event)]


async def _read_logs(session: Session, bundle: Bundle, operators: list[Manifest]) -> None:
    """Read the logs of the operator, then those of Coder and the daemons where all Secrets are known.

    The operator logs no secrets. The logs of Coder and Terraform can contain any value of a Secret.
    """
    logs = Logs(session, bundle.problems)
    of_operator = [each for each in operators if each["kind"] == POD.name]
    bundle.logs = {f"operator/{file}": text for file, text in (await logs.read(of_operator)).items()}
    pods = [each for each in bundle.objects if each["kind"] == POD.name and each not in operators]
    for namespace in sorted({key_of(pod).namespace for pod in pods}):
        if namespace in bundle.unknown_secrets:
            bundle.problems.append(f"Skipped (Secrets are unknown): logs of pods in namespace {namespace}")
            continue
        found = await logs.read([pod for pod in pods if key_of(pod).namespace == namespace])
        bundle.logs |= {f"logs/{namespace}/{file}": text for file, text in found.items()}
