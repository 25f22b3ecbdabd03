"""Reads the artifacts of Flux sources, which Flux serves inside the cluster."""

import asyncio
from collections.abc import Mapping

from coder_k8s.api.reasons import Reason
from coder_k8s.api.reasons.template import SOURCE_INVALID, SOURCE_MISSING, SOURCE_NOT_READY
from coder_k8s.api.template_source import FluxRef
from coder_k8s.coderd.connections import Transport
from coder_k8s.coderd.errors import Unavailable
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SERVICE
from coder_k8s.kube.objects import Key

from .archive import InvalidFiles
from .artifacts import check_digest, extract, service_of
from .references import FLUX_KINDS, Artifact, FluxSource

HEADERS = {"Accept": "application/gzip, application/octet-stream"}
MAX_COMPRESSED = 10 * 1024 * 1024
"""Bytes of an artifact; also the limit of the connection pool."""
CONCURRENT = 2
"""Artifacts in memory at a time."""
RETRY = 30.0
RETRY_INVALID = 300.0


class SourceError(Exception):
    """The source of a template cannot be used. `retry`: seconds until another attempt is useful without a change."""

    def __init__(self, reason: Reason, message: str, retry: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry = retry

    def copy(self) -> "SourceError":
        """Return the same error without its traceback, to raise it again."""
        return SourceError(self.reason, self.message, self.retry)


class FluxReader:
    """Finds Flux sources, and downloads their artifacts."""

    def __init__(self, client: Client, transport: Transport, caches: Mapping[str, Cache[FluxSource]]) -> None:
        """`caches` are those of the kinds of Flux, by name; without one, sources come from the API server."""
        self._client = client
        self._transport = transport
        self._caches = caches
        self._downloads = asyncio.Semaphore(CONCURRENT)

    async def artifact(self, namespace: str, reference: FluxRef) -> Artifact:
        """Return the current artifact of a Flux source; raise `SourceError` if there is none."""
        kind, key = FLUX_KINDS[reference.kind], Key(namespace, reference.name)
        subject = f"{reference.kind} {reference.name}"
        try:
            cache = self._caches.get(kind.name)
            found = (cache and cache.get(key)) or await self._client.get(kind, key)
        except errors.NotFound as error:
            # The API server has another response for a kind that is not installed.
            absent = f"{subject} does not exist; create it, or correct source.fluxRef"
            missing = f"{subject} cannot exist: the cluster has no {kind.name} of Flux; install Flux 2.6 or newer"
            raise SourceError(SOURCE_MISSING, absent if error.reason == "NotFound" else missing) from None
        if found.status.artifact is None:
            raise SourceError(SOURCE_NOT_READY, f"{subject} has no artifact yet; see its condition Ready")
        return found.status.artifact

    async def files(self, reference: FluxRef, artifact: Artifact) -> dict[str, bytes]:
        """Download an artifact, and return the files in the path of the template."""
        subject = f"{reference.kind} {reference.name}"
        try:
            service = service_of(artifact.url)
            check_size(artifact)
            await self._check_service(subject, service)
            async with self._downloads:
                data = await self._download(subject, artifact)
                return await asyncio.to_thread(extract, data, reference.path)
        except InvalidFiles as error:
            raise SourceError(SOURCE_INVALID, f"{subject}: {error}") from None

    async def _check_service(self, subject: str, service: Key) -> None:
        """Raise `SourceError` unless the Service has addresses in the cluster.

        A Service of type ExternalName is an alias of any host, and the name of a Service that does not exist can be
        resolved by a search domain outside of the cluster. In a namespace whose Services the operator cannot read, it
        trusts every user who can create them.
        """
        where = f"{subject}: The artifact is at Service {service.name} of namespace {service.namespace}"
        try:
            found = await self._client.get(SERVICE, service)
        except errors.NotFound:
            raise SourceError(SOURCE_NOT_READY, f"{where}, which does not exist; it is not fetched", RETRY) from None
        except errors.Forbidden:
            return
        if found.manifest["spec"].get("type") == "ExternalName":
            message = f"{where}, which is an alias of a host outside the cluster (ExternalName); it is not fetched"
            raise SourceError(SOURCE_INVALID, message, RETRY_INVALID)

    async def _download(self, subject: str, artifact: Artifact) -> bytes:
        """Send one request. Redirects are not followed, because their target is not checked."""
        try:
            response = await self._transport.exchange("GET", artifact.url, HEADERS, None)
        except Unavailable as error:
            message = f"The artifact of {subject} cannot be fetched: {error}"
            raise SourceError(SOURCE_NOT_READY, message, RETRY) from None
        if 300 <= response.status < 400:
            message = f"{subject}: The response for the artifact is a redirect, which is not followed"
            raise SourceError(SOURCE_INVALID, message, RETRY_INVALID)
        if response.status != 200:
            message = f"The artifact of {subject} cannot be fetched: HTTP {response.status}"
            raise SourceError(SOURCE_NOT_READY, message, RETRY)
        try:
            check_digest(response.body, artifact.digest)
        except InvalidFiles as error:  # from a server that does not have what Flux reports
            raise SourceError(SOURCE_INVALID, f"{subject}: {error}", RETRY_INVALID) from None
        return response.body


def check_size(artifact: Artifact) -> None:
    """Raise `InvalidFiles` if an artifact is too large to be downloaded."""
    if (artifact.size or 0) > MAX_COMPRESSED:
        limit = f"at most {MAX_COMPRESSED // 1024**2} MiB are allowed"
        raise InvalidFiles(f"The artifact is too large, {limit}; exclude files with spec.ignore of the source")
