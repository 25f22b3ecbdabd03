"""The operator continues and recovers when its dependencies fail, and its probes report its state."""

import asyncio
import os
import resource
import signal
import time
from functools import partial
from pathlib import Path
from random import Random

import aiohttp
import pytest

from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.dev.processes import Process, free_port
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key
from tests.e2e.conftest import admin, launch, lease_namespace, proxied_kubeconfig, proxy, start
from tests.e2e.operator_process import COMMAND, OperatorProcess, Start
from tests.e2e.planes import ALONE, exists, make
from tests.support import eventually
from tests.support.controlplanes import PlaneNamespace, assert_one_token, env
from tests.support.databases import CoderdDatabase
from tests.support.forwarding import FailingServer
from tests.support.installation import install_crds, write_operator_kubeconfig
from tests.support.proxy import Proxy

__all__ = ["admin", "launch", "lease_namespace", "proxied_kubeconfig", "proxy", "start"]

TIMEOUT = 60.0
HEALTHY = {"/healthz": 200, "/readyz": 200}


async def deployed(client: Client, namespace: str, *names: str) -> None:
    """Wait until control planes have their Deployments."""
    for name in names:
        await eventually(partial(exists, client, DEPLOYMENT, Key(namespace, name)), TIMEOUT)


async def probes(operator: OperatorProcess) -> dict[str, int]:
    """The status of the liveness and the readiness probe."""
    return {path: (await operator.get("health", path))[0] for path in HEALTHY}


async def probes_over(session: aiohttp.ClientSession) -> dict[str, int]:
    """The status of the probes over a connection that stays open."""
    found = {}
    for path in HEALTHY:
        async with session.get(path) as answer:
            found[path] = answer.status
    return found


@pytest.mark.slow
async def test_a_third_of_all_requests_fails(
    cluster: ClusterAccess, start: Start, admin: Client, namespace: str, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    names = [f"demo-{number}" for number in range(8)]
    async with FailingServer(cluster, Random(5), share=0.3) as faulty:  # noqa: S311 - deterministic
        operator = start("--no-leader-elect", kubeconfig=faulty.kubeconfig(operator_kubeconfig, tmp_path / "faulty"))
        for name in names:
            await make(admin, Key(namespace, name), **ALONE)
        await deployed(admin, namespace, *names)
        await eventually(lambda: faulty.failed >= 30, TIMEOUT)
        assert await probes(operator) == HEALTHY, "its caches are synced, and no watch is idle for too long"
        faulty.share = 0.0
        await eventually(operator.is_ready, TIMEOUT)
        await make(admin, Key(namespace, "later"), **ALONE)
        await deployed(admin, namespace, "later")
        operator.kill()


async def test_writing_the_log_fails(
    operator_kubeconfig: Path, crds: None, admin: Client, namespace: str, tmp_path: Path
) -> None:
    port = free_port()
    flags = ["--kubeconfig", str(operator_kubeconfig), "--watch-namespaces", namespace, "--no-leader-elect"]
    flags += ["--health-probe-bind-address", f"127.0.0.1:{port}", "--metrics-bind-address", "0"]
    script = 'exec "$@" > /dev/full 2>&1'
    operator = Process(
        ["sh", "-c", script, "sh", *COMMAND, "controller", *flags], tmp_path / "log", env=dict(os.environ)
    )
    operator.start()
    try:
        await make(admin, Key(namespace, "demo"), **ALONE)
        await deployed(admin, namespace, "demo")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            assert await probes_over(session) == HEALTHY
        operator.child.terminate()
        await asyncio.to_thread(operator.child.wait, TIMEOUT)
    finally:
        operator.kill()


async def test_no_file_descriptor_is_free_for_some_time(
    start: Start, admin: Client, namespace: str, proxy: Proxy, proxied_kubeconfig: Path
) -> None:
    """A probe needs a new connection and times out, so the kubelet would restart the operator."""
    operator = start("--no-leader-elect", kubeconfig=proxied_kubeconfig)
    await eventually(operator.is_ready, TIMEOUT)
    before = resource.prlimit(operator.pid, resource.RLIMIT_NOFILE)
    health = f"http://{operator.addresses['health']}"
    async with aiohttp.ClientSession(health, connector=aiohttp.TCPConnector(keepalive_timeout=2 * TIMEOUT)) as kept:
        assert await probes_over(kept) == HEALTHY
        resource.prlimit(operator.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        proxy.reset()  # the operator needs new connections
        await make(admin, Key(namespace, "later"), **ALONE)
        await eventually(lambda: operator.log_entry("Too many open files"), TIMEOUT)
        assert operator.running
        assert await probes_over(kept) == HEALTHY, "no watch is idle for too long yet"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(probes(operator), 1)
        resource.prlimit(operator.pid, resource.RLIMIT_NOFILE, before)
    assert await probes(operator) == HEALTHY, "connections that waited get a response"
    await deployed(admin, namespace, "later")
    assert await probes(operator) == HEALTHY


@pytest.mark.campaign
@pytest.mark.timeout(300)
async def test_etcd_is_suspended_for_twenty_seconds(launch: Start, fresh_cluster: Cluster, tmp_path: Path) -> None:
    install_crds(fresh_cluster)
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    fresh_cluster.kubectl("create", "namespace", "place")
    operator = launch(kubeconfig, "--no-leader-elect")
    await eventually(operator.is_ready, TIMEOUT)
    os.kill(fresh_cluster.etcd.pid, signal.SIGSTOP)
    try:
        await stays_healthy(operator, 20)
    finally:
        os.kill(fresh_cluster.etcd.pid, signal.SIGCONT)
    async with Http(load(fresh_cluster.kubeconfig), "user", Metrics()) as http:
        client = Client(http, "user")
        await make(client, Key("place", "demo"), **ALONE)
        await deployed(client, "place", "demo")
    await eventually(operator.is_ready, TIMEOUT)


async def stays_healthy(operator: OperatorProcess, seconds: float) -> None:
    """Check that an operator whose API server hangs stays alive and ready: no watch is idle for too long yet."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert await probes(operator) == HEALTHY
        await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("fault", "fix"),
    [
        ("ALTER DATABASE {} SET default_transaction_read_only = on", "ALTER DATABASE {} RESET ALL"),
        ("ALTER ROLE {} CONNECTION LIMIT 0", "ALTER ROLE {} CONNECTION LIMIT -1"),
    ],
    ids=["read-only", "out of connections"],
)
async def test_the_database_rejects_tokens_for_some_time(
    demo: PlaneNamespace, database: CoderdDatabase, fault: str, fix: str
) -> None:
    role = database.name
    await database.server.execute(f"CREATE ROLE {role} LOGIN")
    await database.server.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}", database.name)
    await database.server.execute(fault.format(database.name))
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.server.url(database.name, role)))
        await demo.condition("OperatorAccessReady", "DatabaseUnreachable", "False")
        assert await demo.find(DEPLOYMENT, "demo"), "the Deployment does not depend on the database"
        await operator.wait_idle()
        await database.server.execute(fix.format(database.name))
        await operator.later(seconds=31)
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await assert_one_token(demo, database)
