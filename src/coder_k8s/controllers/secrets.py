"""Values of Secrets and ConfigMaps."""

import base64
from collections.abc import Mapping

from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, Manifest, PartialObject, Unstructured


class SecretReader:
    """Reads a value of a Secret. Only the metadata of Secrets is watched, so the value comes from the API server."""

    def __init__(self, client: Client, secrets: Cache[PartialObject]) -> None:
        self._client = client
        self._secrets = secrets

    def exists(self, key: Key) -> bool:
        return self._secrets.get(key) is not None

    async def read(self, key: Key, field: str) -> str:
        """The value without surrounding white space; empty if the Secret, the field or the value is missing.

        The cache may not have a new Secret yet, so that it cannot decide that there is none.
        """
        try:
            return value(await self._client.get(SECRET, key), field)
        except errors.NotFound:
            return ""

    def missing(self, key: Key, field: str) -> str:
        """The message about a value that `read` returns as empty."""
        if not self.exists(key):
            return f"Secret {key.name} does not exist; create it with key {field}"
        return f"Secret {key.name} has no value for key {field}; set it"


def value(secret: Unstructured, field: str) -> str:
    """One value of a Secret without surrounding white space; empty if it is missing."""
    data: dict[str, str] = secret.manifest.get("data") or {}
    return base64.b64decode(data.get(field, "")).decode(errors="replace").strip()


def values(source: Manifest) -> dict[str, bytes]:
    """All values of a Secret or ConfigMap."""
    data: dict[str, str] = source.get("data") or {}
    if source["kind"] == SECRET.name:
        return decoded(data)
    return {**{name: text.encode() for name, text in data.items()}, **decoded(source.get("binaryData") or {})}


def decoded(data: Mapping[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in data.items()}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
