"""`coder-k8s dev`: the whole product on this machine, from nothing to a table that one can watch.

Everything that is started is a child of this process and dies with it. The first part starts one thing after the
other and may be broken off anywhere; the second is asyncio, because the stand-in for coderd lives in this process.
"""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import key_of

from . import samples
from .binaries import BinariesMissing, program, version
from .cluster import KubectlFailed
from .coderd import real_coderd
from .coderd_server import CoderdServer, make_license
from .coderd_server.saved import Memory
from .containers import Containers
from .database import STAND_IN_TABLES, prepare
from .full_cluster import FullCluster
from .home import FolderRefused, Home, claim, default_folders
from .installation import apply, install_crds, install_operator, namespace
from .kubelet import Kubelet
from .operator import Operator
from .postgres import Postgres, PostgresFailed
from .processes import Process, ProcessFailed
from .progress import Progress
from .watching import Watching

NAME = "coder-k8s-dev"
PROGRAMS = ("etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kwok")
CannotRun = (BinariesMissing, FolderRefused, KubectlFailed, PostgresFailed, ProcessFailed)
"""What one message to the user explains."""


@dataclass(frozen=True)
class Options:
    """What the user asked for; without a folder, the usual one."""

    check: bool
    fresh: bool
    coder: Path | None
    folder: Path | None
    timeout: float


@dataclass(frozen=True)
class Site:
    """What runs when the first part is over."""

    home: Home
    cluster: FullCluster
    postgres: Postgres
    operator_kubeconfig: Path
    processes: list[Process]


def run(options: Options, out: TextIO = sys.stdout) -> int:
    """Run until all samples are Ready, or until told to stop; returns the exit code of the process."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = Progress(out)
    try:
        return start(options, progress, out)
    except (KeyboardInterrupt, asyncio.CancelledError):
        progress.say("\nstopped; nothing of it is running any more")
        return 1 if options.check else 0


def start(options: Options, progress: Progress, out: TextIO) -> int:
    """The parts that are there before any object is."""
    kind = "dev-coder" if options.coder else "dev"
    with ExitStack() as stack:
        home = stack.enter_context(claim([options.folder] if options.folder else default_folders(kind)))
        progress.say(f"coder-k8s dev in {home.folder}")
        if options.fresh:
            home.wipe()
        home.drop_logs()
        find_programs(progress)
        with progress.step("PostgreSQL") as step:
            postgres = Postgres.open(home.folder / "postgres", home.port("postgres"), home.password("postgres"))
            stack.callback(postgres.halt)
            step.say(f"127.0.0.1:{postgres.port}")
        cluster = FullCluster(home.folder, port=home.port("apiserver"))
        stack.callback(cluster.stop)
        with progress.step("cluster") as step:
            cluster.start_api()
            step.say(f"kube-apiserver and etcd, {cluster.url}")
        with progress.step("kinds") as step:
            install_crds(cluster)
            step.say("custom resource definitions")
        with progress.step("node") as step:
            cluster.start_followers()
            step.say("kube-controller-manager, kube-scheduler, kwok; its pods become Ready and run nothing")
        with progress.step("roles") as step:
            kubeconfig = home.folder / "operator.kubeconfig"
            install_operator(cluster, kubeconfig)
            apply(cluster, [namespace(samples.NAMESPACE)])
            step.say("ServiceAccount coder-system/coder-k8s")
        return asyncio.run(
            operate(Site(home, cluster, postgres, kubeconfig, [*cluster.components]), options, progress, out)
        )


def find_programs(progress: Progress) -> None:
    """Every program that is not here is built, which takes minutes, once."""
    for name in PROGRAMS:
        with progress.step(name, talkative=True) as step:
            program(name, step.say)
    progress.say(f"Kubernetes {version('kubectl')}, etcd {version('etcd')}, kwok {version('kwok')}")


async def operate(site: Site, options: Options, progress: Progress, out: TextIO) -> int:
    """coderd, the operator and the samples; then show how they are doing."""
    stop_on_signals()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(Http(load(site.cluster.kubeconfig), NAME, Metrics()))
        client, port = Client(http, NAME), site.home.port("coderd")
        with progress.step("coderd") as step:
            if options.coder:
                url = await start_real_coderd(site, options.coder, port, stack)
                step.say(
                    f"the real one, {options.coder}, http://127.0.0.1:{port}; without a license, a control plane only"
                )
            else:
                url = await start_stand_in(site, client, port, stack)
                step.say(
                    f"a STAND-IN on 127.0.0.1:{port}, not Coder itself; for that, have `coder` on PATH or give --coder"
                )
        with progress.step("operator") as step:
            operator = Operator(site.operator_kubeconfig, port, site.home.folder / "operator.log")
            await begin(operator, site, stack)
            step.say(f"log in {operator.log}")
        with progress.step("samples") as step:
            wanted = await put_samples(client, url, licensed=not options.coder)
            step.say(", ".join(wanted))
        watching = Watching(client, wanted, operator, site.processes, progress, out)
        await stack.enter_async_context(watching.run())
        if options.check:
            return await watching.check(options.timeout)
        watching.introduce(site.cluster.kubeconfig, program("kubectl"))
        await watching.show()
    return 0


def stop_on_signals() -> None:
    """Unwind, and with it stop everything, at the first Ctrl-C."""
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)


async def start_real_coderd(site: Site, coder: Path, port: int, stack: AsyncExitStack) -> str:
    """Returns the URL of its database, in which it makes its own tables."""
    url = await prepare(site.postgres, "coder", site.home.password("coder"))
    try:
        await begin(real_coderd(coder, site.home.folder, port, url), site, stack)
    except ProcessFailed as trouble:
        raise ProcessFailed(f"{trouble}\n(--stand-in does without {coder})") from None
    return url


async def start_stand_in(site: Site, client: Client, port: int, stack: AsyncExitStack) -> str:
    """Returns the URL of its database; what would run in pods is played as well."""
    url = await prepare(site.postgres, "stand_in", site.home.password("coder"), STAND_IN_TABLES)
    server = CoderdServer(port=port, database_url=url, memory=Memory(site.home.folder / "stand-in.json"))
    await stack.enter_async_context(server)
    await stack.enter_async_context(Kubelet(client, [""], Containers(client, server.state).start).run())
    return url


async def begin(process: Process, site: Site, stack: AsyncExitStack) -> None:
    """Start a process that is stopped in the end and ought to run until then."""
    process.start()
    stack.push_async_callback(asyncio.to_thread, process.stop)  # it may have a question that is answered in this loop
    site.processes.append(process)
    await asyncio.to_thread(process.wait_ready)


async def put_samples(client: Client, database_url: str, *, licensed: bool) -> list[str]:
    """Make what is not there; what the user changed in it stays, but for the address of the database."""
    await client.apply(SECRET, samples.database(database_url))
    made: samples.Samples = [(SECRET, samples.license(make_license(datetime.now(UTC))))] if licensed else []
    wanted = samples.samples(licensed=licensed)
    for kind, manifest in [*made, *wanted]:
        with suppress(errors.AlreadyExists):
            await client.create(kind, manifest)
    return [f"{kind.name} {key_of(manifest)}" for kind, manifest in wanted]
