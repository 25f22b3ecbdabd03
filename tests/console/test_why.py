"""`why` on a real API server: who can run a job, and who cannot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.cli import main
from coder_k8s.coderd.types import JobMetadata, Organization, ProvisionerJob
from coder_k8s.console.why import Subject, text
from coder_k8s.controllers.candidates import Candidate, Obstacle
from coder_k8s.controllers.tags import UNTAGGED, key_tags
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer
from tests.console.coder_proxy import ApiServerWithCoder, make_plane
from tests.console.manifests import plane, provisioner, put
from tests.support.clock import Clock
from tests.support.installation import restricted_kubeconfig

GPU = {"env": "gpu"}
CODER = Organization("org-1", "coder", "Coder", is_default=True)
Why = Callable[..., "asyncio.Future[Result]"]


@pytest.fixture
async def coderd() -> AsyncIterator[CoderdServer]:
    async with CoderdServer(now=Clock()) as server:
        yield server


def runner(kubeconfig: Path, **env: str) -> Why:
    async def run(*args: str) -> Result:
        cli = CliRunner(env={"KUBECONFIG": str(kubeconfig), "CODER_SESSION_TOKEN": "", **env})
        return await asyncio.to_thread(cli.invoke, main, ["why", *args])

    return run  # type: ignore[return-value]


@pytest.fixture
async def server(
    cluster: ClusterAccess, crds: None, namespace: str, coderd: CoderdServer
) -> AsyncIterator[ApiServerWithCoder]:
    async with ApiServerWithCoder(cluster, namespace, coderd) as server:
        yield server


@pytest.fixture
async def why(
    cluster: ClusterAccess, server: ApiServerWithCoder, namespace: str, coderd: CoderdServer, tmp_path: Path
) -> Why:
    """Runs `why` with a control plane and its provisioners."""
    make_plane(cluster, namespace, coderd.state.token)
    put(cluster, PROVISIONER, namespace, provisioner("build", "demo", spec={"tags": {"env": "cpu"}}))
    put(cluster, PROVISIONER, namespace, provisioner("zero", "demo", spec={"tags": GPU, "replicas": 0}))
    put(cluster, PROVISIONER, namespace, provisioner("other", "elsewhere", spec={"tags": GPU}))
    user = restricted_kubeconfig(cluster, namespace, tmp_path / "user", "cluster-admin")
    return runner(server.kubeconfig(user, tmp_path / "forwarded"))


async def test_a_job(why: Why, coderd: CoderdServer) -> None:
    coderd.state.connect_daemon("vm-0")
    metadata = {"template_name": "gpu", "workspace_name": "jo-dev", "template_version_name": "v1", "template_id": "x"}
    job = coderd.state.queue.add_job(GPU, metadata=metadata)
    expected = f"""\
Job {job} (workspace build of jo-dev) in organization coder
  Status: pending since 2026-03-01T12:00Z; if nothing runs it, Coder fails it at 2026-03-01T12:30Z
  Tags:   env=gpu
  PROVISIONER               TAGS     RESULT
  CoderProvisioner build    env=cpu  has env=cpu instead of env=gpu
  CoderProvisioner zero     env=gpu  is scaled to zero
  the built-in provisioner  none     lacks env=gpu
Result: a provisioner has its tags, but does not run: see the table.
"""
    for name in (job, job[:8], "jo-dev", "gpu"):
        result = await why(name)
        assert (result.output, result.exit_code) == (expected, 0)


async def test_a_template(why: Why, coderd: CoderdServer) -> None:
    coderd.state.connect_daemon("vm-0")
    coderd.state.templates.add_template("plain")
    result = await why("plain")
    assert (
        result.output
        == """\
Template plain in organization coder
  Tags:   none
  PROVISIONER               TAGS     RESULT
  CoderProvisioner build    env=cpu  has the tags env=cpu, and a job without tags needs a provisioner without tags
  CoderProvisioner zero     env=gpu  has the tags env=gpu, and a job without tags needs a provisioner without tags
  the built-in provisioner  none     can run it
Result: the built-in provisioner can run it.
"""
    )


def workspace(coderd: CoderdServer, job: str) -> dict[str, Any]:
    """What coderd responds for a workspace. The job of its last build has the ID of its daemon, but not the name."""
    state, known = coderd.state, coderd.state.queue.job(job)
    build = {
        "id": job,
        "created_at": known.created_at.isoformat(),
        "started_at": known.started_at and known.started_at.isoformat(),
        "status": known.status,
        "worker_id": known.worker or None,
        "tags": known.tags,
        "metadata": {"template_version_name": "", "template_id": "00000000-0000-0000-0000-000000000000"},
    }
    return {
        "id": "2b4b650b-d5d4-48eb-8478-0e1229112583",
        "name": "dev",
        "owner_name": "jo",
        "organization_id": state.organization_id,
        "template_name": "gpu",
        "latest_build": {"id": "2e5225c7-492b-446b-b915-cd47973124e3", "job": build},
    }


async def test_a_workspace(why: Why, server: ApiServerWithCoder, coderd: CoderdServer) -> None:
    """Its last build, also after it ran."""
    state = coderd.state
    job = state.queue.add_job(GPU)
    server.workspaces["jo/dev"] = workspace(coderd, job)
    result = await why("jo/dev")
    assert (result.output, result.exit_code) == (
        """\
Last build of workspace jo/dev in organization coder
  Status: pending since 2026-03-01T12:00Z; if nothing runs it, Coder fails it at 2026-03-01T12:30Z
  Tags:   env=gpu
  PROVISIONER             TAGS     RESULT
  CoderProvisioner build  env=cpu  has env=cpu instead of env=gpu
  CoderProvisioner zero   env=gpu  is scaled to zero
