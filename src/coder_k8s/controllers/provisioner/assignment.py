"""Assigns the jobs that wait in an organization to daemons and provisioners.

Each job is assigned once, in the order in which coderd hands jobs out: those of people before those of prebuilds, then
the oldest first. It goes to the first of:

1. an idle daemon that covers it, the one with the fewest other tags;
2. a new pod of the provisioner that covers it, is below its maximum and has the fewest other tags, then by name;
   rather of one without an idle daemon that does not take the job;
3. the same without regard to the maximum, so that the job is counted somewhere.

| an idle daemon | takes a job |
|---|---|
| in a pod of an autoscaled provisioner, idle for less than 35 seconds | always |
| in such a pod, idle for longer | if the job waits for less than 35 seconds |
| of another provisioner, or not managed by the operator | if the job waits for less than 35 seconds |

coderd hands a waiting job to an idle daemon within 30 seconds. A job that waits for longer shows that the daemon is not
there any more, or does not take it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from coder_k8s.coderd.types import ProvisionerJob
from coder_k8s.controllers.tags import covers

PREBUILDS = "c42fdf75-3097-471c-8c33-fb52454d81c0"
"""The user who creates prebuilt workspaces."""
MAX_JOBS, MAX_IDLE = 2000, 1000
"""Jobs and idle daemons that are considered, so that a decision takes a bounded time."""
HANDED_OUT = timedelta(seconds=35)
"""coderd polls for jobs every 30 seconds, in addition to its notifications."""

Tags = Mapping[str, str]


class IdleDaemon(NamedTuple):
    """A daemon that runs no job."""

    name: str
    tags: Tags
    pool: str = ""
    """Name of the autoscaled provisioner that it belongs to."""
    since: datetime | None = None
    """When it was first seen idle; unknown for one that does not belong to an autoscaled provisioner."""


class Pool(msgspec.Struct, frozen=True):
    """An autoscaled provisioner, with the number of pods that it can add."""

    name: str
    tags: Tags
    room: int


class Share(msgspec.Struct, frozen=True):
    """What is assigned to one provisioner."""

    jobs: tuple[ProvisionerJob, ...] = ()
    """Jobs for its idle and its new pods."""
    unresponsive: frozenset[str] = frozenset()
    """Its idle daemons that do not take a job that they cover."""


def assign(
    jobs: Iterable[ProvisionerJob], idle: Sequence[IdleDaemon], pools: Sequence[Pool], now: datetime
) -> dict[str, Share]:
    """What is assigned to each autoscaled provisioner, by name."""
    free = list(idle)[:MAX_IDLE]
    room = {pool.name: pool.room for pool in pools}
    shares: dict[str, list[ProvisionerJob]] = {pool.name: [] for pool in pools}
    unresponsive: set[str] = set()
    for job in sorted(jobs, key=_order)[:MAX_JOBS]:
        able = [daemon for daemon in free if covers(daemon.tags, job.tags)]
        unresponsive |= {daemon.name for daemon in able if not _takes(daemon, job, now)}
        taking = [daemon for daemon in able if _takes(daemon, job, now)]
        if taking:
            chosen = min(taking, key=lambda daemon: (len(daemon.tags), daemon.pool, daemon.name))
            free.remove(chosen)
            owner = chosen.pool
        else:
            owner = _new_pod(job, pools, room, {daemon.pool for daemon in able})
        if owner:
            shares[owner].append(job)
    return {
        pool.name: Share(
            tuple(shares[pool.name]),
            frozenset(daemon.name for daemon in free if daemon.pool == pool.name and daemon.name in unresponsive),
        )
        for pool in pools
    }


def _new_pod(job: ProvisionerJob, pools: Sequence[Pool], room: dict[str, int], refused: Collection[str]) -> str:
    """The provisioner that gets a new pod for a job; empty if none covers it. Daemons of `refused` do not take it."""
    able = [pool for pool in pools if covers(pool.tags, job.tags)]
    if not able:
        return ""
    chosen = min(able, key=lambda pool: (room[pool.name] <= 0, pool.name in refused, len(pool.tags), pool.name))
    room[chosen.name] -= 1
    return chosen.name


def _takes(daemon: IdleDaemon, job: ProvisionerJob, now: datetime) -> bool:
    waits_long = now - job.created_at >= HANDED_OUT
    just_idle = bool(daemon.pool) and (daemon.since is None or now - daemon.since < HANDED_OUT)
    return just_idle or not waits_long


def _order(job: ProvisionerJob) -> tuple[bool, datetime, str]:
    return job.initiator_id == PREBUILDS, job.created_at, job.id
