"""Starts and runs the operator process."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from typing import Any

import uvloop

from coder_k8s import __version__, logs
from coder_k8s.api import RESOURCES
from coder_k8s.coderd.connections import Connections, parse_connect_to
from coder_k8s.controllers import controlplane, provisioner, template, workspaceproxy
from coder_k8s.controllers.labels import OPERATOR_VERSION
from coder_k8s.controllers.object_metrics import ObjectMetrics
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.kube.addresses import parse_address
from coder_k8s.kube.batching import Batching
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import Config, ConfigError, load
from coder_k8s.kube.discovery import NotReachable, wait_for_server
from coder_k8s.kube.election import Election, ElectionOptions, LeadershipLost
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.informer import Informer
from coder_k8s.kube.manager import Manager, liveness, readiness
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key
from coder_k8s.kube.servers import CannotServe, Server, health_server, metrics_server
from coder_k8s.kube.wait import cancel_on_stop
from coder_k8s.prometheus import ProcessMetrics
from coder_k8s.settings import LEASE_NAME, Settings, lease_namespace

log = logging.getLogger(__name__)

NAME = "coder-k8s"
STARTUP_TIMEOUT = 10.0
"""Seconds to wait for the API server at startup; enough for a restart of the API server."""

STARTUP_ERRORS = (ConfigError, NotReachable, CannotServe)
"""Errors that are reported as one line, without a traceback."""


def main(settings: Settings) -> int:
    """Run the operator until it receives a signal; return the exit code."""
    logs.configure(settings.log_format, settings.log_level)
    config = load(settings.kubeconfig, settings.context)
    try:
        uvloop.run(run(settings, config, identity=f"{socket.gethostname()}_{secrets.token_hex(8)}"))
    except ExceptionGroup as failures:
        log_failures(failures)
        return 1
    return 0


async def run(settings: Settings, config: Config, identity: str) -> None:
    """Connect to the cluster, then run the manager until a signal arrives."""
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    metrics = Metrics()
    ProcessMetrics(metrics.registry)
    metrics.tasks.labels().set_function(lambda: len(asyncio.all_tasks()))
    routes = parse_connect_to(settings.coderd_connect_to)
    user_agent = f"{NAME}/{__version__}"
    async with Http(config, user_agent, metrics, Batching()) as http, Connections(routes) as coderd:
        await cancel_on_stop(stopping, wait_for_server(http, config.server, stopping, STARTUP_TIMEOUT))
        log.info("starting", extra={"server": config.server, "identity": identity})
        await build_manager(settings, http, coderd, metrics, identity).run(stopping)
    log.info("stopped")


def build_manager(settings: Settings, http: Http, coderd: Connections, metrics: Metrics, identity: str) -> Manager:
    """Create the controllers and everything they need."""
    election = build_election(settings, http, metrics, identity) if settings.leader_elect else None
    client = Client(http, NAME, fence=election.check if election else None)
    runtime = Runtime(
        client=client,
        coderd=coderd,
        recorder=Recorder(client, NAME, identity, metrics),
        metrics=metrics,
        namespaces=settings.watch_namespaces or ("",),
        workers=settings.workers,
    )
    controllers = [
        controlplane.build(runtime, settings.allow_workspace_namespaces),
        provisioner.build(runtime, settings.allow_workspace_namespaces),
        workspaceproxy.build(runtime),
        template.build(runtime),
    ]
    metrics.registry.register(ObjectMetrics([runtime.informers[resource.kind] for resource in RESOURCES]))
    informers = list(runtime.informers.values())
    return Manager(
        servers=build_servers(settings, informers, metrics),
        informers=informers,
        election=election,
        controllers=controllers,
        recorder=runtime.recorder,
        grace=settings.shutdown_grace,
    )


def build_election(settings: Settings, http: Http, metrics: Metrics, identity: str) -> Election:
    return Election(
        http,
        Key(lease_namespace(settings), LEASE_NAME),
        identity,
        field_manager=NAME,
        metrics=metrics,
        annotations={OPERATOR_VERSION: __version__},
        options=ElectionOptions(
            lease_duration=int(settings.leader_election_lease_duration),
            renew_deadline=settings.leader_election_renew_deadline,
            retry_period=settings.leader_election_retry_period,
        ),
    )


def build_servers(settings: Settings, informers: list[Informer[Any]], metrics: Metrics) -> list[Server]:
    servers: list[Server] = []
    limit = settings.watch_silence_limit
    if address := parse_address(settings.health_probe_bind_address):
        servers.append(health_server(address, liveness(informers, limit), readiness(informers, limit)))
    if address := parse_address(settings.metrics_bind_address):
        servers.append(metrics_server(address, metrics.registry))
    return servers


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Stop gracefully on the first SIGTERM or SIGINT, and at once on the second."""

    def stop(number: signal.Signals) -> None:
        if stopping.is_set():
            os._exit(1)
        log.info("stopping on a signal", extra={"signal": number.name})
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)


def log_failures(failures: ExceptionGroup[Exception]) -> None:
    """Log the loss of the Lease as one line, and any other failure with its traceback."""
    lost, defects = failures.split(LeadershipLost)
    if defects is not None:
        log.error("unexpected failure", exc_info=defects)
    elif lost is not None:
        log.error("no longer leading; exiting: %s", _first(lost))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
