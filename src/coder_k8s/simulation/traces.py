"""Jobs to simulate: five typical days, or those of a CSV file.

Builds take a log-normal time with a median of 60 seconds, and 1 % takes longer than 20 minutes.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from math import log
from pathlib import Path
from random import Random

import msgspec

from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.controllers.tags import key_tags, own_tags

from .coderd import Job

HOUR = 3600.0
MEDIAN, P99 = 60.0, 1200.0
SIGMA = log(P99 / MEDIAN) / 2.326
"""2.326 is the 99th percentile of the normal distribution."""


class PoolConfig(msgspec.Struct, frozen=True):
    """A provisioner of a trace."""

    name: str
    tags: Mapping[str, str]
    spec: Autoscaling
    static: int
    """Replicas of a static size, enough for the peak."""


class Trace(msgspec.Struct, frozen=True):
    """Jobs with the provisioners that run them."""

    name: str
    description: str
    pools: tuple[PoolConfig, ...]
    jobs: tuple[Job, ...]
    start: float
    end: float


class InvalidTrace(Exception):
    """A CSV file that has no jobs, or a row that is not a job."""


def duration(rng: Random) -> float:
    """How long a build takes."""
    return max(5.0, rng.lognormvariate(log(MEDIAN), SIGMA))


def pool(maximum: int, name: str = "default", minimum: int = 1, static: int = 0, **tags: str) -> PoolConfig:
    spec = Autoscaling(min_replicas=minimum, max_replicas=maximum)
    return PoolConfig(name, key_tags(tags), spec, static or maximum)


def _jobs(
    rng: Random, times: Sequence[float], *, scheduled: bool = False, prebuild: bool = False, **tags: str
) -> Iterator[Job]:
    for due in times:
        yield Job(0, due, duration(rng), key_tags(tags), prebuild, scheduled)


def _poisson(rng: Random, start: float, end: float, per_hour: float) -> list[float]:
    times, at = [], start
    while (at := at + rng.expovariate(per_hour / HOUR)) < end:
        times.append(at)
    return times


def _numbered(*groups: Iterator[Job]) -> tuple[Job, ...]:
    jobs = sorted((job for group in groups for job in group), key=lambda job: job.due)
    for number, job in zip(count(1), jobs, strict=False):
        job.number = number
    return tuple(jobs)


def morning(rng: Random) -> Trace:
    start, end = 8 * HOUR, 12 * HOUR
    work = _jobs(rng, _poisson(rng, start, end, 20))
    jobs = _numbered(work, _jobs(rng, [9 * HOUR] * 200, scheduled=True))
    return Trace("morning", "200 workspaces start automatically at 09:00", (pool(200),), jobs, start, end)


def workshop(rng: Random) -> Trace:
    start, end = 13 * HOUR, 17 * HOUR
    arrivals = [14 * HOUR + rng.uniform(0, 60) for _ in range(40)]
    jobs = _numbered(_jobs(rng, _poisson(rng, start, end, 10)), _jobs(rng, arrivals))
    return Trace("workshop", "40 people create a workspace within a minute", (pool(50),), jobs, start, end)


def prebuilds(rng: Random) -> Trace:
    start, end = 8 * HOUR, 14 * HOUR
    flood = [10 * HOUR + rng.uniform(0, 5) for _ in range(100)]
    people = _jobs(rng, _poisson(rng, start, end, 40))
    jobs = _numbered(people, _jobs(rng, flood, prebuild=True))
    return Trace("prebuilds", "100 prebuilt workspaces while people work", (pool(30),), jobs, start, end)


def night(rng: Random) -> Trace:
    start, end = 18 * HOUR, 32 * HOUR
    stops = [rng.uniform(19 * HOUR, 31 * HOUR) for _ in range(30)]
    jobs = _numbered(_jobs(rng, stops, scheduled=True), _jobs(rng, _poisson(rng, start, 20 * HOUR, 5)))
    description = "30 workspaces stop automatically during the night, with minReplicas 0"
    return Trace("night", description, (pool(10, minimum=0, static=1),), jobs, start, end)


def shared(rng: Random) -> Trace:
    start, end = 8 * HOUR, 14 * HOUR
    large = pool(40, "large", gpu="true", zone="a")
    small = pool(20, "small", gpu="true")
    waves = [10 * HOUR + wave * HOUR + rng.uniform(0, 30) for wave in range(3) for _ in range(30)]
    zoned = [10.5 * HOUR + rng.uniform(0, 30) for _ in range(15)]
    jobs = _numbered(
        _jobs(rng, _poisson(rng, start, end, 30), gpu="true"),
        _jobs(rng, waves, gpu="true"),
        _jobs(rng, zoned, gpu="true", zone="a"),
    )
    return Trace("shared", "Two provisioners, one of which can run the jobs of both", (large, small), jobs, start, end)


TRACES = {each.__name__: each for each in (morning, workshop, prebuilds, night, shared)}


def read_csv(path: Path, maximum: int, minimum: int) -> Trace:
    """The trace of a file with the columns `created_at`, `duration_seconds` and optionally `tags` (`a=b;c=d`).

    Each set of tags gets its own provisioner.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        created = [datetime.fromisoformat(row["created_at"]) for row in rows]
        origin = min(created).replace(hour=0, minute=0, second=0, microsecond=0)
        jobs = _numbered(_of_row((at - origin).total_seconds(), row) for at, row in zip(created, rows, strict=True))
    except KeyError as error:
        raise InvalidTrace(f"{path} has no column {error}") from None
    except (ValueError, TypeError) as error:
        raise InvalidTrace(f"{path} has no jobs, or a row that is not valid: {error}") from None
    sets = {_name(job.tags): job.tags for job in jobs}
    spec = Autoscaling(min_replicas=minimum, max_replicas=maximum)
    pools = tuple(PoolConfig(name, tags, spec, maximum) for name, tags in sets.items())
    return Trace(path.stem, f"Jobs of {path.name}", pools, jobs, jobs[0].due - 60, jobs[-1].due + HOUR)


def _of_row(due: float, row: Mapping[str, str]) -> Job:
    pairs = [pair.partition("=") for pair in (row.get("tags") or "").split(";") if pair]
    return Job(0, due, float(row["duration_seconds"]), key_tags({name: value for name, _, value in pairs}))


def _name(tags: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(own_tags(tags).items())) or "untagged"
