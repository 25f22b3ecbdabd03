"""Runs a trace with a scaler, and measures it."""

from collections.abc import Callable, Sequence
from copy import copy
from random import Random
from typing import NamedTuple

from .agenda import Agenda
from .cluster import Deployment
from .coderd import Coderd
from .scalers import HorizontalPodAutoscaler, Keda, Operator, Scaler, Static, World
from .traces import HOUR, Trace

TAIL = 2 * HOUR
"""Simulated after the last job, so that builds end and pods are removed."""
SAMPLE = 30.0


class Result(NamedTuple):
    """What happened to the jobs and pods of one run."""

    waits: tuple[float, ...]
    """Seconds between the creation of a job and its start, sorted."""
    late: tuple[float, ...]
    """Seconds between the time at which a scheduled job is wanted and its creation, sorted."""
    pod_hours: float
    lost: int
    """Builds whose daemon was killed, or that waited for 30 minutes."""
    never: int
    """Scheduled jobs that coderd did not create."""
    changes: int
    """How often the number of replicas changed."""
    samples: tuple[tuple[float, int, int], ...]
    """Time, pods and jobs that wait."""


SCALERS: dict[str, Callable[[Trace], Scaler]] = {
    "static": lambda trace: Static({pool.name: pool.static for pool in trace.pools}),
    "HPA": lambda _: HorizontalPodAutoscaler(),
    "KEDA": lambda _: Keda(),
    "coder-k8s": lambda _: Operator(),
}


def simulate(trace: Trace, scaler: Scaler, seed: int) -> Result:
    """Run a trace; the same seed gives the same build and start times to every scaler."""
    agenda = Agenda(trace.start)
    coderd = Coderd(agenda, Random(f"coderd {seed}"))  # noqa: S311 - the same in every run
    deployments = {
        pool.name: Deployment(
            pool.name,
            pool.tags,
            pool.spec,
            agenda,
            coderd,
            Random(f"{pool.name} {seed}"),  # noqa: S311
        )
        for pool in trace.pools
    }
    jobs = [copy(job) for job in trace.jobs]
    for job in jobs:
        coderd.submit(job)
    samples: list[tuple[float, int, int]] = []

    def sample() -> None:
        pods = sum(pod.gone is None for each in deployments.values() for pod in each.pods)
        samples.append((agenda.now, pods, sum(job.waits for job in jobs)))

    agenda.every(SAMPLE, sample)
    scaler.start(World(agenda, coderd, deployments))
    agenda.run(trace.end + TAIL)
    return Result(
        waits=tuple(
            sorted(job.started - job.created for job in jobs if job.started is not None and job.created is not None)
        ),
        late=tuple(sorted(job.created - job.due for job in jobs if job.scheduled and job.created is not None)),
        pod_hours=sum(each.pod_seconds(agenda.now) for each in deployments.values()) / HOUR,
        lost=sum(job.hung is not None or job.failed is not None for job in jobs),
        never=sum(job.created is None for job in jobs),
        changes=sum(each.changes for each in deployments.values()),
        samples=tuple(samples),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the sorted values does not exceed."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
