"""Files of `emptyDir`, Secret and ConfigMap volumes.

A process does not see them at their mount path: `paths` has the folder of each mount path, for `localize`. Files are
written when the pod starts and do not follow later changes.
"""

from collections.abc import Mapping
from pathlib import Path

from coder_k8s.kube.objects import Manifest

from .environment import ConfigError, Source, Sources

Files = Mapping[str, bytes]
NAMES = {"secret": ("Secret", "secretName"), "configMap": ("ConfigMap", "name")}
SUPPORTED = frozenset({"emptyDir", *NAMES})


def sources(pod: Manifest) -> set[Source]:
    """Return the Secrets and ConfigMaps of the volumes of a pod."""
    return {
        (kind, volume[field][name])
        for volume in pod["spec"].get("volumes", [])
        for field, (kind, name) in NAMES.items()
        if field in volume
    }


def files(volume: Manifest, found: Sources) -> Files:
    """Return the files of a volume, by path; raise `ConfigError` if a source or a key is missing."""
    for field, (kind, name) in NAMES.items():
        if field not in volume:
            continue
        wanted = volume[field]
        content, optional = found[kind, wanted[name]], wanted.get("optional", False)
        if content is None and not optional:
            raise ConfigError(f'{kind.lower()} "{wanted[name]}" not found')
        if "items" not in wanted:
            return content or {}
        return _items(wanted, content or {}, optional=optional)
    return {}


def _items(wanted: Manifest, content: Files, *, optional: bool) -> Files:
    selected = {}
    for item in wanted["items"]:
        if item["key"] in content:
            selected[item["path"]] = content[item["key"]]
        elif not optional:
            raise ConfigError(f"references non-existent key: {item['key']}")
    return selected


def write(folder: Path, content: Files) -> None:
    """Write the files of a volume, readable only by the user."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"the path {name} is outside of the volume")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data)


def paths(container: Manifest, volumes: Path) -> dict[str, str]:
    """Return the folder or file on this machine of each mount path; `volumes` has one folder per volume."""
    return {
        mount["mountPath"].rstrip("/"): str(volumes / mount["name"] / mount.get("subPath", ""))
        for mount in container.get("volumeMounts", [])
    }
