"""`report`: its content, and that it contains no secret."""

import asyncio
import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.console.bundle import gather
from coder_k8s.console.session import Session
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.client import Client
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT, INGRESS, POD, ROLE, SECRET, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Kind, Manifest, Unstructured
from tests.console.conftest import Console
from tests.console.kubelet import node
from tests.console.manifests import READY, labels, made, plane, pod, provisioner, proxy, put, with_conditions
from tests.console.reports import read
from tests.support.api import Api
from tests.support.installation import restricted_kubeconfig

EVENT = Kind("events.k8s.io", "v1", "Event", "events", Unstructured)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OF_PROD = labels("coder-control-plane", "prod")
SESSION_TOKEN = "pX3mQ9vR2a-Zk8TnW4sLc7YbH1dJf6gU0"
PROXY_TOKEN = f"0b6f1f0e-7d5c-4f6a-9a3b-2c1d0e9f8a7b:{'9f86d081884c7d65' * 4}"
PROVISIONER_KEY = "Qm7Zt2XcVb5Nk9LpRw3Ys8Df1Gh6Jj4Aa0EeUuIiOoT"
CREDENTIALS = (SESSION_TOKEN, PROXY_TOKEN, PROVISIONER_KEY)


class Canaries:
    """Creates a different secret value for each place."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def __call__(self, place: str) -> str:
        canary = f"c4nary{len(self.all):02}-{place}'s+/"
        self.all.append(canary)
        return canary

    def plain(self, place: str) -> str:
        """Return a value that is valid as a label."""
        canary = f"c4nary{len(self.all):02}-{place}"
        self.all.append(canary)
        return canary


def encodings(canary: str) -> Iterator[str]:
    """Yield the texts in which a canary could appear."""
    yield from (canary, quote(canary, safe=""), json.dumps(canary)[1:-1], canary.replace("'", "''"))
    for before in ("", "x", "xy"):
        encoded = base64.b64encode((before + canary + "z").encode()).decode()
        yield encoded[4:-4]
        yield encoded[4:-4].replace("+", "-").replace("/", "_")


def encoded(**values: str) -> dict[str, str]:
    return {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}


def secret(name: str, **values: str) -> Manifest:
    manifest = made(SECRET, name)
    del manifest["spec"]
    return {**manifest, "type": "Opaque", "data": encoded(**values)}


def event(namespace: str, name: str, kind: Kind[Any], of: str, note: str) -> Manifest:
    manifest = made(EVENT, name)
    del manifest["spec"], manifest["status"]
    return {
        **manifest,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "SomethingHappened",
        "action": "Reconcile",
        "reportingController": "coder-k8s",
        "reportingInstance": "coder-k8s-0",
        "regarding": {"apiVersion": kind.api_version, "kind": kind.name, "namespace": namespace, "name": of},
        "note": note,
    }


class Fixture:
    """A namespace with a secret in every place that can contain one, also in the logs."""

    def __init__(self, cluster: ClusterAccess, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.canary = Canaries()
        self.known = self.canary("known")
        self.password = self.canary.plain("password")
        self.environment = self.canary("environment")
        self.login = self.canary.plain("login")
        self.logs: dict[str, str] = {}

    def put(self, kind: Kind[Any], manifest: Manifest) -> None:
        put(self.cluster, kind, self.namespace, manifest)

    def fill(self) -> None:
        self._sources()
        self._planes()
        self._others()
        self._children()
        self._operator()
        self._events()

    def _sources(self) -> None:
        docker = json.dumps({"auths": {"registry": {"password": self.canary("docker")}}})
        url = f"postgres://coder:{self.password}@db:5432/coder"
        self.put(SECRET, secret("database", url=url, other=self.known, docker=docker))
        self.put(SECRET, secret("unrelated", value=self.canary("unrelated")))
        settings = made(CONFIG_MAP, "settings")
        del settings["spec"], settings["status"]
        self.put(CONFIG_MAP, {**settings, "data": {"VALUE": self.canary("configmap")}})

    def _pods(self) -> Manifest:
        """Return fields that all kinds have."""
        canary = self.canary
        return {
            "extraEnv": [
                {"name": "CODER_OAUTH2_GITHUB_CLIENT_SECRET", "value": canary("env")},
                {"name": "INNOCENT", "value": self.environment},
                {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}},
                {
                    "name": "CODER_ACCESS_URL",
                    "value": f"https://me:{self.login}@coder.example?x={canary('query')}",
                },
            ],
            "extraArgs": [f"--token={canary('flag')}", "--password", canary("word")],
            "nodeSelector": {"secret": canary.plain("selector")},
            "tolerations": [{"key": "a", "operator": "Equal", "value": canary.plain("toleration")}],
            "volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"password": canary("csi")}}}],
        }

    def _metadata(self) -> Manifest:
        canary = self.canary
        return {
            "annotations": {
                LAST_APPLIED: json.dumps({"value": canary("applied")}),
                "example.com/note": canary("annotation"),
                "coder.com/rotate-key": canary("rotate"),
            },
            "labels": {**OF_PROD, "team": canary.plain("label")},
        }

    def _planes(self) -> None:
        spec = {
            **self._pods(),
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "service": {"annotations": {"lb": self.canary("service")}},
            "serviceAccount": {"annotations": {"role": self.canary("account")}},
            "expose": {"ingress": {"host": "coder.example", "annotations": {"auth": self.canary("ingress")}}},
        }
        message = (
            f"cannot log in with {self.known} at postgres://x:{self.canary.plain('message')}@db, {self.environment}; "
            f"Authorization: Bearer {self.canary.plain('bearer')}"
        )
        status = with_conditions(("Ready", "False", "DatabaseUnreachable", message), version="v2.30.0", readyReplicas=1)
        self.put(CONTROL_PLANE, plane("prod", status, spec, **self._metadata()))

    def _others(self) -> None:
        self.put(
            PROVISIONER, provisioner("gpu", "prod", with_conditions(READY), {**self._pods(), "tags": {"gpu": "yes"}})
        )
        bootstrap = {
            "coderURL": f"https://far.example/?key={self.canary.plain('coderurl')}",
            "credentialsSecretRef": {"name": "database", "key": "other"},
            "displayName": self.canary("display"),
            "icon": f"https://icons.example/?signature={self.canary('icon')}",
        }
        self.put(WORKSPACE_PROXY, proxy("eu", {**self._pods(), "bootstrap": bootstrap}))

    def _children(self) -> None:
        pods = self._pods()
        container = {
            "name": "coder",
            "image": "coder:1",
            "args": pods["extraArgs"],
            "env": pods["extraEnv"],
            "readinessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "a", "value": self.canary("header")}]}},
        }
        template = {"metadata": {"labels": OF_PROD}, "spec": {"containers": [container]}}
        spec = {"selector": {"matchLabels": OF_PROD}, "template": template}
        self.put(DEPLOYMENT, made(DEPLOYMENT, "prod", spec, **self._metadata()))
        self.put(SERVICE, made(SERVICE, "prod", {"ports": [{"port": 80}], "selector": OF_PROD}, **self._metadata()))
        backend = {"service": {"name": "prod", "port": {"number": 80}}}
        self.put(INGRESS, made(INGRESS, "prod", {"defaultBackend": backend}, **self._metadata()))
        account = made(SERVICE_ACCOUNT, "default", **self._metadata())
        del account["spec"], account["status"]
        self.put(SERVICE_ACCOUNT, account)
        ended = {"exitCode": 1, "message": self.canary("ended")}
        waiting = {"reason": "CrashLoopBackOff", "message": f"back-off of {self.known}"}
        state = {
            "name": "coder",
            "image": "coder:1",
            "imageID": "",
            "ready": False,
            "restartCount": 1,
            "state": {"waiting": waiting},
            "lastState": {"terminated": ended},
        }
        manifest = pod("prod-a", {"phase": "Running", "containerStatuses": [state]}, OF_PROD)
        manifest["spec"] = {"nodeName": self.namespace, "containers": [container]}
        self.put(POD, manifest)
        manifest = pod("gpu-a", {"phase": "Running"}, labels("coder-provisioner", "gpu"))
        manifest["spec"]["nodeName"] = self.namespace
        self.put(POD, manifest)
        self._coder_logs()

    def _coder_logs(self) -> None:
        """Logs with credentials that are known from Secrets, and others."""
        canary = self.canary
        jwt = f"eyJhbGciOiJFZERTQSJ9.{canary.plain('licenseclaims')}.{canary.plain('licensesignature')}"
        self.logs["prod-a/coder"] = "\n".join(
            [
                "2026-01-01T00:00:00Z [info] started HTTP listener at http://[::]:8080",
                f"[error] connect to postgres://coder:{self.password}@db:5432/coder: refused",
                f"[error] connect to postgres://other:{canary.plain('dsn')}@db:5432/other?sslkey={canary.plain('key')}",
                f"[debug] session token {SESSION_TOKEN}, proxy token {PROXY_TOKEN}",
                f"[debug] uploaded license {jwt}",
                f"[debug] CODER_OIDC_CLIENT_SECRET={canary('oidc')}",
                "[info] all good at the end",
            ]
        )
        self.logs["prod-a/coder/previous"] = f"panic: {self.known}\nexit status 2\n"
        self.logs["gpu-a/coder"] = "\n".join(
            [
                "lines of a key whose beginning is cut off",
                f"{canary.plain('orphan')}\n-----END RSA PRIVATE KEY-----",
                f"provisioner key {PROVISIONER_KEY}",
                "daemon connected",
            ]
        )

    def _operator(self) -> None:
        state = {"name": "coder-k8s", "image": "i", "imageID": "", "ready": True, "restartCount": 1}
        status = {"phase": "Running", "containerStatuses": [state]}
        manifest = pod("coder-k8s-0", status, {"app.kubernetes.io/name": "coder-k8s"})
        args = ["controller", "--log-level=debug", f"--kubeconfig={self.canary('operator')}"]
        manifest["spec"] = {
            "nodeName": self.namespace,
            "containers": [{"name": "coder-k8s", "image": "coder-k8s:1", "args": args}],
        }
        self.put(POD, manifest)
        canary = self.canary
        basic = base64.b64encode(f"user:{self.known}".encode()).decode()
        # The beginning of a JWT is the same for all of them, so only what follows can be a secret.
        jwt = f"eyJhbGciOiJSUzI1NiJ9.{canary.plain('claims')}.{canary.plain('signature')}"
        self.logs["coder-k8s-0/coder-k8s"] = "\n".join(
            [
                '{"msg":"starting"}',
                f'{{"msg":"found {self.known}","password":"{canary.plain("json")}"}}',
                f"as Kubernetes has it: {base64.b64encode(self.known.encode()).decode()}",
                f"Authorization: Basic {basic}",
                f"license {jwt}",
                f"postgres://coder:{canary.plain('logged')}@db:5432/coder?sslpassword={canary.plain('parameter')}",
                f"host=db password={canary.plain('libpq')} user=coder",
                f"environment has {self.environment}",
                f"login by {self.login} failed, header {basic}",
                f"-----BEGIN PRIVATE KEY-----\n{canary.plain('pem')}\n-----END PRIVATE KEY-----",
                '{"msg":"reconciled gpu"}',
            ]
        )
        self.logs["coder-k8s-0/coder-k8s/previous"] = f"panic: {self.password}\nlast lines\n"

    def _events(self) -> None:
        notes = [
            f"refused {self.known}",
            f"encoded {base64.b64encode(self.known.encode()).decode()}",
            f"connect to postgres://u:{self.canary.plain('event')}@db failed, {self.environment}",
            f"cut off in the middle of {self.known[:12]}…",
        ]
        for number, note in enumerate(notes):
            self.put(EVENT, event(self.namespace, f"event-{number}", CONTROL_PLANE, "prod", note))
        self.put(EVENT, event(self.namespace, "unrelated", POD, "unrelated", "not about Coder"))


@pytest.fixture
def fixture(cluster: ClusterAccess, namespace: str, crds: None) -> Fixture:
    return Fixture(cluster, namespace)


async def test_a_report_contains_no_secret(fixture: Fixture, console: Console, tmp_path: Path) -> None:
    namespace, path = fixture.namespace, tmp_path / "report.zip"
    fixture.fill()
    async with node(fixture.cluster, namespace, tmp_path, fixture.logs):
        done = await asyncio.to_thread(console, "report", "-o", str(path), "--operator-namespace", namespace)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    files = read(path)
    everything = "\n".join([done.output, *files, *files.values()])
    assert [canary for canary in fixture.canary.all if any(form in everything for form in encodings(canary))] == []
    assert "c4nary" not in everything
    parts = {part for each in CREDENTIALS for part in (each, *each.replace(":", "-").split("-")) if len(part) >= 10}
    assert [part for part in parts if part in everything] == []

    check_content(files, namespace)
    check_logs(files, namespace)


def check_logs(files: dict[str, str], namespace: str) -> None:
    log = files["operator/coder-k8s-0/coder-k8s.log"]
    assert '{"msg":"starting"}' in log
    assert '{"msg":"reconciled gpu"}' in log
    assert "last lines" in files["operator/coder-k8s-0/coder-k8s.previous.log"]
    coder = files[f"logs/{namespace}/prod-a/coder.log"].splitlines()
    assert coder[0] == "2026-01-01T00:00:00Z [info] started HTTP listener at http://[::]:8080"
    assert coder[1] == "[error] connect to <redacted>: refused"
    assert coder[-1] == "[info] all good at the end"
    assert files[f"logs/{namespace}/prod-a/coder.previous.log"] == "panic: <redacted>\nexit status 2\n"
    daemon = files[f"logs/{namespace}/gpu-a/coder.log"].splitlines()
    assert daemon == ["<redacted>", "provisioner key <redacted>", "daemon connected"]


def check_content(files: dict[str, str], namespace: str) -> None:
    """Check that what helps is not redacted."""
    kinds = {
        "codercontrolplane-prod",
        "coderprovisioner-gpu",
        "coderworkspaceproxy-eu",
        "deployment-prod",
        "service-prod",
        "ingress-prod",
        "serviceaccount-default",
        "pod-prod-a",
        "pod-gpu-a",
        "pod-coder-k8s-0",
    }
    assert {name.removesuffix(".yaml") for name in files if name.startswith("objects/")} == {
        f"objects/{namespace}/{kind}" for kind in kinds
    }
    plane = yaml.safe_load(files[f"objects/{namespace}/codercontrolplane-prod.yaml"])
    assert plane["status"]["conditions"][0]["reason"] == "DatabaseUnreachable"
    assert plane["status"]["conditions"][0]["message"].startswith("cannot log in with <redacted> at postgres://")
    env = {each["name"]: each for each in plane["spec"]["extraEnv"]}
    assert env["INNOCENT"]["value"] == "<redacted>"
    assert env["FROM_SECRET"]["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "url"}
    assert env["CODER_ACCESS_URL"]["value"] == "https://<redacted>@coder.example?<redacted>"
    assert plane["spec"]["extraArgs"] == ["--token=<redacted>", "--password", "<redacted>"]
    assert yaml.safe_load(files[f"objects/{namespace}/coderprovisioner-gpu.yaml"])["spec"]["tags"] == {"gpu": "yes"}

    sources = {each["name"]: each for each in yaml.safe_load(files["sources.yaml"])}
    assert set(sources) == {"database", "settings"}
    assert set(sources["database"]["bytes"]) == {"url", "other", "docker"}
    assert sources["database"]["bytes"]["other"] == len("c4nary00-known's+/")

    events = yaml.safe_load(files["events.yaml"])
    notes = [each["note"] for each in events]
    assert notes[:2] == ["refused <redacted>", "encoded <redacted>"]
    assert notes[3] == "cut off in the middle of <redacted>…"
    assert {each["regarding"]["name"] for each in events} == {"prod"}

    versions = yaml.safe_load(files["versions.yaml"])
    assert versions["coder"] == {f"{namespace}/prod": "v2.30.0"}
    assert versions["kubernetes"]["gitVersion"].startswith("v1.")
    assert "control plane prod  not ready" in files["status.txt"]
    assert "problems.txt" not in files


def test_what_cannot_be_read_is_listed(
    console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path, operator_kubeconfig: Path
) -> None:
    put(cluster, CONTROL_PLANE, namespace, plane("prod", with_conditions(READY)))
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", "coder-k8s-view")
    path = tmp_path / "report.zip"
    done = console("report", "--kubeconfig", str(config), "-o", str(path))
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{path}: ")
    files = read(path)
    assert f"objects/{namespace}/codercontrolplane-prod.yaml" in files
    assert f"Skipped (forbidden): secrets in namespace {namespace}: secrets is forbidden" in files["problems.txt"]
    assert f"Skipped (forbidden): secrets in namespace {namespace}: secrets is forbidden" in done.stderr


def test_logs_are_skipped_if_secrets_are_unknown(
    console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path, operator_kubeconfig: Path
) -> None:
    put(cluster, CONTROL_PLANE, namespace, plane("prod", with_conditions(READY)))
    put(cluster, SERVICE_ACCOUNT, namespace, made(SERVICE_ACCOUNT, "default"))
    put(cluster, POD, namespace, pod("prod-a", {}, OF_PROD))
    config = restricted_kubeconfig(cluster, namespace, tmp_path / "restricted", "coder-k8s-view")
    subject = f"--serviceaccount={namespace}:restricted"
    cluster.kubectl("create", "role", "pods", "--verb=get,list", "--resource=pods,pods/log", "-n", namespace)
    cluster.kubectl("create", "rolebinding", "pods", "--role=pods", subject, "-n", namespace)
    path = tmp_path / "report.zip"
    done = console("report", "--kubeconfig", str(config), "-o", str(path), "--operator-namespace", namespace)
    assert done.exit_code == 0
    assert f"Skipped (Secrets are unknown): logs of pods in namespace {namespace}" in done.stderr
    assert [name for name in read(path) if name.startswith("logs/")] == []


async def test_a_secret_at_the_cut_of_a_log(fixture: Fixture, console: Console, tmp_path: Path) -> None:
    namespace, path = fixture.namespace, tmp_path / "report.zip"
    fixture.fill()
    fixture.logs["prod-a/coder"] = (f"{fixture.known} " * 800 + "\n") * 100
    async with node(fixture.cluster, namespace, tmp_path, fixture.logs):
        done = await asyncio.to_thread(console, "report", "-o", str(path), "--operator-namespace", namespace)
    assert done.exit_code == 0, done.output
    log = read(path)[f"logs/{namespace}/prod-a/coder.log"]
    assert "<redacted>" in log
    assert "c4nary" not in log
    cut = f"Skipped (size limit of a log): the end of the log of container coder of pod {namespace}/prod-a"
    assert done.stderr.splitlines() == [cut]


def test_a_role_with_a_name_that_is_no_file_name(
    console: Console, cluster: ClusterAccess, namespace: str, tmp_path: Path
) -> None:
    """RBAC accepts every name without `/` and `%`."""
    hostile = "..\\..\\evil:\n"
    for name in (hostile, "x" * 300):
        role = made(ROLE, name, labels=OF_PROD)
        del role["spec"], role["status"]
        put(cluster, ROLE, namespace, {**role, "rules": []})
    path = tmp_path / "report.zip"
    done = console("report", "-o", str(path))
    assert done.exit_code == 0, done.output
    [encoded_name, cut] = sorted(name for name in read(path) if "/role-" in name)
    assert encoded_name == f"objects/{namespace}/role-..%5C..%5Cevil%3A%0A.yaml"
    assert len(cut.rpartition("/")[2]) < 255
    assert yaml.safe_load(read(path)[encoded_name])["metadata"]["name"] == hostile


async def test_a_version_that_cannot_be_read_does_not_lose_the_report() -> None:
    async def respond(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.Response(status=500, text="busy")
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async with Api(respond) as server, Http(server.config, "test", Metrics()) as http:
        bundle = await gather(Session(http, Client(http, "test"), "", "coder"), "coder-system")
    assert bundle.problems == [
        "Skipped (failed): version of Kubernetes: HTTP 500 with a body that is not a Kubernetes Status"
    ]


def test_a_file_that_cannot_be_written(console: Console, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "report.zip"
    done = console("report", "-o", str(path))
    assert (done.exit_code, done.stderr) == (1, f"Error: cannot write {path}: No such file or directory\n")
