"""Metrics of the runtime. Those that controller-runtime also has use the same names."""

from coder_k8s.prometheus import Counter, Gauge, Histogram, Registry

DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of the runtime, in one registry."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        self._add_controller_metrics(self.registry)
        self._add_queue_metrics(self.registry)
        self._add_process_metrics(self.registry)

    def _add_controller_metrics(self, registry: Registry) -> None:
        controller = ["controller"]
        self.reconciles = Counter(
            "controller_runtime_reconcile", "Reconciles by outcome.", [*controller, "result"], registry=registry
        )
        self.reconcile_errors = Counter(
            "controller_runtime_reconcile_errors", "Reconciles that failed.", controller, registry=registry
        )
        self.terminal_errors = Counter(
            "controller_runtime_terminal_reconcile_errors",
            "Always 0, because failed reconciles are retried. Exists for dashboards of controller-runtime.",
            controller,
            registry=registry,
        )
        self.reconcile_seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconcile.",
            controller,
            buckets=DURATIONS,
            registry=registry,
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers", "Active reconciles.", controller, registry=registry
        )
        self.max_workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum concurrent reconciles.",
            controller,
            registry=registry,
        )

    def _add_queue_metrics(self, registry: Registry) -> None:
        queue = ["name", "controller"]
        self.queue_depth = Gauge("workqueue_depth", "Keys in the queue.", queue, registry=registry)
        self.queue_adds = Counter("workqueue_adds", "Keys added to the queue.", queue, registry=registry)
        self.queue_retries = Counter("workqueue_retries", "Keys added again after a failure.", queue, registry=registry)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "Time that a key waits in the queue.",
            queue,
            buckets=DURATIONS,
            registry=registry,
        )
        self.work_seconds = Histogram(
            "workqueue_work_duration_seconds",
            "Time to process a key.",
            queue,
            buckets=DURATIONS,
            registry=registry,
        )

    def _add_process_metrics(self, registry: Registry) -> None:
        self.requests = Counter(
            "rest_client_requests", "Requests to the API server.", ["code", "method"], registry=registry
        )
        self.leader = Gauge(
            "leader_election_master_status", "1 if this replica is the leader.", ["name"], registry=registry
        )
        self.tasks = Gauge("coder_k8s_tasks", "Asyncio tasks.", registry=registry)
        self.watch_age = Gauge(
            "coder_k8s_watch_age_seconds", "Time since a watch was last known to work.", ["kind"], registry=registry
        )
        self.cached_objects = Gauge("coder_k8s_cached_objects", "Objects in the cache.", ["kind"], registry=registry)
        self.undecodable = Counter(
            "coder_k8s_undecodable_objects", "Objects that could not be decoded.", ["kind"], registry=registry
        )
        self.status_rejected = Counter(
            "coder_k8s_status_rejected",
            "Status updates that the API server rejected because of a validation rule or a webhook.",
            ["kind"],
            registry=registry,
        )
        self.events_dropped = Counter(
            "coder_k8s_events_dropped", "Events that were not recorded.", ["reason"], registry=registry
        )
