"""Whether the CRDs are installed, and have the schema of this version."""

from collections.abc import Iterator
from typing import Any

from coder_k8s import __version__
from coder_k8s.api import RESOURCES
from coder_k8s.api.markers import Resource
from coder_k8s.console.session import Session
from coder_k8s.kube import errors
from coder_k8s.kube.discovery import missing_kinds
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from coder_k8s.manifests import crd, embedded

from .result import FAILED, OK, SKIPPED, Result, summary

NAME = "CRDs"
CRD = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    Unstructured,
    namespaced=False,
)
INSTALL = "run `kubectl apply --server-side --force-conflicts -k config/crd`"


async def check_crds(session: Session) -> Result:
    try:
        installed = {each.kind.plural: await _installed(session, each) for each in RESOURCES}
    except errors.Forbidden:
        return await _served(session)
    except errors.KubeError as error:
        return Result(NAME, FAILED, f"Cannot read the CRDs: {error}")
    missing = [plural for plural, found in installed.items() if found is None]
    if missing:
        return Result(NAME, FAILED, f"Not installed: {', '.join(missing)}; {INSTALL}")
    definitions, version = embedded.load(), __version__
    for resource in RESOURCES:
        found = installed[resource.kind.plural]
        assert found is not None  # noqa: S101 - none is missing
        if fields := outdated_fields(crd.definition(resource, definitions), found):
            name = resource.kind.plural
            return Result(NAME, FAILED, f"{name} is not of version {version}: {summary(fields)} differ; {INSTALL}")
    return Result(NAME, OK, f"{len(RESOURCES)} installed, of version {version}")


def outdated_fields(wanted: Manifest, found: Manifest) -> list[str]:
    """Return the fields whose schema is missing or differs. Fields that only the cluster has are ignored."""
    (new,) = wanted["spec"]["versions"]
    old: Manifest = next((each for each in found["spec"]["versions"] if each["name"] == new["name"]), {})
    new_schema, old_schema = (version.get("schema", {}).get("openAPIV3Schema", {}) for version in (new, old))
    return list(dict.fromkeys(_different(new_schema, old_schema, path="")))


def _different(new: Manifest, old: Manifest, path: str) -> Iterator[str]:
    for keyword, value in new.items():
        if keyword == "properties":
            for name, inner in value.items():
                field = f"{path}.{name}" if path else name
                before = old.get("properties", {}).get(name)
                if before is None:
                    yield field
                else:
                    yield from _different(inner, before, field)
        elif keyword in ("items", "additionalProperties") and isinstance(value, dict):
            yield from _different(value, _mapping(old.get(keyword)), path)
        elif keyword != "description" and old.get(keyword) != value:
            yield path


def _mapping(value: Any) -> Manifest:
    return value if isinstance(value, dict) else {}


async def _installed(session: Session, resource: Resource) -> Manifest | None:
    try:
        found = await session.client.get(CRD, Key("", f"{resource.kind.plural}.{resource.kind.group}"))
    except errors.NotFound:
        return None
    return found.manifest


async def _served(session: Session) -> Result:
    """Check only that the kinds are served, for a user who cannot read CRDs."""
    try:
        missing = await missing_kinds(session.http, [each.kind for each in RESOURCES])
    except errors.KubeError as error:
        return Result(NAME, FAILED, f"Cannot read which kinds are served: {error}")
    if missing:
        return Result(NAME, FAILED, f"Not installed: {', '.join(kind.plural for kind in missing)}; {INSTALL}")
    return Result(NAME, SKIPPED, "All kinds are served; you do not have permission to read the version of the CRDs")
