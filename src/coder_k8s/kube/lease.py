"""The Lease of a leader election: its content, and when a candidate may acquire it."""

from datetime import datetime

import msgspec

from coder_k8s.kube.objects import Kind, Object, micro_timestamp

RELEASED_SECONDS = 1
"""The lease duration of a released Lease. A Lease without a holder but with a longer duration was edited by hand."""


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    """The holder of a Lease, and how long the Lease is valid after its last renewal."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(Object):
    """A `coordination.k8s.io/v1` Lease."""

    spec: LeaseSpec = LeaseSpec()


LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", Lease)


def claim(before: LeaseSpec | None, identity: str, seconds: int, now: datetime) -> LeaseSpec:
    """Return the spec that acquires or renews the Lease."""
    timestamp = micro_timestamp(now)
    if before is not None and before.holder_identity == identity:
        return msgspec.structs.replace(before, lease_duration_seconds=seconds, renew_time=timestamp)
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=seconds,
        acquire_time=timestamp,
        renew_time=timestamp,
        lease_transitions=before.lease_transitions + 1 if before else 0,
    )


def release(before: LeaseSpec, now: datetime) -> LeaseSpec:
    """Return the spec that releases the Lease."""
    timestamp = micro_timestamp(now)
    return LeaseSpec(
        lease_duration_seconds=RELEASED_SECONDS,
        acquire_time=timestamp,
        renew_time=timestamp,
        lease_transitions=before.lease_transitions,
    )


def can_acquire(spec: LeaseSpec, identity: str, unchanged_for: float, default_seconds: int) -> bool:
    """Return whether a candidate may acquire a Lease that it has observed unchanged for some seconds."""
    if spec.holder_identity == identity:
        return True
    if not spec.holder_identity and spec.lease_duration_seconds <= RELEASED_SECONDS:
        return True
    return unchanged_for >= (spec.lease_duration_seconds or default_seconds)
