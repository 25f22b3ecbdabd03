"""Jobs, daemons and pods for tests of autoscaling."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.coderd.types import ProvisionerJob
from coder_k8s.controllers.provisioner.assignment import Share
from coder_k8s.controllers.provisioner.autoscaling import Demand, Observed
from coder_k8s.controllers.provisioner.victims import PodState
from coder_k8s.controllers.tags import key_tags

NOW = datetime(2026, 11, 17, 9, tzinfo=UTC)
BUSY_COST = 10
_numbers = count(1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def job(seconds: float = 1, initiator: str = "someone", worker: str = "", **tags: str) -> ProvisionerJob:
    """A job that waits for a number of seconds, or runs on a daemon."""
    return ProvisionerJob(
        id=f"job-{next(_numbers):06}",
        created_at=ago(seconds),
        status="running" if worker else "pending",
        tags=key_tags(tags),
        worker_id=worker or None,
        worker_name=worker,
        initiator_id=initiator,
    )


def pods(idle: int = 0, busy: int = 0, starting: int = 0, stuck: int = 0) -> list[PodState]:
    """Pods named after their state, with the deletion costs that busy ones get."""
    return [
        *(PodState(f"idle-{n}", ago(600), ago(590)) for n in range(idle)),
        *(PodState(f"busy-{n}", ago(600), ago(590), cost=BUSY_COST) for n in range(busy)),
        *(PodState(f"starting-{n}", ago(10), None, scheduled=True, running=False) for n in range(starting)),
        *(PodState(f"stuck-{n}", ago(200), None, scheduled=False, running=False) for n in range(stuck)),
    ]


def observed(
    jobs: int = 0, current: int | None = None, unresponsive: int = 0, unmapped: int = 0, **more: Any
) -> Observed:
    """What a decision depends on: jobs that wait, pods by state, and any other field."""
    states: Mapping[str, int] = {name: more.pop(name, 0) for name in ("idle", "busy", "starting", "stuck")}
    known = more.pop("pods", None) or pods(**states)
    share = Share(tuple(job() for _ in range(jobs)), frozenset(f"idle-{n}" for n in range(unresponsive)))
    busy = frozenset(pod.name for pod in known if pod.name.startswith("busy"))
    seen: dict[str, Any] = {
        "now": NOW,
        "current": len(known) if current is None else current,
        "pods": known,
        "demand": Demand(share, busy, unmapped),
        "last_scale": ago(3600),
    }
    return Observed(**seen | more)


def autoscaling(**fields: Any) -> Autoscaling:
    return Autoscaling(**{"max_replicas": 20} | fields)
