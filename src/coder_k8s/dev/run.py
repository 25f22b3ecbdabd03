"""`coder-k8s dev`: run the complete product on this machine, and show the state of the samples.

All processes are children of this process and stop with it. The first part (`start`) starts them one after the other
and can be interrupted anywhere. The second part (`operate`) uses asyncio, because the simulator of coderd runs in this
process.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.lease import LEASE
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, key_of
from coder_k8s.manifests import rbac
from coder_k8s.settings import LEASE_NAME

from . import real_coder, samples
from .binaries import BinariesMissing, program, version
from .cluster import KubectlFailed
from .coder_source import CoderSource
from .coderd_server import CoderdServer, make_license
from .coderd_server.saved import StateFile
from .containers import Containers
from .database import SIMULATOR_TABLES, prepare
from .full_cluster import FullCluster
from .home import FolderUnusable, Home, claim, default_folders
from .installation import apply, install_crds, install_operator, namespace
from .kubelet import Kubelet
from .node.images import coder_image_name
from .operator import LONG_LEASE, Operator
from .postgres import Postgres, PostgresFailed
from .processes import Process, ProcessFailed
from .progress import Progress
from .sample_watch import SampleWatch

NAME = "coder-k8s-dev"
PROGRAMS = ("etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler")
SIMULATED = "pods become Ready but run nothing"
CannotRun = (BinariesMissing, FolderUnusable, KubectlFailed, PostgresFailed, ProcessFailed)
"""Errors that are reported to the user as one message."""


@dataclass(frozen=True)
class Options:
    """Options of the command; the folder defaults to one in the user's state directory."""

    check: bool
    fresh: bool
    coder: CoderSource | None
    """A real Coder; without one, the simulator."""
    folder: Path | None
    timeout: float


@dataclass(frozen=True)
class Environment:
    """The processes that `start` has started."""

    home: Home
    cluster: FullCluster
    postgres: Postgres
    operator_kubeconfig: Path
    processes: list[Process]


def run(options: Options, out: TextIO = sys.stdout) -> int:
    """Run until all samples are Ready or the user stops the command; return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = Progress(out)
    try:
        return start(options, progress, out)
    except (KeyboardInterrupt, asyncio.CancelledError):
        progress.write("\nstopped all processes")
        return 1 if options.check else 0


def start(options: Options, progress: Progress, out: TextIO) -> int:
    """Start the cluster and PostgreSQL, install the CRDs and roles, then run `operate`."""
    # A real Coder cannot use the database of a newer version, so each version has its own state.
    kind = f"dev-coder-{options.coder.version}" if options.coder else "dev"
    with ExitStack() as stack:
        home = stack.enter_context(claim([options.folder] if options.folder else default_folders(kind)))
        progress.write(f"coder-k8s dev in {home.folder}")
        if options.fresh:
            home.wipe()
        home.drop_logs()
        stack.enter_context(log_to(home.folder / "dev.log"))
        find_programs(options, progress)
        with progress.step("PostgreSQL") as step:
            postgres = Postgres.open(home.folder / "postgres", home.port("postgres"), home.password("postgres"))
            stack.callback(postgres.halt)
            step.show(f"127.0.0.1:{postgres.port}")
        cluster = FullCluster(home.folder, port=home.port("apiserver"), simulated_node=not options.coder)
        stack.callback(cluster.stop)
        with progress.step("cluster") as step:
            cluster.start_api()
            step.show(f"kube-apiserver and etcd, {cluster.url}")
        with progress.step("kinds") as step:
            install_crds(cluster)
            step.show("CustomResourceDefinitions")
        with progress.step("controllers") as step:
            cluster.start_node_components()
            names = ", ".join(component.name for component in cluster.node_components)
            step.show(names if options.coder else f"{names}; {SIMULATED}")
        with progress.step("roles") as step:
            kubeconfig = home.folder / "operator.kubeconfig"
            install_operator(cluster, kubeconfig)
            apply(cluster, [namespace(samples.NAMESPACE)])
            step.show("ServiceAccount coder-system/coder-k8s")
        return asyncio.run(
            operate(Environment(home, cluster, postgres, kubeconfig, [*cluster.components]), options, progress, out)
        )


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Write the log of the node and of watches to a file, because the output shows a table."""
    handler, logger = logging.FileHandler(path, delay=True), logging.getLogger("coder_k8s")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def find_programs(options: Options, progress: Progress) -> None:
    """Build missing programs, which takes minutes for the first run."""
    for name in PROGRAMS if options.coder else (*PROGRAMS, "kwok"):
        with progress.step(name, verbose=True) as step:
            program(name, step.show)
    if options.coder:
        with progress.step("coder", verbose=True) as step:
            options.coder.find(step.show)
    node = f"Coder {options.coder.version}" if options.coder else f"kwok {version('kwok')}"
    progress.write(f"Kubernetes {version('kubectl')}, etcd {version('etcd')}, {node}")


