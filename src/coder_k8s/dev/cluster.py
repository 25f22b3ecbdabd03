"""A real Kubernetes API on this machine: etcd and kube-apiserver, alive as long as we are.

`ClusterAccess` is what anyone needs who only uses a cluster; it follows from a folder and a port, so that it can be
handed to another process. `Cluster` owns the programs. Each is a `Process` in `components`, started in that
order and all waited for, so a further program is one more entry of the list.
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
    """kubectl ended with an error; the message is what it said."""


class ClusterAccess:
    """Where a cluster is, and the files by which its administrator gets in."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = f"https://127.0.0.1:{port}"
        self.ca_path = folder / "cluster-ca.crt"
        self.admin_certificate = folder / "admin.crt"
        self.admin_key = folder / "admin.key"
        self.kubeconfig = folder / "admin.kubeconfig"
        self.apiserver_log = folder / "kube-apiserver.log"

    def request(
        self, method: str, path: str, body: object = None, timeout: float = 10, content_type: str = JSON
    ) -> tuple[int, bytes]:
        """One request as administrator: its status and body."""
        context = ssl.create_default_context(cafile=self.ca_path)
        context.load_cert_chain(self.admin_certificate, self.admin_key)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)
        return _request(connection, method, path, body, content_type)

    def ready(self) -> bool:
        """Whether the API server says that it may be used."""
        try:
            return self.request("GET", "/readyz")[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):  # not listening yet, or no certificates yet
            return False

    def wait_ready(self, timeout: float = 60) -> None:
        """Block until a cluster that another process starts can be used."""
        if not poll(self.ready, timeout):
            raise ProcessFailed(f"no cluster at {self.url} within {timeout:g} s; {tail(self.apiserver_log)}")

    def kubectl(self, *args: str | Path, input: str | None = None) -> str:  # noqa: A002 - as subprocess.run has it
        """What kubectl prints, run as administrator."""
        # A cache of its own: the user's may remember another cluster that had this port.
        command = [program("kubectl"), "--kubeconfig", self.kubeconfig, "--cache-dir", self.folder / "discovery", *args]
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KubectlFailed(done.stderr.strip())
        return done.stdout

    def write_kubeconfig(self, path: Path, user: dict[str, str], namespace: str = "default") -> Path:
        """A kubeconfig for this cluster with these credentials, readable by nobody else."""
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
        """Write the certificates and set every component going, without waiting."""
        self._write_certificates()
        for component in self.components:
            component.start()

    def start(self) -> None:
        """Launch, and return once the cluster can be used."""
        try:
            self.start_api()
        except BaseException:
            self.stop()
            raise

    def start_api(self) -> None:
        """Launch, and return once the API server answers; to stop it, also if that fails, is for the caller."""
        self.launch()
        for component in self.components:
            component.wait_ready()

    def stop(self) -> None:
        """End every component; none has anything to save that a kill would lose."""
        for component in reversed(self.components):
            component.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill_apiserver(self) -> None:
        """Let the API server crash; etcd keeps the data."""
        self.apiserver.kill()

    def start_apiserver(self) -> None:
        """Bring the API server back, on the same port with the same data."""
        self.apiserver.start()
        self.apiserver.wait_ready()

    def pause_apiserver(self) -> None:
        """Let the API server hang: connections stay open and nothing answers."""
        self.apiserver.pause()

    def resume_apiserver(self) -> None:
        self.apiserver.resume()

    def compact(self) -> int:
        """Forget all history in etcd up to now, and return the revision that is left.

        The API server still serves what its watch cache holds. For 410 Gone on an older resourceVersion or continue
        token, restart the API server as well, which empties that cache, or run it with `--watch-cache=false`.
        """
        anything = base64.b64encode(b"/").decode()
        revision = int(self._etcd_request("/v3/kv/range", {"key": anything})["header"]["revision"])
        self._etcd_request("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _etcd_request(self, path: str, body: object) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.etcd_port, timeout=10)
        status, answer = _request(connection, "POST", path, body)
        if status != http.HTTPStatus.OK:
            raise ProcessFailed(f"etcd answered {status} to {path}: {answer.decode(errors='replace')}")
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
            "--unsafe-no-fsync",  # the data dies with the machine at the latest
            "--log-level=warn",
        ]

    def _apiserver_command(self) -> list[str | Path]:
        return [
            program("kube-apiserver"),
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # a loopback address is refused in Endpoints
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
