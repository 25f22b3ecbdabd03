"""Reads kubeconfig files and resolves a context to its cluster and user."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coder_k8s.kube.errors import KubeError

T = TypeVar("T")


class ConfigError(KubeError):
    """The configuration or credentials are invalid; the message names the file and the fix."""


class _Struct(msgspec.Struct, rename="kebab", kw_only=True):
    """A part of a kubeconfig file; its repr contains no secrets."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class Extension(_Struct):
    """Data of a tool, under its own name."""

    name: str
    extension: Any = None


class Cluster(_Struct):
    """The address of an API server, and how to verify it."""

    server: str = ""
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    certificate_authority: Path | None = None
    certificate_authority_data: bytes | None = None
    proxy_url: str | None = None
    extensions: list[Extension] = []


class EnvVar(_Struct):
    """An additional environment variable of a plugin."""

    name: str
    value: str


class Exec(_Struct, rename="camel"):
    """An exec plugin, which creates credentials."""

    api_version: str
    command: str
    args: list[str] = []
    env: list[EnvVar] = []
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class User(_Struct):
    """Credentials, or where they come from."""

    client_certificate: Path | None = None
    client_certificate_data: bytes | None = None
    client_key: Path | None = None
    client_key_data: bytes | None = None
    token: str | None = None
    token_file: Path | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str = ""
    exec: Exec | None = None
    impersonate: str | None = msgspec.field(default=None, name="as")
    auth_provider: Any = None


class Context(_Struct):
    """A cluster, a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = "default"


class _NamedCluster(_Struct):
    name: str
    cluster: Cluster


class _NamedUser(_Struct):
    name: str
    user: User = msgspec.field(default_factory=User)


class _NamedContext(_Struct):
    name: str
    context: Context


class _File(_Struct):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


class ResolvedContext(msgspec.Struct, frozen=True):
    """The cluster and the user of a context, each with its origin for error messages."""

    cluster: Cluster
    cluster_origin: str
    user: User
    user_origin: str
    namespace: str


def resolve_context(paths: Sequence[Path], context: str | None = None) -> ResolvedContext:
    """Resolve the given context, or the current one. The first entry with a name wins, as in kubectl."""
    files = {path: _read(path) for path in paths}
    searched = ", ".join(map(str, paths))
    name = context or next((file.current_context for file in files.values() if file.current_context), "")
    if not name:
        raise ConfigError(
            f"{searched}: no current-context; select a context, or set one with `kubectl config use-context`"
        )

    contexts = {path: {entry.name: entry.context for entry in file.contexts} for path, file in files.items()}
    clusters = {path: {entry.name: entry.cluster for entry in file.clusters} for path, file in files.items()}
    users = {path: {entry.name: entry.user for entry in file.users} for path, file in files.items()}

    selected, context_origin = _find(contexts, "context", name, searched)
    cluster, cluster_origin = _find(clusters, "cluster", selected.cluster, context_origin)
    user, user_origin = (
        _find(users, "user", selected.user, context_origin) if selected.user else (User(), context_origin)
    )
    return ResolvedContext(cluster, cluster_origin, user, user_origin, selected.namespace)


def _find(entries: dict[Path, dict[str, T]], what: str, name: str, referrer: str) -> tuple[T, str]:
    for path, named in entries.items():
        if name in named:
            return named[name], f"{path}: {what} {name!r}"
    known = ", ".join(sorted({name for named in entries.values() for name in named})) or "none"
    raise ConfigError(f"{referrer}: {what} {name!r} not found (found: {known})")


def _read(path: Path) -> _File:
    import yaml  # not needed in a cluster

    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        # The library quotes the lines around the error, which may contain a token.
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError(f"{path}: is not YAML{where}") from None

    def resolve(_type: type, value: str) -> Path:
        return path.parent / value

    try:
        file = msgspec.convert(_without_nulls(content or {}), _File, dec_hook=resolve)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: is not a kubeconfig: {error}") from error
    for entry in file.users:
        if entry.user.exec and "/" in entry.user.exec.command:
            entry.user.exec.command = str(path.parent / entry.user.exec.command)
    return file


def _without_nulls(value: Any) -> Any:
    """Remove null values: kubectl writes `clusters: null` for an empty list."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
