"""The Lease that stands for leadership: what is written into it, and who may take it."""

from datetime import datetime

import msgspec

from coder_k8s.kube.objects import Kind, Object, micro_timestamp

RELEASED_SECONDS = 1
"""What a holder that lets go writes as its duration; an empty holder with any other was edited by hand."""


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    """Who holds the Lease, and for how long after its last word."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(Object):
    """Who leads."""

    spec: LeaseSpec = LeaseSpec()


LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", Lease)


def claim(before: LeaseSpec | None, identity: str, seconds: int, now: datetime) -> LeaseSpec:
    """The record by which somebody takes the Lease, or keeps it."""
    moment = micro_timestamp(now)
    if before is not None and before.holder_identity == identity:
        return msgspec.structs.replace(before, lease_duration_seconds=seconds, renew_time=moment)
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=seconds,
        acquire_time=moment,
        renew_time=moment,
        lease_transitions=before.lease_transitions + 1 if before else 0,
    )


def release(before: LeaseSpec, now: datetime) -> LeaseSpec:
    """The record by which a holder lets go."""
    moment = micro_timestamp(now)
    return LeaseSpec(
        lease_duration_seconds=RELEASED_SECONDS,
        acquire_time=moment,
        renew_time=moment,
        lease_transitions=before.lease_transitions,
    )


def free(spec: LeaseSpec, identity: str, unchanged_for: float, default_seconds: int) -> bool:
    """Whether a Lease that was seen unchanged for so long may be taken."""
    if spec.holder_identity == identity:
        return True
    if not spec.holder_identity and spec.lease_duration_seconds <= RELEASED_SECONDS:
        return True
    return unchanged_for >= (spec.lease_duration_seconds or default_seconds)
