"""Keeps a control plane that is being deleted, with its pods, until its credentials in Coder are revoked.

The keys and registrations of its provisioners and proxies, and templates that are to be deleted, are deleted first,
because that needs its coderd and its token. The token is revoked last. While objects have any of these:

| these objects | waited | the control plane |
|---|---|---|
| none | any time | revokes its token |
| some, one of them being deleted | less than 5 minutes | waits |
| some, none of them being deleted | less than 30 seconds | waits |
| some | longer | names them in an event, and revokes its token |

The 30 seconds are for `kubectl delete -f`, which may delete the control plane first.
"""

from collections.abc import Sequence
from datetime import timedelta

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, CoderProvisioner, CoderTemplate, CoderWorkspaceProxy, events
from coder_k8s.coderd.access_db import USERNAME, token_name
from coder_k8s.controllers.cleanup import BOUND, CONTROL_PLANE_FINALIZER, RETRY
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.dependents import (
    Dependent,
    planes_of_provisioner,
    planes_of_proxy,
    planes_to_delete_from,
    remaining,
)
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache

from .revocation import Revocation, SecretLeft, TokenLeft

GRACE = timedelta(seconds=30)


def wait(left: Sequence[Dependent], age: timedelta) -> float:
    """Seconds until the control plane no longer waits for these objects."""
    if not left:
        return 0.0
    bound = BOUND if any(each.deleting for each in left) else GRACE
    return max(0.0, (bound - age).total_seconds())


class Deletion:
    """Deletes in Coder what garbage collection cannot reach."""

    def __init__(
        self,
        context: Context[CoderControlPlane],
        provisioners: Cache[CoderProvisioner],
        proxies: Cache[CoderWorkspaceProxy],
        templates: Cache[CoderTemplate],
        revocation: Revocation,
    ) -> None:
        self._client = context.client
        self._provisioners = provisioners.index(planes_of_provisioner)
        self._proxies = proxies.index(planes_of_proxy)
        self._templates = templates.index(planes_to_delete_from)
        self._revocation = revocation
        self._recorder = context.recorder
        self._cleanup = context.cleanup

    def is_needed(self, plane: CoderControlPlane) -> bool:
        """Whether there is something to clean up."""
        key = plane.key
        dependents = self._provisioners[key] or self._proxies[key] or self._templates[key]
        return bool(dependents) or self._revocation.has_token(plane)

    def is_affected(self, plane: CoderControlPlane) -> bool:
        """Whether a change of an object that refers to it requires a reconcile of a control plane."""
        return plane.deleting or (CONTROL_PLANE_FINALIZER in plane.metadata.finalizers) != self.is_needed(plane)

    async def clean_up(self, plane: CoderControlPlane) -> float | None:
        """Seconds until the next attempt; `None` when there is nothing left to do."""
        try:
            left = await remaining(self._client, plane.key)
        except errors.ApiError as error:
            if await self._cleanup.may_wait(plane):
                raise
            self._give_up(plane, f"Keys or registrations may be left in Coder: {error.message}")
            left = []
        names = ", ".join(each.name for each in left)
        if seconds := wait(left, self._cleanup.age(plane)):
            note = f"Waiting until keys and registrations of {names} are deleted in Coder"
            self._recorder.record(CONTROL_PLANE, plane, events.CLEANUP_WAITING, note)
            return seconds
        if left:
            self._give_up(plane, f"Keys or registrations of {names} are left in Coder")
        return await self._revoke(plane)

    async def _revoke(self, plane: CoderControlPlane) -> float | None:
        if not self._revocation.is_due(plane):
            return None
        try:
            await self._revocation.revoke(plane, "the control plane is being deleted")
        except SecretLeft as left:  # garbage collection deletes it
            self._give_up(plane, str(left))
        except errors.Conflict:
            raise
        except (TokenLeft, errors.ApiError) as error:
            if await self._cleanup.may_wait(plane):
                return RETRY
            token = token_name(plane.metadata.namespace, plane.metadata.name)
            self._give_up(plane, f"Token {token} of user {USERNAME} is left in Coder: {error}")
        return None

    def _give_up(self, plane: CoderControlPlane, note: str) -> None:
        self._recorder.record(CONTROL_PLANE, plane, events.CLEANUP_GIVEN_UP, note)
