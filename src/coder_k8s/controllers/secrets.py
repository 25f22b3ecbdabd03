"""One value of a Secret that somebody else keeps."""

import base64

from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key, PartialObject, Unstructured


class SecretReader:
    """Reads a value by name; the watch of metadata spares the question where there is no such Secret."""

    def __init__(self, client: Client, secrets: Cache[PartialObject]) -> None:
        self._client = client
        self._secrets = secrets

    def exists(self, key: Key) -> bool:
        return self._secrets.get(key) is not None

    async def read(self, key: Key, field: str) -> str:
        """The value without white space around it; empty when the Secret, the field or the value is missing."""
        if not self.exists(key):
            return ""
        try:
            return value(await self._client.get(SECRET, key), field)
        except errors.NotFound:
            return ""


def value(secret: Unstructured, field: str) -> str:
    data: dict[str, str] = secret.manifest.get("data") or {}
    return base64.b64decode(data.get(field, "")).decode(errors="replace").strip()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
