"""A real local Kubernetes API server with etcd, which stop with this process.

`ClusterAccess` connects to a running cluster; it needs only a folder and a port, so another process can use it.
`Cluster` owns the programs. Each is a `Process` in `components`, which are started in this order.
"""

import base64
import datetime
import http.client
import json
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from .binaries import program
from .certificates import Authority, signing_key
from .processes import Process, ProcessFailed, free_port, poll, tail

SERVICE_RANGE = "10.96.0.0/16"
API_HOSTS = ("127.0.0.1", "localhost", "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
JSON = "application/json"
ISSUER = "https://kubernetes.default.svc"


class KubectlFailed(Exception):
    """kubectl failed; the message is its error output."""


class ClusterAccess:
    """The address of a cluster, and the files with the administrator's credentials."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = f"https://127.0.0.1:{port}"
        self.ca_path = folder / "cluster-ca.crt"
        self.admin_certificate = folder / "admin.crt"
        self.admin_key = folder / "admin.key"
        self.kubeconfig = folder / "admin.kubeconfig"
        self.apiserver_log = folder / "kube-apiserver.log"
        self._context: ssl.SSLContext | None = None
        """Of the last successful request; loading the certificates takes longer than most requests."""

    def request(
        self, method: str, path: str, body: object = None, timeout: float = 10, content_type: str = JSON
    ) -> tuple[int, bytes]:
        """Send a request as administrator, and return status and body."""
        context, self._context = self._context or self._load_certificates(), None
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)
        answer = _request(connection, method, path, body, content_type)
        self._context = context
        return answer

    def _load_certificates(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_path)
        context.load_cert_chain(self.admin_certificate, self.admin_key)
        return context

    def ready(self) -> bool:
        """Return whether the API server is ready."""
        try:
            return self.request("GET", "/readyz")[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):  # not listening yet, or no certificates yet
            return False

    def wait_ready(self, timeout: float = 60) -> None:
        """Block until a cluster that another process starts is ready."""
        if not poll(self.ready, timeout):
            raise ProcessFailed(f"no cluster at {self.url} within {timeout:g} s; {tail(self.apiserver_log)}")

    def kubectl(self, *args: str | Path, input: str | None = None) -> str:  # noqa: A002 - as in subprocess.run
        """Run kubectl as administrator, and return its output."""
        # A separate cache, because the user's cache may contain another cluster with the same port.
        command = [program("kubectl"), "--kubeconfig", self.kubeconfig, "--cache-dir", self.folder / "discovery", *args]
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KubectlFailed(done.stderr.strip())
        return done.stdout

    def write_kubeconfig(self, path: Path, user: dict[str, str], namespace: str = "default") -> Path:
        """Write a kubeconfig for this cluster with these credentials, readable only by the user."""
        path.touch(mode=0o600)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "dev", "cluster": {"server": self.url, "certificate-authority": str(self.ca_path)}}],
            "users": [{"name": "dev", "user": user}],
            "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": "dev", "namespace": namespace}}],
            "current-context": "dev",
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path


class Cluster(ClusterAccess):
    """etcd and kube-apiserver on free ports of the loopback address, with their files in one folder."""

    def __init__(self, folder: Path, apiserver_args: Sequence[str] = (), port: int | None = None) -> None:
        super().__init__(folder, port or free_port())
        self.etcd_port = free_port()
        self.apiserver_args = apiserver_args
        self.etcd = Process(self._etcd_command(), folder / "etcd.log", self._etcd_ready)
        self.apiserver = Process(self._apiserver_command(), self.apiserver_log, self.ready)
        self.components = [self.etcd, self.apiserver]

    def launch(self) -> None:
        """Write the certificates and start every component, without waiting."""
        self._write_certificates()
        for component in self.components:
            component.start()

    def start(self) -> None:
        """Start the cluster, and return when it is ready."""
        try:
            self.start_api()
        except BaseException:
            self.stop()
            raise

    def start_api(self) -> None:
        """Start etcd and the API server, and wait until they are ready. The caller stops them, also after a failure."""
        self.launch()
        for component in self.components:
            component.wait_ready()

    def stop(self) -> None:
        """Kill every component; no data is lost."""
        for component in reversed(self.components):
            component.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill_apiserver(self) -> None:
        """Kill the API server; etcd keeps the data."""
        self.apiserver.kill()

    def start_apiserver(self) -> None:
        """Start the API server again, on the same port with the same data."""
        self.apiserver.start()
        self.apiserver.wait_ready()

    def pause_apiserver(self) -> None:
        """Suspend the API server: connections stay open but it does not respond."""
        self.apiserver.pause()

    def resume_apiserver(self) -> None:
        self.apiserver.resume()

    def compact(self) -> int:
        """Compact the history in etcd, and return the remaining revision.

        The API server still serves the content of its watch cache. For 410 Gone on an older resourceVersion or continue
        token, also restart the API server, which empties that cache, or run it with `--watch-cache=false`.
        """
        anything = base64.b64encode(b"/").decode()
        revision = int(self._etcd_request("/v3/kv/range", {"key": anything})["header"]["revision"])
        self._etcd_request("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _etcd_request(self, path: str, body: object) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.etcd_port, timeout=10)
        status, answer = _request(connection, "POST", path, body)
        if status != http.HTTPStatus.OK:
            raise ProcessFailed(f"etcd responded with {status} to {path}: {answer.decode(errors='replace')}")
        return json.loads(answer)

    def _etcd_ready(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.etcd_port, timeout=10)
            return _request(connection, "GET", "/health")[0] == http.HTTPStatus.OK  # /readyz is newer than etcd 3.5.10
        except (OSError, http.client.HTTPException):
            return False

    def _etcd_command(self) -> list[str | Path]:
        clients = f"http://127.0.0.1:{self.etcd_port}"
        peers = f"http://127.0.0.1:{free_port()}"
        return [
            program("etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",  # the data does not need to survive a crash of the machine
            "--log-level=warn",
        ]

    def _apiserver_command(self) -> list[str | Path]:
        return [
            program("kube-apiserver"),
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # Endpoints reject loopback addresses
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--authorization-mode=RBAC",
            f"--client-ca-file={self.ca_path}",
            f"--tls-cert-file={self.folder / 'apiserver.crt'}",
            f"--tls-private-key-file={self.folder / 'apiserver.key'}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-signing-key-file={self.folder / 'service-account.key'}",
            f"--service-account-key-file={self.folder / 'service-account.pub'}",
            f"--requestheader-client-ca-file={self.folder / 'front-proxy-ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self.folder / 'front-proxy-client.crt'}",
            f"--proxy-client-key-file={self.folder / 'front-proxy-client.key'}",
            "--profiling=false",
            *self.apiserver_args,
        ]

    def _write_certificates(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = datetime.datetime.now(datetime.UTC)
        cluster = Authority(self.folder, "cluster-ca", now)
        cluster.serving("apiserver", API_HOSTS)
        admin = cluster.client("admin", "admin", ["system:masters"])
        Authority(self.folder, "front-proxy-ca", now).client("front-proxy-client", "front-proxy-client")
        signing_key(self.folder, "service-account")
        files = {"client-certificate": str(admin.certificate), "client-key": str(admin.key)}
        self.write_kubeconfig(self.kubeconfig, files)


def _request(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None, content_type: str = JSON
) -> tuple[int, bytes]:
    try:
        headers = {"Content-Type": content_type}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
