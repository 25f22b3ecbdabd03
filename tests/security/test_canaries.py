"""Known values in every Secret do not appear anywhere else, with and without errors."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from click.testing import CliRunner

from coder_k8s.api import PROVISIONER, RESOURCES, WORKSPACE_PROXY
from coder_k8s.cli import main
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer, make_license
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SECRET, SERVICE
from coder_k8s.kube.objects import Key, Kind
from tests.console.kubelet import node
from tests.console.manifests import pod
from tests.console.manifests import put as put_manifest
from tests.console.reports import read
from tests.e2e import planes
from tests.e2e.operator_process import OperatorProcess, Start
from tests.security.users import post
from tests.support import eventually
from tests.support.databases import CoderdDatabase, create_database
from tests.support.objects import EVENT
from tests.support.provisioners import Handler

PASSWORD = "correct-horse-battery"
WRONG = "staple-of-a-wrong-horse"
OWN = (*(resource.kind for resource in RESOURCES), DEPLOYMENT, SERVICE, EVENT)
GENERATED = ("demo-operator-token", "build-provisioner-key", "near-proxy-token")


class EchoServer:
    """Middleware of coderd that, while enabled, responds with errors that contain the request and its token."""

    def __init__(self) -> None:
        self.enabled = False
        self.tokens: set[str] = set()

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        parts = [request.headers.get("Coder-Session-Token", ""), request.path, (await request.read()).decode()]
        if self.enabled:
            self.tokens.add(parts[0])
            return web.json_response({"message": " ".join(parts), "detail": parts[0]}, status=500)
        return await handler(request)


@pytest.fixture
async def database(postgres: Postgres) -> CoderdDatabase:
    return await create_database(postgres, "2.36.1")


@pytest.fixture
def echo() -> EchoServer:
    return EchoServer()


@pytest.fixture
async def coderd(database: CoderdDatabase, echo: EchoServer) -> AsyncIterator[CoderdServer]:
    server = CoderdServer("2.36.1", now=lambda: datetime.now(UTC), database_url=database.url)
    server._runner.app.middlewares.insert(0, echo.handle)
    async with server:
        yield server


async def put(admin: Client, namespace: str, name: str, **values: str) -> None:
    metadata = {"namespace": namespace, "name": name}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    try:
        await admin.create(SECRET, {"metadata": metadata, "data": data})
    except errors.AlreadyExists:
        await admin.merge(SECRET, Key(namespace, name), {"data": data})


async def make(admin: Client, kind: Kind[Any], namespace: str, name: str, **spec: Any) -> None:
    """Create an object that refers to the control plane."""
    spec["controlPlaneRef"] = {"name": "demo"}
    await admin.create(kind, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})


async def generated_value(admin: Client, namespace: str, name: str) -> str:
    """Wait for a Secret of the operator, and return its value."""

    async def check() -> str:
        try:
            [value] = (await admin.get(SECRET, Key(namespace, name))).manifest["data"].values()
        except errors.NotFound:
            return ""
        return base64.b64decode(value).decode()

    return await eventually(check, 60)


async def visible_text(admin: Client, namespace: str, operator: OperatorProcess) -> str:
    """Everything that is visible without access to Secrets."""
    pages = [page for kind in OWN async for page in admin.list(kind, namespace)]
    seen = [str(msgspec.json.decode(item)) for page in pages for item in page.items]
    secrets = [msgspec.json.decode(item) async for page in admin.list(SECRET, namespace) for item in page.items]
    seen += [str(secret["metadata"]["annotations"]) for secret in secrets if "annotations" in secret["metadata"]]
    process = Path(f"/proc/{operator.pid}")
    arguments = [(process / name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]
    return "\n".join((*seen, *arguments, (await operator.get("metrics", "/metrics"))[1], operator.log.read_text()))


async def bundle(cluster: ClusterAccess, namespace: str, operator: OperatorProcess, folder: Path) -> str:
    """The content of a support bundle, with a simulated pod that has the operator's log."""
    state = {"name": "coder-k8s", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
    manifest = pod("coder-k8s-0", {"containerStatuses": [state]}, {"app.kubernetes.io/name": "coder-k8s"})
    manifest["spec"] = {"nodeName": namespace, "containers": [{"name": "coder-k8s", "image": "i"}]}
    post(cluster, f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    put_manifest(cluster, POD, namespace, manifest)
    place = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace, "--operator-namespace", namespace]
    path = folder / "report.zip"
    async with node(cluster, namespace, folder, {"coder-k8s-0/coder-k8s": operator.log.read_text()}):
        done = await asyncio.to_thread(CliRunner().invoke, main, ["report", *place, "--output", str(path)])
    assert done.exit_code == 0, done.output
    return "\n".join((done.output, *read(path).values()))


async def test_secret_values_appear_nowhere(
    cluster: ClusterAccess,
    start: Start,
    admin: Client,
    namespace: str,
    database: CoderdDatabase,
    coderd: CoderdServer,
    echo: EchoServer,
    tmp_path: Path,
) -> None:
    bootstrap, license = coderd.state.add_token(coderd.state.owner), make_license(datetime.now(UTC))
    await put(admin, namespace, "database", url=database.server.url(database.name, "admin", PASSWORD))
    await put(admin, namespace, "license", license=license)
    await put(admin, namespace, "given", token=bootstrap)
    service = f"demo.{namespace}.svc.cluster.local:80"
    operator = start("--log-level=debug", f"--coderd-connect-to={service}=127.0.0.1:{coderd.port}")
    key = Key(namespace, "demo")
    url = {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}}
    await planes.make(admin, key, extraEnv=[url], licenseSecretRef={"name": "license"})
    await planes.serve(admin, key)
    await planes.condition(admin, key, "LicenseApplied", "Applied")
    given = {"bootstrap": {"credentialsSecretRef": {"name": "given"}}}
    await make(admin, PROVISIONER, namespace, "build", **given)
    await make(admin, WORKSPACE_PROXY, namespace, "near")
    secrets = [await generated_value(admin, namespace, name) for name in GENERATED]
    echo.enabled = True
    await put(admin, namespace, "license", license=license + "x")
    await put(admin, namespace, "given", token=bootstrap + "x")
    await eventually(lambda: {bootstrap + "x", secrets[0]} <= echo.tokens, 60)
    echo.enabled = False
    await put(admin, namespace, "database", url=database.server.url(database.name, "coder", WRONG))
    await admin.delete(SECRET, await admin.get(SECRET, Key(namespace, GENERATED[0])), unchanged=False)
    await planes.condition(admin, key, "OperatorAccessReady", "DatabaseUnreachable")
    seen = await eventually(lambda: complete_text(admin, namespace, operator), 30)
    packed = await bundle(cluster, namespace, operator, tmp_path)
    assert [each for each in ("OperatorAccessFailed", "DatabaseUnreachable", "leading") if each not in packed] == []
    for secret in (PASSWORD, WRONG, bootstrap, license, *secrets):
        for part in {secret, *(part for part in secret.replace(":", "-").split("-") if len(part) > 15)}:
            assert part not in seen
            assert part not in packed


async def complete_text(admin: Client, namespace: str, operator: OperatorProcess) -> str:
    """Everything that is visible; fails if events, conditions, metrics, log or command line are missing."""
    seen = await visible_text(admin, namespace, operator)
    sources = (
        "OperatorAccessFailed",
        "DatabaseUnreachable",
        "coder_k8s_license_tier",
        '"msg":"leading"',
        "--log-level",
    )
    assert [each for each in sources if each not in seen] == []
    return seen
