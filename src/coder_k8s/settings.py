"""Flags and environment variables of the operator.

Each field of `Settings` defines one flag: its name, type, default and, in the annotation, its help text. The
environment variable of a flag is `CODER_K8S_` plus the field name; the flag takes precedence.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from coder_k8s.kube.addresses import parse_address

ENV_PREFIX = "CODER_K8S_"
LEASE_NAME = "coder-k8s-controller.coder.com"
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Flag(NamedTuple):
    """Help text and metavar of a flag."""

    help: str
    metavar: str | None = None


Seconds = float
"""A duration; `1m30s` on the command line."""

Names = tuple[str, ...]
"""Names; comma-separated on the command line."""


class InvalidSettings(ValueError):
    """A setting is invalid, or two settings contradict each other."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of `coder-k8s controller`."""

    kubeconfig: Annotated[
        Path | None,
        Flag("Kubeconfig file. Defaults to $KUBECONFIG, then the pod's service account, then ~/.kube/config."),
    ] = None
    context: Annotated[str | None, Flag("Kubeconfig context. Defaults to the current context.", "NAME")] = None
    watch_namespaces: Annotated[
        Names, Flag("Namespaces to watch. Defaults to all; when set, namespaced Roles are sufficient.", "NAME,...")
    ] = ()
    allow_workspace_namespaces: Annotated[
        Names,
        Flag("Namespaces (globs) in which any object may run workspaces without the opt-in label.", "GLOB,..."),
    ] = ()
    coderd_connect_to: Annotated[
        Names,
        Flag(
            "Connect to ADDR:PORT instead of coderd at HOST:PORT. For an operator outside the cluster.",
            "HOST:PORT=ADDR:PORT,...",
        ),
    ] = ()
    workers: Annotated[
        int,
        Flag(
            "Maximum concurrent reconciles per kind. Half of them, rounded down, are kept for changes of the objects "
            "themselves.",
            "NUMBER",
        ),
    ] = 32

    leader_elect: Annotated[bool, Flag("Enable leader election: only the replica that holds the Lease reconciles.")] = (
        True
    )
    leader_election_namespace: Annotated[
        str | None,
        Flag(
            "Lease namespace. Defaults to $POD_NAMESPACE, then the service account's namespace, then kube-system.",
            "NAME",
        ),
    ] = None
    leader_election_lease_duration: Annotated[
        Seconds, Flag("How long a Lease may go unrenewed before another replica may take it.", "DURATION")
    ] = 15.0
    leader_election_renew_deadline: Annotated[
        Seconds, Flag("How long the leader retries to renew its Lease before it exits.", "DURATION")
    ] = 10.0
    leader_election_retry_period: Annotated[
        Seconds, Flag("Interval between attempts to acquire or renew the Lease.", "DURATION")
    ] = 2.0

    health_probe_bind_address: Annotated[
        str, Flag("Listen address of /healthz and /readyz; 0 disables both.", "ADDRESS")
    ] = ":8081"
    metrics_bind_address: Annotated[str, Flag("Listen address of /metrics; 0 disables it.", "ADDRESS")] = ":8080"
    watch_silence_limit: Annotated[
        Seconds,
        Flag(
            "How long a watch may receive no event or bookmark before /healthz fails. In a quiet cluster, a bookmark "
            "may take two minutes.",
            "DURATION",
        ),
    ] = 180.0
    shutdown_grace: Annotated[
        Seconds, Flag("Time allowed for in-flight reconciles to finish after SIGTERM.", "DURATION")
    ] = 25.0

    log_format: Annotated[
        Literal["json", "console"], Flag("Log one JSON object per line, or human-readable lines.")
    ] = "json"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Flag("Minimum severity to log.")] = "info"

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidSettings("--workers must be at least 1")
        for name in ("watch_silence_limit", "shutdown_grace"):
            if getattr(self, name) <= 0:
                raise InvalidSettings(f"{flag_of(name)} must be greater than zero")
        for name in self.watch_namespaces:
            if not NAMESPACE.fullmatch(name):
                raise InvalidSettings(f"--watch-namespaces: {name!r} is not a valid namespace name")
        self._check_election()
        self._check_addresses()
        self._check_routes()

    def _check_election(self) -> None:
        lease, renew = self.leader_election_lease_duration, self.leader_election_renew_deadline
        retry = self.leader_election_retry_period
        if lease < 1 or lease != int(lease):
            raise InvalidSettings("--leader-election-lease-duration must be a whole number of seconds, at least 1")
        if renew >= lease:
            raise InvalidSettings(
                "--leader-election-renew-deadline must be shorter than --leader-election-lease-duration: "
                "a leader must stop before another replica may lead"
            )
        if not 0 < retry < renew:
            raise InvalidSettings(
                "--leader-election-retry-period must be shorter than --leader-election-renew-deadline: "
                "a leader needs time for more than one attempt"
            )

    def _check_addresses(self) -> None:
        addresses = []
        for name in ("health_probe_bind_address", "metrics_bind_address"):
            try:
                addresses.append(parse_address(getattr(self, name)))
            except ValueError as error:
                raise InvalidSettings(f"{flag_of(name)}: {error}") from None
        health, metrics = addresses
        if health is not None and health == metrics and health.port:
            raise InvalidSettings("--health-probe-bind-address and --metrics-bind-address must differ")

    def _check_routes(self) -> None:
        if not self.coderd_connect_to:
            return
        from coder_k8s.coderd.connections import parse_connect_to  # loads the HTTP client, so only if needed

        try:
            parse_connect_to(self.coderd_connect_to)
        except ValueError as error:
            raise InvalidSettings(f"--coderd-connect-to: {error}") from None


def flag_of(field: str) -> str:
    """Return the flag of a field."""
    return "--" + field.replace("_", "-")


def lease_namespace(
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT_NAMESPACE,
) -> str:
    """Return the namespace of the Lease: by default the operator's own."""
    if named := settings.leader_election_namespace or environ.get("POD_NAMESPACE"):
        return named
    if service_account.exists():
        return service_account.read_text().strip()
    return "kube-system"
