"""Every flag and environment variable, once.

A field is a flag: its name with dashes, its type, its default, and in the annotation what help says about it. The
environment variable of a flag is `CODER_K8S_` and its name; a flag wins over it.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from coder_k8s.kube.addresses import parse_address

ENV_PREFIX = "CODER_K8S_"
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclasses.dataclass(frozen=True)
class Flag:
    """What help says about a flag."""

    help: str
    metavar: str | None = None


Seconds = float
"""A span of time; `1m30s` on the command line."""

Names = tuple[str, ...]
"""Several names, with commas between them on the command line."""


class BadSettings(ValueError):
    """Settings that cannot all be meant."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What an administrator can choose about `coder-k8s controller`."""

    kubeconfig: Annotated[
        Path | None,
        Flag("How to reach the cluster. Without it: $KUBECONFIG, else the pod's service account, else ~/.kube/config."),
    ] = None
    context: Annotated[str | None, Flag("The context of the kubeconfig to use, if not the current one.", "NAME")] = None
    watch_namespaces: Annotated[
        Names, Flag("Only care for these namespaces; Roles in them suffice then. Without it: for all.", "NAME,...")
    ] = ()
    allow_workspace_namespaces: Annotated[
        Names,
        Flag("Namespaces (globs) in which any control plane may run workspaces, also without their label.", "GLOB,..."),
    ] = ()
    coderd_connect_to: Annotated[
        Names,
        Flag(
            "For running outside of the cluster: connect to ADDR:PORT where coderd is at HOST:PORT.",
            "HOST:PORT=ADDR:PORT,...",
        ),
    ] = ()
    workers: Annotated[int, Flag("How many objects of a kind are worked on at the same time.", "NUMBER")] = 8

    leader_elect: Annotated[bool, Flag("Let only one of several processes work, the one that holds a Lease.")] = True
    leader_election_namespace: Annotated[
        str | None,
        Flag(
            "Where the Lease is. Without it: $POD_NAMESPACE, else the service account's namespace, else kube-system.",
            "NAME",
        ),
    ] = None
    leader_election_lease_duration: Annotated[
        Seconds, Flag("Others may take a Lease that was not renewed for so long.", "TIME")
    ] = 15.0
    leader_election_renew_deadline: Annotated[
        Seconds, Flag("A leader that could not renew its Lease for so long stops.", "TIME")
    ] = 10.0
    leader_election_retry_period: Annotated[Seconds, Flag("How often the Lease is renewed or tried for.", "TIME")] = 2.0

    health_probe_bind_address: Annotated[
        str, Flag("Where /healthz and /readyz are served; 0 switches them off.", "ADDRESS")
    ] = ":8081"
    metrics_bind_address: Annotated[str, Flag("Where /metrics is served; 0 switches it off.", "ADDRESS")] = ":8080"
    watch_silence_limit: Annotated[
        Seconds, Flag("/healthz fails when a watch gave no sign of life for so long.", "TIME")
    ] = 180.0
    shutdown_grace: Annotated[Seconds, Flag("What is under way may take so long to finish after SIGTERM.", "TIME")] = (
        25.0
    )

    log_format: Annotated[Literal["json", "console"], Flag("One JSON object per line, or lines for humans.")] = "json"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Flag("The least that is worth a line.")] = "info"

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise BadSettings("--workers must be at least 1")
        for name in ("watch_silence_limit", "shutdown_grace"):
            if getattr(self, name) <= 0:
                raise BadSettings(f"{flag_of(name)} must be longer than nothing")
        for name in self.watch_namespaces:
            if not NAMESPACE.fullmatch(name):
                raise BadSettings(f"--watch-namespaces: {name!r} cannot be the name of a namespace")
        self._check_election()
        self._check_addresses()
        self._check_routes()

    def _check_election(self) -> None:
        lease, renew = self.leader_election_lease_duration, self.leader_election_renew_deadline
        retry = self.leader_election_retry_period
        if lease < 1 or lease != int(lease):
            raise BadSettings("--leader-election-lease-duration must be whole seconds, at least one")
        if renew >= lease:
            raise BadSettings(
                "--leader-election-renew-deadline must be shorter than --leader-election-lease-duration: "
                "a leader has to stop before another may begin"
            )
        if not 0 < retry < renew:
            raise BadSettings(
                "--leader-election-retry-period must be shorter than --leader-election-renew-deadline: "
                "a leader needs time for more than one try"
            )

    def _check_addresses(self) -> None:
        addresses = []
        for name in ("health_probe_bind_address", "metrics_bind_address"):
            try:
                addresses.append(parse_address(getattr(self, name)))
            except ValueError as trouble:
                raise BadSettings(f"{flag_of(name)}: {trouble}") from None
        health, metrics = addresses
        if health is not None and health == metrics and health.port:
            raise BadSettings("--health-probe-bind-address and --metrics-bind-address must differ")

    def _check_routes(self) -> None:
        if not self.coderd_connect_to:
            return
        from coder_k8s.coderd.connections import parse_connect_to  # only who uses it waits for the HTTP library

        try:
            parse_connect_to(self.coderd_connect_to)
        except ValueError as trouble:
            raise BadSettings(f"--coderd-connect-to: {trouble}") from None


def flag_of(field: str) -> str:
    """The flag of a field."""
    return "--" + field.replace("_", "-")


def lease_namespace(
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT_NAMESPACE,
) -> str:
    """Where the Lease is: the operator's own namespace, if it can be told."""
    if named := settings.leader_election_namespace or environ.get("POD_NAMESPACE"):
        return named
    if service_account.exists():
        return service_account.read_text().strip()
    return "kube-system"