Result: a provisioner has its tags, but does not run: see the table.
""",
        0,
    )
    state.add_key("gpu", GPU)
    assert state.acquire_job(state.connect_daemon("gpu-1", "gpu")) == job
    state.queue.finish_job(job)
    server.workspaces["jo/dev"] = workspace(coderd, job)
    result = await why("jo/dev")
    assert "  Status: succeeded\n" in result.output
    assert result.output.endswith("Result: it has run, or runs, on daemon gpu-1.\n")


async def test_what_does_not_exist(why: Why) -> None:
    for name in ("nothing", "jo/nothing", "6b7ea85c-0000-4000-8000-000000000000"):
        result = await why(name)
        assert result.exit_code == 1
        assert f"Coder has no job, workspace (OWNER/NAME) or template {name}" in result.output


async def test_an_error_of_coder(why: Why, coderd: CoderdServer) -> None:
    coderd.state.revoke_token(coderd.state.token)
    result = await why("gpu")
    assert result.exit_code == 1
    assert "Coder of control plane demo cannot be queried: API key is invalid" in result.output
    assert coderd.state.token not in result.output


async def test_the_control_plane_must_be_unique(why: Why, cluster: ClusterAccess, namespace: str) -> None:
    put(cluster, CONTROL_PLANE, namespace, plane("second"))
    result = await why("gpu")
    assert "has several control planes: use --control-plane with one of demo, second" in result.output
    assert "no job waits for one" in (await why("gpu", "--control-plane", "demo")).output
    assert "no control plane named third found" in (await why("gpu", "--control-plane", "third")).output
    assert (
        "the operator has no access to the Coder of control plane second"
        in (await why("gpu", "--control-plane", "second")).output
    )


async def test_a_user_without_the_permissions(
    cluster: ClusterAccess, crds: None, namespace: str, tmp_path: Path
) -> None:
    """A user who may read Coder resources may neither read Secrets nor connect to Services."""
    make_plane(cluster, namespace, "x" * 30)
    user = restricted_kubeconfig(cluster, namespace, tmp_path / "user", None)
    kinds = "codercontrolplanes.coder.com,coderprovisioners.coder.com"
    cluster.kubectl("create", "role", "reader", "--verb=get,list", f"--resource={kinds}", "-n", namespace)
    account = f"--serviceaccount={namespace}:restricted"
    cluster.kubectl("create", "rolebinding", "reader", "--role=reader", account, "-n", namespace)
    result = await runner(user)("gpu")
    assert (
        f"you may not read Secret demo-operator-token in namespace {namespace}, which has the operator's token. "
        "With --use-session-token, the token in CODER_SESSION_TOKEN is used instead, of a user with the role Owner"
    ) in result.output
    own = {"CODER_SESSION_TOKEN": "y" * 30}
    assert "you may not read Secret" in (await runner(user, **own)("gpu")).output, "only on request"
    result = await runner(user)("gpu", "--use-session-token")
    assert "the environment variable CODER_SESSION_TOKEN is not set" in result.output
    result = await runner(user, **own)("gpu", "--use-session-token")
    assert f"You need the permission to get services/proxy in namespace {namespace}" in result.output
    assert result.exit_code == 1


async def test_without_pods_or_token(cluster: ClusterAccess, crds: None, namespace: str, tmp_path: Path) -> None:
    make_plane(cluster, namespace, "")
    user = restricted_kubeconfig(cluster, namespace, tmp_path / "user", "cluster-admin")
    assert f"Secret demo-operator-token in namespace {namespace} does not exist" in (await runner(user)("x")).output
    cluster.kubectl("create", "secret", "generic", "demo-operator-token", "--from-literal=other=x", "-n", namespace)
    assert "has no key token" in (await runner(user)("x")).output
    cluster.kubectl("create", "service", "clusterip", "demo", "--tcp=80:8080", "-n", namespace)
    result = await runner(user, CODER_SESSION_TOKEN="y" * 30)("x", "--use-session-token")
    assert f"the API server cannot reach Service demo in namespace {namespace}" in result.output


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tags", "job", "considered", "result"),
    [
        ({**GPU, **UNTAGGED}, None, [], "no provisioner can run it: the organization has no provisioner."),
        (UNTAGGED, None, [], "no provisioner can run it: without tags, it needs a provisioner without tags."),
        (
            {"scope": "user", "owner": "x"},
            None,
            [],
            "no provisioner can run it: with scope=user, it needs a daemon of its owner.",
        ),
        (
            {**GPU, **UNTAGGED},
            None,
            [Candidate("CoderProvisioner a", key_tags(GPU)), Candidate("CoderProvisioner b", key_tags(GPU))],
            "CoderProvisioner a, CoderProvisioner b can run it.",
        ),
        (
            {**GPU, **UNTAGGED},
            None,
            [Candidate("key b", key_tags(GPU), Obstacle.OFFLINE)],
            "a provisioner has its tags, but does not run: see the table.",
        ),
        (
            {**GPU, **UNTAGGED},
            ProvisionerJob("x", NOW, "running", {}, NOW, "1", "gpu-1"),
            [],
            "it has run, or runs, on daemon gpu-1.",
        ),
        (
            {**GPU, **UNTAGGED},
            ProvisionerJob("x", NOW, "failed", {}, NOW, metadata=JobMetadata()),
            [],
            "it has run, or runs, on daemon that no longer exists.",
        ),
    ],
)
def test_each_result(
    tags: dict[str, str], job: ProvisionerJob | None, considered: list[Candidate], result: str
) -> None:
    assert list(text(Subject("It", CODER, tags, job), considered))[-1] == f"Result: {result}"
