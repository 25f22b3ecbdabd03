"""The environment in which the commands of the documentation run.

The API server, the controllers of Kubernetes, PostgreSQL and the operator are real. The operator is a process with the
ServiceAccount that the pages install. kwok simulates the pods, and a simulator of coderd simulates their containers.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from coder_k8s.dev import gateway_api
from coder_k8s.dev.binaries import program
from coder_k8s.dev.coderd_server import CoderdServer, make_license
from coder_k8s.dev.containers import Containers
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.dev.kubelet import Kubelet
from coder_k8s.dev.operator import Operator
from coder_k8s.dev.postgres import Postgres
from coder_k8s.dev.processes import tail
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from tests.docs.pages import ROOT, Block
from tests.support.databases import create_database
from tests.support.gateways import accepting

CHECKOUT = ("charts", "config", "examples", "install.yaml")
SERVICE_ACCOUNT = "/api/v1/namespaces/coder-system/serviceaccounts/coder-k8s"
SELECTOR = "app.kubernetes.io/name=coder-k8s,app.kubernetes.io/instance=coder-k8s"
CLUSTER_SCOPED = (
    *("customresourcedefinitions", "clusterroles", "clusterrolebindings"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
)
NAMESPACED = ("deployments", "services", "serviceaccounts", "roles", "rolebindings", "poddisruptionbudgets")
GATEWAY_KINDS = re.compile(r"^  name: (gateways|httproutes)\.", re.MULTILINE)
TIMEOUT = 180.0


class CommandFailed(AssertionError):
    """A command of a page failed."""


class DocsEnvironment:
    """A checkout, a shell, and administrator permissions in a cluster."""

    def __init__(self, cluster: FullCluster, folder: Path, coderd: CoderdServer, database_url: str) -> None:
        self.durations: list[tuple[float, str]] = []
        self._cluster = cluster
        self._folder = folder
        self._coderd = coderd
        self._operator: Operator | None = None
        self._installed = ""
        self._env = os.environ | {
            "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.kubeconfig),
            "HOME": str(folder / "home"),
            "DATABASE_URL": database_url,
            "CODER_SESSION_TOKEN": coderd.state.token,
        }
        self._create_folders()

    async def run(self, block: Block) -> None:
        """Run the commands of a block in a directory with the checkout and the files of the pages."""
        started = time.monotonic()
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", block.text),
            cwd=self._folder / "work",
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(TIMEOUT):
                output, _ = await shell.communicate()
        except TimeoutError:
            shell.kill()
            raise CommandFailed(f"{block}: still running after {TIMEOUT:g} s\n{self.state()}") from None
        text = output.decode(errors="replace")
        if shell.returncode != 0 or "unknown field" in text:
            raise CommandFailed(f"{block}: exit code {shell.returncode}\n{block.text}\n{text}\n{self.state()}")
        self.durations.append((time.monotonic() - started, str(block)))
        await self._run_installed_operator()

    def write(self, block: Block) -> None:
        """Save a block as a file with its title as name."""
        (self._folder / "work" / block.title).write_text(block.text)

    def state(self) -> str:
        """Return the objects, the pods and the end of the operator's log."""
        script = "kubectl get coder --all-namespaces --output=wide; kubectl get pods --all-namespaces"
        output = subprocess.run(["bash", "-c", script], env=self._env, capture_output=True, text=True, check=False)
        return (
            output.stdout + output.stderr + (tail(self._operator.log) if self._operator else "no operator is installed")
        )

    @property
    def defects(self) -> list[str]:
        """The lines with a traceback in the operator's log."""
        lines = self._operator.log.read_text().splitlines() if self._operator else []
        return [line for line in lines if "Traceback" in line]

    def stop(self) -> None:
        if self._operator is not None:
            self._operator.kill()

    def left(self) -> list[str]:
        """Return the objects of an installation, and the keys and workspace proxies in Coder, that still exist."""
        state = self._coderd.state
        credentials = [*(key.name for key in state.keys.values()), *(proxy.name for proxy in state.proxies.values())]
        kinds = ",".join((*CLUSTER_SCOPED, *NAMESPACED))
        selected = (f"--selector={SELECTOR}", "--all-namespaces", "--ignore-not-found", "--output=name")
        system = ("namespace", "coder-system", "--ignore-not-found", "--output=name")
        found = (self._cluster.kubectl("get", kinds, *selected), self._cluster.kubectl("get", *system))
        return [*credentials, *(name for text in found for name in text.split())]

    async def _run_installed_operator(self) -> None:
        """Run the operator when its ServiceAccount is created, because kwok runs no containers."""
        status, body = self._cluster.request("GET", SERVICE_ACCOUNT)
        uid = json.loads(body)["metadata"]["uid"] if status == HTTPStatus.OK else ""
        if uid in ("", self._installed):
            return
        self.stop()
        self._installed = uid
        account = ("coder-k8s", "--namespace=coder-system", "--duration=8h")
        token = self._cluster.kubectl("create", "token", *account).strip()
        kubeconfig = self._cluster.write_kubeconfig(self._folder / "operator", {"token": token}, "coder-system")
        self._operator = Operator(kubeconfig, self._coderd.port, self._folder / "operator.log")
        self._operator.start()

    def _create_folders(self) -> None:
        for name in ("bin", "home", "work"):
            (self._folder / name).mkdir()
        for name in ("kubectl", "helm"):
            (self._folder / "bin" / name).symlink_to(program(name))
        for name in CHECKOUT:
            (self._folder / "work" / name).symlink_to(ROOT / name)
        (self._folder / "work" / "license.jwt").write_text(make_license(datetime.now(UTC)))


@asynccontextmanager
async def docs_environment(cluster: FullCluster, postgres: Postgres, folder: Path) -> AsyncIterator[DocsEnvironment]:
    """Yield a cluster with the Gateway API and a database with Coder's tables, before anything is installed."""
    kinds = [each for each in gateway_api.manifests().split("\n---\n") if GATEWAY_KINDS.search(each)]
    cluster.kubectl("apply", "--server-side", "--filename=-", input="\n---\n".join(kinds))
    database = await create_database(postgres, "2.36.1")
    async with AsyncExitStack() as stack:
        coderd = await stack.enter_async_context(CoderdServer("2.36.1", database_url=database.url))
        http = await stack.enter_async_context(Http(load(cluster.kubeconfig), "kubelet", Metrics()))
        client = Client(http, "kubelet")
        containers = Containers(client, coderd.state)
        await stack.enter_async_context(accepting(client))
        await stack.enter_async_context(Kubelet(client, [""], containers.start).run())
        environment = DocsEnvironment(cluster, folder, coderd, database.url)
        stack.callback(environment.stop)
        yield environment
