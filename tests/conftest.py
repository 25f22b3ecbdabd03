"""Fixtures for all tests: one API server that all workers of a run share.

The process that owns the run (pytest, or xdist's controller) is the parent of the API server and stops it at the end.
Only workers know which tests are selected: a worker whose tests need the cluster creates a file, and the owner checks
for this file when the worker has collected. A run without such tests starts no API server.
"""

import asyncio
import fcntl
import gc
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import uvloop

from coder_k8s.dev.binaries import BinariesMissing
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.dev.postgres import Postgres
from coder_k8s.dev.processes import free_port
from tests.observability.documented import DocumentedReasons
from tests.security.audit import auditing
from tests.security.deletions import DeletionPreconditions
from tests.security.privileges import LeastPrivilege
from tests.security.secrecy import RECORDS, Secrecy, record
from tests.support.coder_builds import CoderBuilds
from tests.support.databases import postgres
from tests.support.installation import install_crds, write_operator_kubeconfig
from tests.support.real_coder import RealPlane, real_plane
from tests.support.real_coderd import fresh_coderd, real_coderd

__all__ = ["fresh_coderd", "postgres", "real_coderd"]

hypothesis.settings.register_profile("coder-k8s", deadline=None)  # no test fails because the machine is busy
hypothesis.settings.load_profile("coder-k8s")

SHARED = pytest.StashKey[ClusterAccess]()
WANTED = "wanted"
CLUSTERS_OF_A_WORKER = ("full_cluster", "whole_cluster", "gateway_cluster", "own_cluster")
"""Fixtures with a cluster that takes seconds to start, and CPU until the worker stops."""


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None:
        config.stash[SHARED] = ClusterAccess(Path(given["cluster_folder"]), given["cluster_port"])
        config.pluginmanager.register(CoderBuilds(config.stash[SHARED].folder))
        record(config, config.stash[SHARED].folder / f"{given['workerid']}{RECORDS}")
        return
    os.environ.setdefault("GOGC", "400")  # for short-lived servers, CPU is more important than memory
    folder = tempfile.TemporaryDirectory(prefix="coder-k8s-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    config.stash[SHARED] = ClusterAccess(Path(folder.name), free_port())
    config.pluginmanager.register(CoderBuilds(Path(folder.name)))
    config.pluginmanager.register(LeastPrivilege(audit_folder(config)))
    config.pluginmanager.register(DeletionPreconditions(audit_folder(config)))
    config.pluginmanager.register(DocumentedReasons(audit_folder(config)))
    config.pluginmanager.register(Secrecy(audit_folder(config), Path(folder.name)))
    record(config, Path(folder.name) / f"owner{RECORDS}")


def audit_folder(config: pytest.Config) -> Path:
    """The folder for the audit logs of the API servers of this run."""
    return config.stash[SHARED].folder / "audit"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    shared = node.config.stash[SHARED]
    node.workerinput |= {"cluster_folder": str(shared.folder), "cluster_port": shared.port}


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on the event loop of the operator."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share a cluster of their worker one after another, so that most workers need not start it."""
    items.sort(key=cluster_of_worker)


def cluster_of_worker(item: pytest.Item) -> int:
    """The number of the cluster that a test shares; tests on a real Coder take long, so all workers run them."""
    used = () if item.get_closest_marker("coder") else getattr(item, "fixturenames", ())
    shared = (number for number, name in enumerate(CLUSTERS_OF_A_WORKER) if name in used)
    return next(shared, len(CLUSTERS_OF_A_WORKER))


@pytest.hookimpl(tryfirst=True)  # before xdist notifies the owner that this worker has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    gc.freeze()  # thousands of tests, which every full garbage collection would visit
    if any("cluster" in getattr(item, "fixturenames", ()) for item in session.items):
        (session.config.stash[SHARED].folder / WANTED).touch()
        if not hasattr(session.config, "workerinput"):
            launch_shared_cluster(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    if (node.config.stash[SHARED].folder / WANTED).exists():
        launch_shared_cluster(node.config)


def launch_shared_cluster(config: pytest.Config) -> None:
    """Launch the cluster once; the first test that uses it waits until it is ready."""
    shared = config.stash[SHARED]
    if isinstance(shared, Cluster):
        return
    try:
        cluster = Cluster(shared.folder, auditing(audit_folder(config)), shared.port)
    except BinariesMissing as missing:
        raise pytest.UsageError(str(missing)) from missing
    config.stash[SHARED] = cluster
    config.add_cleanup(cluster.stop)
    cluster.launch()


@pytest.fixture(scope="session")
def audit(pytestconfig: pytest.Config) -> Path:
    """The folder for audit logs of API servers: `Cluster(folder, auditing(audit))`."""
    return audit_folder(pytestconfig)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> ClusterAccess:
    """The shared cluster of this run. Use `fresh_cluster` for tests that break it."""
    shared = pytestconfig.stash[SHARED]
    shared.wait_ready()
    return shared


@pytest.fixture
def fresh_cluster(audit: Path) -> Iterator[Cluster]:
    """A separate cluster that the test can kill, pause or compact."""
    with tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder, Cluster(Path(folder), auditing(audit)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def module_cluster(audit: Path) -> Iterator[Cluster]:
    """A separate cluster that the tests of a module share. They can kill, pause or compact it, and leave it running."""
    with tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder, Cluster(Path(folder), auditing(audit)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def full_cluster(audit: Path) -> Iterator[FullCluster]:
    """A cluster with the CRDs in which pods become Ready, one per worker."""
    with (
        tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder,
        FullCluster(Path(folder), auditing(audit), prepare=install_crds) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="session")
def full_cluster_operator(full_cluster: FullCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig for the operator's ServiceAccount in the full cluster."""
    return write_operator_kubeconfig(full_cluster, tmp_path_factory.mktemp("operator") / "kubeconfig")


@pytest.fixture
async def real_coder(
    full_cluster: FullCluster, full_cluster_operator: Path, postgres: Postgres
) -> AsyncIterator[RealPlane]:
    """A namespace for a control plane whose pods are processes of a real Coder; see `tests/support/real_coder.py`."""
    with tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder:
        async with real_plane(full_cluster, full_cluster_operator, postgres, Path(folder)) as plane:
            yield plane


@pytest.fixture
def namespace(cluster: ClusterAccess) -> Iterator[str]:
    """A namespace for this test. No controller empties it when it is deleted: objects that a test leaves in it stay."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    status, _ = cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status == 201
    yield name
    cluster.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def crds(cluster: ClusterAccess) -> None:
    """Install the generated CRDs in the shared cluster."""
    with one_worker_at_a_time(cluster):
        install_crds(cluster)


@pytest.fixture(scope="session")
def operator_kubeconfig(cluster: ClusterAccess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig for the operator's ServiceAccount, which has only the generated roles."""
    with one_worker_at_a_time(cluster):
        return write_operator_kubeconfig(cluster, tmp_path_factory.mktemp("operator") / "kubeconfig")


@contextmanager
def one_worker_at_a_time(cluster: ClusterAccess) -> Iterator[None]:
    """Serialize workers, because concurrent applies that create the same object conflict."""
    with (cluster.folder / "install.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
