"""Metrics of jobs and schedules that no provisioner serves."""

from collections.abc import Iterable, Sequence

from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Gauge, Registry

from .schedules import Schedule
from .unserved import Group


class JobMetrics:
    """Gauges by control plane, removed with it. Tags are no labels, because there may be many."""

    def __init__(self, registry: Registry) -> None:
        self._jobs = Series(
            Gauge,
            registry,
            "coder_k8s_unserved_jobs",
            "Jobs that no provisioner can run, by organization.",
            "organization",
        )
        self._oldest = Series(
            Gauge,
            registry,
            "coder_k8s_unserved_oldest_timestamp_seconds",
            "When the oldest job that no provisioner can run was created.",
        )
        self._templates = Series(
            Gauge,
            registry,
            "coder_k8s_unserved_templates",
            "Templates whose scheduled builds no provisioner can run, by organization.",
            "organization",
        )

    def set(self, key: Key, organizations: Iterable[str], groups: Sequence[Group], skipped: Sequence[Schedule]) -> None:
        self.forget(key)
        for name in organizations:
            jobs = sum(group.count for group in groups if group.queue.organization.name == name)
            self._jobs.of(key, name).set(jobs)
            self._templates.of(key, name).set(sum(each.organization.name == name for each in skipped))
        if groups:
            self._oldest.of(key).set(groups[0].oldest.timestamp())

    def forget(self, key: Key) -> None:
        for gauge in (self._jobs, self._oldest, self._templates):
            gauge.forget(key)
