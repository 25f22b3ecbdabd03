"""`status --watch` and `check --wait` while the API server restarts."""

import asyncio
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.certificates import Authority
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.dev.processes import Process, free_port
from tests.console.manifests import READY, plane, put, with_conditions
from tests.console.operators import install, put_lease
from tests.support import eventually
from tests.support.installation import install_crds

COMMAND = (sys.executable, "-u", "-m", "coder_k8s")
STALE = "This may be out of date"


def run(cluster: ClusterAccess, output: Path, *arguments: str) -> Process:
    process = Process([*COMMAND, *arguments, "--kubeconfig", str(cluster.kubeconfig)], output)
    process.start()
    return process


@pytest.mark.slow
async def test_a_restart_of_the_api_server(fresh_cluster: Cluster, tmp_path: Path) -> None:
    install_crds(fresh_cluster)
    install(fresh_cluster, "default")
    put_lease(fresh_cluster, "default")
    put(fresh_cluster, CONTROL_PLANE, "default", plane("prod", namespace="default"))
    shown, checked = tmp_path / "status", tmp_path / "check"
    watching = run(fresh_cluster, shown, "status", "--watch")
    processes = [watching]
    try:
        await eventually(lambda: "control plane prod" in shown.read_text(), 60)
        fresh_cluster.kill_apiserver()
        checking = run(fresh_cluster, checked, "check", "--wait", "120s", "--operator-namespace", "default")
        processes.append(checking)
        await eventually(lambda: STALE in shown.read_text(), 60)
        fresh_cluster.apiserver.start()
        await asyncio.to_thread(fresh_cluster.apiserver.wait_ready)
        await eventually(lambda: STALE not in shown.read_text().rpartition("operator coder-system")[2], 60)
        put(fresh_cluster, CONTROL_PLANE, "default", plane("second", with_conditions(READY), namespace="default"))
        await eventually(lambda: "control plane second  Ready" in shown.read_text(), 60)
        watching.child.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(watching.child.wait, 30) == 0
        assert await asyncio.to_thread(checking.child.wait, 150) == 0
    finally:
        for process in processes:
            process.kill()
    assert "Traceback" not in shown.read_text()
    assert "watching " not in shown.read_text(), "what the informers log is not for the user"
    assert {line.split()[0] for line in checked.read_text().splitlines()} == {"ok"}


async def test_check_does_not_wait_longer_than_requested(tmp_path: Path) -> None:
    stopped = ClusterAccess(tmp_path, free_port())
    stopped.write_kubeconfig(stopped.kubeconfig, {"token": "unused"})
    Authority(tmp_path, "cluster-ca", datetime.now(UTC))
    output = tmp_path / "check"
    checking = run(stopped, output, "check", "--wait", "1s")
    try:
        assert await asyncio.to_thread(checking.child.wait, 60) == 1
    finally:
        checking.kill()
    assert output.read_text().startswith("Error: no response from the API server at https://127.0.0.1:")
