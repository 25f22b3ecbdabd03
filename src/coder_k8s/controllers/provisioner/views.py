"""What coderd says about an organization, asked once for all provisioners that want to know."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.types import ProvisionerDaemon, ProvisionerKey

INTERVAL = timedelta(minutes=2)
"""How old an answer may be while nothing happens."""


class View(NamedTuple):
    """The keys and daemons of an organization at a moment."""

    keys: list[ProvisionerKey]
    daemons: list[ProvisionerDaemon]
    at: datetime

    def on(self, key_name: str) -> list[ProvisionerDaemon]:
        """The daemons of a key, also of one that has just been deleted."""
        ids = {key.id for key in self.keys if key.name == key_name}
        return [daemon for daemon in self.daemons if daemon.key_name == key_name or daemon.key_id in ids]


class Views:
    """One view per server, organization and credential, refreshed when somebody needs a newer one."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._views: dict[tuple[str, str, str], View] = {}
        self._locks: dict[tuple[str, str, str], asyncio.Lock] = {}

    async def get(self, coderd: Coderd, organization: str, max_age: timedelta = INTERVAL) -> View:
        where = (*coderd.identity, organization)
        async with self._locks.setdefault(where, asyncio.Lock()):
            known = self._views.get(where)
            if known is not None and self._now() - known.at < max_age:
                return known
            self._views[where] = view = View(
                await coderd.provisioner_keys(organization), await coderd.provisioner_daemons(organization), self._now()
            )
            return view
