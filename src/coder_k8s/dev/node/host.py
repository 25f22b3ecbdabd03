"""What all pods of a node have in common."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import aiohttp

from coder_k8s.controllers.secrets import values
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import EventReason, Recorder
from coder_k8s.kube.kinds import CONFIG_MAP, POD, SECRET
from coder_k8s.kube.objects import Key, Unstructured

from .delays import Delays
from .environment import Source, Sources
from .forwarder import Forwarders
from .images import Images

KINDS = {kind.name: kind for kind in (SECRET, CONFIG_MAP)}


@dataclass(frozen=True)
class Host:
    """The connections, folder, images and clock of a node."""

    client: Client
    http: aiohttp.ClientSession
    recorder: Recorder
    forwarders: Forwarders
    images: Images
    folder: Path
    address: str
    delays: Delays
    now: Callable[[], datetime]

    def record(self, pod: Unstructured, reason: EventReason, note: str) -> None:
        """Record an event about a pod."""
        self.recorder.record(POD, pod, reason, note, action=str(reason))

    async def find(self, namespace: str, sources: Iterable[Source]) -> Sources:
        """Read Secrets and ConfigMaps."""
        return {source: await self._read(source[0], Key(namespace, source[1])) for source in sources}

    async def _read(self, kind: str, key: Key) -> dict[str, bytes] | None:
        try:
            found = await self.client.get(KINDS[kind], key)
        except errors.NotFound:
            return None
        return values({**found.manifest, "kind": kind})