async def operate(environment: Environment, options: Options, progress: Progress, out: TextIO) -> int:
    """Start coderd and the operator, create the samples, and show their state."""
    stop_on_signals()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(Http(load(environment.cluster.kubeconfig), NAME, Metrics()))
        client, port = Client(http, NAME), environment.home.port("coderd")
        with progress.step("coderd") as step:
            if options.coder:
                url = await start_real_coder(environment, options.coder, client, stack)
                step.show(f"REAL, pods run as processes, http://127.0.0.1:{port}; no license: only a control plane")
            else:
                url = await start_simulator(environment, client, port, stack)
                step.show(f"SIMULATOR on 127.0.0.1:{port}; `--coder build` runs a real Coder")
        with progress.step("operator") as step:
            log = environment.home.folder / "operator.log"
            operator = Operator(environment.operator_kubeconfig, port, log, LONG_LEASE)
            await release_lease(client)
            await start_process(operator, environment, stack)
            step.show(f"log in {operator.log}")
        with progress.step("samples") as step:
            wanted = await put_samples(client, url, options.coder)
            step.show(", ".join(wanted))
        watch = SampleWatch(client, wanted, operator, environment.processes, progress, out)
        await stack.enter_async_context(watch.run())
        if options.check:
            return await watch.check(options.timeout)
        more = real_coder.commands(environment.home.folder, port) if options.coder else ()
        watch.print_commands(environment.cluster.kubeconfig, program("kubectl"), more)
        await watch.show()
    return 0


def stop_on_signals() -> None:
    """Cancel the current task on SIGINT or SIGTERM, which stops all processes."""
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)


async def start_real_coder(environment: Environment, coder: CoderSource, client: Client, stack: AsyncExitStack) -> str:
    """Start the node that runs pods, and return the URL of the database."""
    home = environment.home
    images = real_coder.images(coder.version, coder.find(lambda _: None))
    await stack.enter_async_context(real_coder.run_node(client, home.folder, images, home.port("coderd")))
    return await prepare(environment.postgres, "coder", home.password("coder"))


async def start_simulator(environment: Environment, client: Client, port: int, stack: AsyncExitStack) -> str:
    """Start the simulators of coderd and of the containers, and return the URL of the database."""
    url = await prepare(environment.postgres, "simulator", environment.home.password("coder"), SIMULATOR_TABLES)
    server = CoderdServer(port=port, database_url=url, state_file=StateFile(environment.home.folder / "simulator.json"))
    await stack.enter_async_context(server)
    await stack.enter_async_context(Kubelet(client, [""], Containers(client, server.state).start).run())
    return url


async def release_lease(client: Client) -> None:
    """Delete the Lease of an operator that was killed in an earlier run, so that the next one leads at once."""
    with suppress(errors.NotFound):
        await client.delete(LEASE, await client.get(LEASE, Key(rbac.NAMESPACE, LEASE_NAME)), unchanged=False)


async def start_process(process: Process, environment: Environment, stack: AsyncExitStack) -> None:
    """Start a process, register its shutdown, and wait until it is ready."""
    process.start()
    stack.push_async_callback(asyncio.to_thread, process.stop)  # while it stops, it may call the simulator in this loop
    environment.processes.append(process)
    await asyncio.to_thread(process.wait_ready)


async def put_samples(client: Client, database_url: str, coder: CoderSource | None) -> list[str]:
    """Create missing samples and keep changes of the user, except for the database URL; return their names."""
    await client.apply(SECRET, samples.database(database_url))
    secrets: samples.Samples = []
    if coder:
        wanted = samples.unlicensed(coder_image_name(coder.version))
    else:
        secrets = [(SECRET, samples.license(make_license(datetime.now(UTC))))]
        wanted = samples.licensed()
    for kind, manifest in [*secrets, *wanted]:
        with suppress(errors.AlreadyExists):
            await client.create(kind, manifest)
    return [f"{kind.name} {key_of(manifest)}" for kind, manifest in wanted]
