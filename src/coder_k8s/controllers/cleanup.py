"""Limits how long the deletion of an object waits for its keys, registrations and tokens in Coder to be deleted.

A cleanup that fails:

| tried for | its namespace | the cleanup |
|---|---|---|
| less than 5 minutes | exists | is retried |
| less than 5 minutes | is being deleted | is given up: Coder and the credentials are deleted with the namespace |
| 5 minutes | any | is given up |

An event names what is left. The time counts from the deletion, or from the first attempt of this process if that is
later: while the operator was down or the object was paused, there was no attempt.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import NAMESPACE_METADATA
from coder_k8s.kube.objects import Key, Object
from coder_k8s.kube.rules import Rule

BOUND = timedelta(minutes=5)
RETRY = 5.0
"""Seconds between two attempts."""

CONTROL_PLANE_FINALIZER = "coder.com/control-plane-cleanup"
PROVISIONER_FINALIZER = "coder.com/provisioner-key-cleanup"
PROXY_FINALIZER = "coder.com/workspace-proxy-cleanup"
TEMPLATE_FINALIZER = "coder.com/template-cleanup"

RULES = (
    # A Role can grant the right to read its own namespace by name.
    Rule(("",), (NAMESPACE_METADATA.plural,), ("get",)),
)


class Cleanup:
    """Decides whether the deletion of an object may wait longer."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        self._client = client
        self._now = now
        self._first_attempts: dict[Key, tuple[str, datetime]] = {}
        """With the UID of the object."""

    def age(self, owner: Object) -> timedelta:
        """For how long this process has tried to clean up after an object that is being deleted."""
        since, now = owner.metadata.deletion_timestamp, self._now()
        if since is None:
            return timedelta()
        uid, first = self._first_attempts.get(owner.key, ("", now))
        if uid != owner.metadata.uid:
            first = now
        self._first_attempts[owner.key] = (owner.metadata.uid, first)
        return now - max(since, first)

    def forget(self, key: Key) -> None:
        self._first_attempts.pop(key, None)

    async def may_wait(self, owner: Object) -> bool:
        """Whether a cleanup that failed is tried again."""
        return self.age(owner) < BOUND and not await self._is_namespace_deleting(owner.metadata.namespace)

    async def _is_namespace_deleting(self, namespace: str) -> bool:
        try:
            return (await self._client.get(NAMESPACE_METADATA, Key("", namespace))).deleting
        except errors.Forbidden:
            return False
