"""Where the API server is and who we are: from a kubeconfig, or from inside the cluster."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from coder_k8s.kube import kubeconfig as files
from coder_k8s.kube.credentials import Clock, CredentialCache, Credentials, Login, StaticCredentials, TLSConfig, basic
from coder_k8s.kube.exec_plugin import ExecPlugin
from coder_k8s.kube.kubeconfig import Choice, Cluster, ConfigError, User

__all__ = ["Config", "ConfigError", "Credentials", "in_cluster", "load"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Config:
    """An API server and our credentials there."""

    server: str
    namespace: str
    credential_cache: CredentialCache = field(repr=False)
    proxy: str | None = None
    proxy_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    server_name: str | None = None

    async def credentials(self, *, renew: bool = False) -> Credentials:
        """What to send now; `renew` after the API server refused the last ones."""
        return await self.credential_cache.credentials(renew=renew)


def load(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Clock = time.time,
) -> Config:
    """The first of: the given file; the files that `KUBECONFIG` lists; the cluster we run in; `~/.kube/config`.

    Only a kubeconfig has contexts, so naming one passes over the cluster we run in.
    """
    if kubeconfig:
        return _of_files([Path(kubeconfig)], context, environ, clock)
    if listed := [Path(entry) for entry in environ.get("KUBECONFIG", "").split(os.pathsep) if entry]:
        existing = [path for path in listed if path.exists()]
        if not existing:
            raise ConfigError(f"KUBECONFIG: there is no file {' or '.join(map(str, listed))}")
        return _of_files(existing, context, environ, clock)
    if not context and "KUBERNETES_SERVICE_HOST" in environ and (service_account / "token").exists():
        return in_cluster(environ, service_account, clock)
    default = (home or Path.home()) / ".kube" / "config"
    if not default.exists():
        raise ConfigError(
            f"no cluster: KUBECONFIG is not set, there is no service account token in {service_account} "
            f"and no file {default}"
        )
    return _of_files([default], context, environ, clock)


def in_cluster(
    environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT, clock: Clock = time.time
) -> Config:
    """The cluster whose pod we are, as the pod's service account."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    origin = "service account"
    login = StaticCredentials(origin, clock, token=service_account / "token")
    namespace = service_account / "namespace"
    return Config(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        credential_cache=CredentialCache(login, TLSConfig(origin, service_account / "ca.crt"), clock),
    )


def _of_files(paths: list[Path], context: str | None, environ: Mapping[str, str], clock: Clock) -> Config:
    choice = files.choose(paths, context)
    cluster = choice.cluster
    server = cluster.server.rstrip("/")
    scheme = urlsplit(server).scheme
    if scheme not in ("http", "https"):
        raise ConfigError(f"{choice.cluster_origin}: its server must be a URL of http or https")
    trust = TLSConfig(
        choice.cluster_origin,
        cluster.certificate_authority_data or cluster.certificate_authority,
        cluster.insecure_skip_tls_verify,
    )
    proxy, proxy_headers = _proxy(cluster, choice.cluster_origin)
    return Config(
        server=server,
        namespace=choice.namespace,
        credential_cache=CredentialCache(_login(choice, environ, clock), trust if scheme == "https" else None, clock),
        proxy=proxy,
        proxy_headers=proxy_headers,
        server_name=cluster.tls_server_name,
    )


def _login(choice: Choice, environ: Mapping[str, str], clock: Clock) -> Login:
    user, origin = choice.user, choice.user_origin
    if user.auth_provider:
        raise ConfigError(f"{origin}: auth-provider was removed from Kubernetes; use an exec plugin instead")
    if user.impersonate:
        raise ConfigError(f"{origin}: impersonation (`as`) is not supported; use the credentials of that user")
    written = _written(user, origin, clock)
    if user.exec and not (written.token or written.basic):
        return ExecPlugin(user.exec, origin, choice.cluster, written, environ, clock)
    return written


def _written(user: User, origin: str, clock: Clock) -> StaticCredentials:
    certificate = user.client_certificate_data or user.client_certificate
    key = user.client_key_data or user.client_key
    if bool(certificate) != bool(key):
        raise ConfigError(f"{origin}: a client certificate needs client-certificate and client-key")
    return StaticCredentials(
        origin,
        clock,
        token=user.token_file or (user.token.encode() if user.token else None),
        basic=(user.username, user.password) if user.username else None,
        certificate=certificate,
        key=key,
    )


def _proxy(cluster: Cluster, origin: str) -> tuple[str | None, Mapping[str, str]]:
    """The proxy and the headers it wants: a password within its URL would come to light in error messages."""
    if cluster.proxy_url is None:
        return None, {}
    url = urlsplit(cluster.proxy_url)
    if url.scheme not in ("http", "https"):
        raise ConfigError(f"{origin}: its proxy-url must be of http or https; there is no support for socks5")
    login, _, address = url.netloc.rpartition("@")
    headers = {"Proxy-Authorization": basic(*map(unquote, login.partition(":")[::2]))} if login else {}
    return urlunsplit(url._replace(netloc=address)), headers
