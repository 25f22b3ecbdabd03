"""The ConfigMaps and Secrets that the environment of the pods comes from.

Only their metadata is watched. Values are read when the resourceVersion changes, and only digests are kept.
`status.configChecksum` records the digest of every source: after a restart of the operator, a source that changed rolls
the pods, and a source that was not recorded before does not.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from coder_k8s.api import CoderControlPlane
from coder_k8s.controllers.secrets import values
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import CONFIG_MAP, SECRET
from coder_k8s.kube.objects import Key, Kind, PartialObject, Unstructured

from .deployment import ACCESS_URL

URL_LIMIT = 2048
Read = dict[tuple[str, Key], tuple[str, dict[str, str], dict[str, str]]]
"""By kind and name of a source: its resourceVersion, the digests of its values, and the URLs in a ConfigMap."""
KINDS: dict[str, Kind[Unstructured]] = {"Secret": SECRET, "ConfigMap": CONFIG_MAP}


class Source(msgspec.Struct, frozen=True):
    """All keys of a ConfigMap or Secret, or one of them."""

    kind: str
    name: str
    key: str = ""
    prefix: str = ""
    optional: bool = False

    def absence(self, *, exists: bool) -> str:
        """What is missing: the ConfigMap or Secret, or its key."""
        return f"{self.kind} {self.name} " + (f"has no key {self.key}" if exists else "does not exist")

    def __str__(self) -> str:
        """As it is recorded, without spaces: the names in a spec are not validated."""
        return "/".join(quote(part) for part in (self.kind, self.name, self.key) if part)


class Environment(NamedTuple):
    """The state of the sources; a source that does not exist has no digest."""

    digests: Mapping[str, str] = {}
    missing: tuple[str, ...] = ()
    """Why pods cannot start, one sentence per source that is not optional."""
    defines_access_url: bool = False
    access_url: str = ""
    """`CODER_ACCESS_URL` of the spec; empty if it is not set, or in a Secret."""
    may_define_access_url: bool = False
    """Whether a source is missing that may define `CODER_ACCESS_URL`."""


class Checksum(msgspec.Struct, frozen=True):
    """The annotation of the pod template, and `status.configChecksum`."""

    annotation: str
    recorded: str


def sources(plane: CoderControlPlane) -> Iterator[Source]:
    """Every ConfigMap and Secret in `envFrom` and `extraEnv`."""
    yield from whole_sources(plane)
    for entry in plane.spec.extra_env:
        yield from sources_of_variable(entry)


def whole_sources(plane: CoderControlPlane) -> Iterator[Source]:
    """The ConfigMaps and Secrets of `envFrom`, all keys of which become variables."""
    for entry in plane.spec.env_from:
        for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if reference := entry.get(field):
                name, optional = reference.get("name", ""), reference.get("optional", False)
                yield Source(kind, name, "", entry.get("prefix", ""), optional)


def sources_of_variable(entry: Mapping[str, Any]) -> Iterator[Source]:
    """The key of a ConfigMap or Secret that a variable of `extraEnv` refers to."""
    for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if reference := entry.get("valueFrom", {}).get(field):
            yield Source(kind, reference.get("name", ""), reference["key"], "", reference.get("optional", False))


def judge(previous: str, environment: Environment, annotation: str) -> Checksum:
    """The checksum of the environment: it changes, and rolls the pods, when the content of a recorded source changes.

    A source that was deleted keeps its digest, so that creating it again without a change rolls no pods.
    """
    known = dict(entry.rsplit("=", 1) for entry in previous.split() if "=" in entry)
    current = {name: digest or known.get(name, "") for name, digest in environment.digests.items()}
    changed = any(known.get(name) and known[name] != digest for name, digest in current.items())
    recorded = " ".join(f"{name}={digest}" for name, digest in sorted(current.items()))
    return Checksum(_digest(recorded) if changed else annotation, recorded)


def judge_held(previous: str, environment: Environment, annotation: str) -> Checksum:
    """The checksum while an update holds the pod template: only of the sources that this template may have."""
    known = dict(entry.rsplit("=", 1) for entry in previous.split() if "=" in entry)
    held = {name: environment.digests.get(name) or digest for name, digest in known.items()}
    return judge(previous, environment._replace(digests=held), annotation)


class Sources:
    """Reads sources, each resourceVersion once."""

    def __init__(self, client: Client, secrets: Cache[PartialObject], config_maps: Cache[PartialObject]) -> None:
        self._client = client
        self._metadata = {"Secret": secrets, "ConfigMap": config_maps}
        self._read: dict[Key, Read] = {}
        """By control plane."""

    def forget(self, plane: Key) -> None:
        self._read.pop(plane, None)

    async def environment(self, plane: CoderControlPlane) -> Environment:
        digests: dict[str, str] = {}
        missing: list[str] = []
        defines, access_url = False, ""
        named = {(source.kind, Key(plane.metadata.namespace, source.name)) for source in sources(plane)}
        known = self._read[plane.key] = {
            each: read for each, read in self._read.get(plane.key, {}).items() if each in named
        }
        for source in sources(plane):
            content = await self._content(source.kind, Key(plane.metadata.namespace, source.name), known)
            digest = _digest_of(source, content, plane.metadata.uid)
            digests[str(source)] = digest
            if not digest and not source.optional:
                missing.append(source.absence(exists=content is not None))
            if not source.key and content is not None and ACCESS_URL in {source.prefix + key for key in content}:
                defines, access_url = True, _urls(plane, source, known).get(ACCESS_URL.removeprefix(source.prefix), "")
        for entry in plane.spec.extra_env:
            if entry["name"] == ACCESS_URL:
                referenced = (_urls(plane, source, known).get(source.key) for source in sources_of_variable(entry))
                access_url = _url(entry.get("value", "")) or next(referenced, None) or ""
        unknown = any(not digests[str(source)] for source in _of_access_url(plane) if not source.optional)
        return Environment(digests, tuple(dict.fromkeys(missing)), defines, access_url, unknown)

    async def _content(self, kind: str, key: Key, known: Read) -> dict[str, str] | None:
        """The digest of every value by its key; `None` if the object does not exist."""
        partial = self._metadata[kind].get(key)
        if partial is None:
            known.pop((kind, key), None)
            return None
        version, content, _ = known.get((kind, key), ("", {}, {}))
        if version != partial.metadata.resource_version:
            try:
                live = await self._client.get(KINDS[kind], key)
            except errors.NotFound:
                return None
            read = values(live.manifest)
            content = {name: _digest(value) for name, value in read.items()}
            urls = {name: url for name, value in read.items() if (url := _url(value.decode(errors="replace")))}
            known[kind, key] = (live.metadata.resource_version, content, urls if kind == "ConfigMap" else {})
        return content


def _of_access_url(plane: CoderControlPlane) -> Iterator[Source]:
    """The sources that may define the access URL: that of its variable, or all that are used as a whole."""
    entries = [entry for entry in plane.spec.extra_env if entry["name"] == ACCESS_URL]
    if not entries:
        yield from whole_sources(plane)
    for entry in entries:
        yield from sources_of_variable(entry)


def _urls(plane: CoderControlPlane, source: Source, known: Read) -> dict[str, str]:
    """The URLs in a ConfigMap, by key."""
    return known.get((source.kind, Key(plane.metadata.namespace, source.name)), ("", {}, {}))[2]


def _url(value: str) -> str:
    """The value, if it is a URL with a host that can be shown: without credentials and other variables."""
    hidden = "@" in value or "$(" in value or len(value) > URL_LIMIT or not value.isprintable() or " " in value
    if hidden or not value.startswith(("http://", "https://")):
        return ""
    try:
        return value if urlsplit(value).hostname else ""
    except ValueError:
        return ""


def _digest_of(source: Source, content: dict[str, str] | None, salt: str) -> str:
    if content is None or (source.key and source.key not in content):
        return ""
    if source.key:
        return _digest(salt + content[source.key])
    return _digest(salt + " ".join(f"{name}={digest}" for name, digest in sorted(content.items())))


def _digest(value: bytes | str) -> str:
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()[:16]
