"""Reads what a version of a template is made of: files, variables and tags.

| source | files | revision |
|---|---|---|
| `inline` | those of the spec | generation of the object |
| `configMapRef` | one for each key, with `/` in place of `__` | resourceVersion of the ConfigMap |
| `fluxRef` | those in `path` of the artifact in the status of the Flux source | revision of the artifact |

Files and values of variables are not kept in memory. `summary` keeps their digest, and reads them again only after a
change of the object, the ConfigMap, the artifact or a Secret; an invalid source is also read once. Values of Secrets
are in neither messages nor status.
"""

import asyncio
import hashlib
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec

from coder_k8s.api.reasons.common import SECRET_MISSING
from coder_k8s.api.reasons.template import SOURCE_INVALID, SOURCE_MISSING
from coder_k8s.api.template import CoderTemplate, Variable
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.secrets import values
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import CONFIG_MAP, CONFIG_MAP_METADATA, SECRET
from coder_k8s.kube.objects import Key, Unstructured

from .archive import InvalidFiles, archive, content_digest
from .flux import FluxReader
from .flux import SourceError as SourceError
from .references import FLUX_KINDS

SEPARATOR = "__"
"""Stands for `/` in a key of a ConfigMap."""
ITERATIONS = 100_000
"""A digest of variables is visible in Coder and in the status, so that guessing a short secret value must be slow."""


class Source(msgspec.Struct, frozen=True, dict=True):
    """The files and variables of a template."""

    revision: str
    files: Mapping[str, bytes]
    variables: Mapping[str, str]
    tags: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Source(revision={self.revision!r}, tags={self.tags!r})"

    @cached_property
    def archive(self) -> bytes:
        return archive(self.files)

    @cached_property
    def digest(self) -> str:
        """The digest of files, variables and tags, in hexadecimal; without variables and tags, that of the archive."""
        return digest(content_digest(self.archive), self.variables, self.tags)


class Summary(NamedTuple):
    """The revision of a source, and the digest of files, variables and tags."""

    revision: str
    digest: str


class FileReader:
    """Reads the sources of templates from the API server and from Flux."""

    def __init__(self, client: Client, flux: FluxReader) -> None:
        self._client = client
        self._flux = flux

    async def read(self, template: CoderTemplate) -> Source:
        """Return files and variables; raise `SourceError` if they cannot be used."""
        revision, files = await self._files(template)
        variables = {variable.name: await self._value(template, variable) for variable in template.spec.variables}
        source = Source(revision, files, variables, template.spec.provisioner_tags)
        try:
            await asyncio.to_thread(lambda: source.digest)
        except InvalidFiles as error:
            raise SourceError(SOURCE_INVALID, f"{_subject(template)}: {error}") from None
        return source

    async def _files(self, template: CoderTemplate) -> tuple[str, Mapping[str, bytes]]:
        given = template.spec.source
        if given.inline is not None:
            files = {name: content.encode() for name, content in given.inline.files.items()}
            return f"generation {template.metadata.generation}", files
        if given.config_map_ref is not None:
            found = await self._config_map(Key(template.metadata.namespace, given.config_map_ref.name))
            contents = values(found.manifest)
            files = {name.replace(SEPARATOR, "/"): content for name, content in contents.items()}
            return f"resourceVersion {found.metadata.resource_version}", files
        if given.flux_ref is None:
            raise SourceError(SOURCE_INVALID, "source is empty; set one of inline, configMapRef and fluxRef")
        found_artifact = await self._flux.artifact(template.metadata.namespace, given.flux_ref)
        return found_artifact.revision, await self._flux.files(given.flux_ref, found_artifact)

    async def _config_map(self, key: Key) -> Unstructured:
        try:
            return await self._client.get(CONFIG_MAP, key)
        except errors.NotFound:
            message = f"ConfigMap {key.name} does not exist; create it, or correct source.configMapRef.name"
            raise SourceError(SOURCE_MISSING, message) from None

    async def _value(self, template: CoderTemplate, variable: Variable) -> str:
        """The value of a variable, exactly as in its Secret: a private key needs its last line break."""
        if variable.value_from is None:
            return variable.value
        reference = variable.value_from.secret_key_ref
        subject = f"Secret {reference.name} of variable {variable.name}"
        try:
            secret = await self._client.get(SECRET, Key(template.metadata.namespace, reference.name))
        except errors.NotFound:
            message = f"{subject} does not exist; create it with key {reference.key}"
            raise SourceError(SECRET_MISSING, message) from None
        value = values(secret.manifest).get(reference.key)
        if value is None:
            raise SourceError(SECRET_MISSING, f"{subject} has no key {reference.key}; add it")
        try:
            return value.decode()
        except UnicodeDecodeError:
            message = f"{subject} has a value for key {reference.key} that is not UTF-8 text; correct it"
        raise SourceError(SOURCE_INVALID, message)


class SourceReader(FileReader):
    """Reads the sources of templates, and keeps their digests."""

    def __init__(self, context: Context[CoderTemplate]) -> None:
        runtime = context.runtime
        sources = {name: runtime.informer(kind, optional=True) for name, kind in FLUX_KINDS.items()}
        super().__init__(context.client, FluxReader(context.client, runtime.coderd, sources))
        self._secrets = context.secrets
        self._config_maps = runtime.informer(CONFIG_MAP_METADATA)
        self._known: dict[Key, tuple[Hashable, Summary | SourceError]] = {}

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    async def summary(self, template: CoderTemplate) -> Summary:
        """Return revision and digest of the source; raise `SourceError` if it cannot be used."""
        identity = await self._identity(template)
        seen, known = self._known.get(template.key, (None, None))
        if known is None or seen != identity:
            try:
                source = await self.read(template)
                known = Summary(source.revision, source.digest)
            except SourceError as error:
                if error.reason != SOURCE_INVALID or error.retry is not None:
                    raise
                known = error
            self._known[template.key] = (identity, known)
        if isinstance(known, SourceError):
            raise known.copy()
        return known

    async def _identity(self, template: CoderTemplate) -> Hashable:
        """What changes whenever the source may have changed."""
        given, namespace = template.spec.source, template.metadata.namespace
        content: Hashable = ()
        if given.config_map_ref is not None:
            cached = self._config_maps.get(Key(namespace, given.config_map_ref.name))
            content = cached.metadata.resource_version if cached else ""
        elif given.flux_ref is not None:
            content = await self._flux.artifact(namespace, given.flux_ref)
        secrets = []
        for variable in template.spec.variables:
            if variable.value_from is not None:
                secret = self._secrets.get(Key(namespace, variable.value_from.secret_key_ref.name))
                secrets.append(secret.metadata.resource_version if secret else "")
        return template.metadata.uid, template.metadata.generation, content, tuple(secrets)


def digest(content: str, variables: Mapping[str, str], tags: Mapping[str, str]) -> str:
    """Return the digest of everything that makes a version; without variables and tags, that of its files."""
    if not variables and not tags:
        return content
    import json  # its text differs from that of msgspec, and versions have digests of it

    encoded = json.dumps([sorted(variables.items()), sorted(tags.items())]).encode()
    return hashlib.pbkdf2_hmac("sha256", encoded, content.encode(), ITERATIONS).hex()


def _subject(template: CoderTemplate) -> str:
    given = template.spec.source
    if given.config_map_ref is not None:
        return f"ConfigMap {given.config_map_ref.name}"
    return f"{given.flux_ref.kind} {given.flux_ref.name}" if given.flux_ref is not None else "Inline files"
