"""Loads the address of the API server and the credentials, from a kubeconfig or inside the cluster."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from coder_k8s.kube import kubeconfig as files
from coder_k8s.kube.credentials import (
    Clock,
    Confidential,
    CredentialCache,
    CredentialProvider,
    Credentials,
    StaticCredentials,
    TLSConfig,
    basic,
)
from coder_k8s.kube.exec_plugin import ExecPlugin
from coder_k8s.kube.kubeconfig import Cluster, ConfigError, ResolvedContext, User

__all__ = ["Config", "ConfigError", "Credentials", "in_cluster", "load"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Config(Confidential, frozen=True):
    """The address of the API server, and the credentials for it."""

    server: str
    namespace: str
    credential_cache: CredentialCache
    proxy: str | None = None
    proxy_headers: Mapping[str, str] = {}
    server_name: str | None = None

    @property
    def current_credentials(self) -> Credentials | None:
        """The credentials of the last request, unless they have expired."""
        return self.credential_cache.current

    async def credentials(self, *, renew: bool = False) -> Credentials:
        """Return the current credentials; pass `renew` after the API server has rejected them."""
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
    """Load the first of: the given file, the files of `KUBECONFIG`, the pod's service account, `~/.kube/config`.

    The service account is skipped if a context is given, because only a kubeconfig has contexts.
    """
    if kubeconfig:
        return _from_files([Path(kubeconfig)], context, environ, clock)
    if paths := [Path(entry) for entry in environ.get("KUBECONFIG", "").split(os.pathsep) if entry]:
        existing = [path for path in paths if path.exists()]
        if not existing:
            raise ConfigError(f"KUBECONFIG: there is no file {' or '.join(map(str, paths))}")
        return _from_files(existing, context, environ, clock)
    if not context and "KUBERNETES_SERVICE_HOST" in environ and (service_account / "token").exists():
        return in_cluster(environ, service_account, clock)
    default = (home or Path.home()) / ".kube" / "config"
    if not default.exists():
        raise ConfigError(
            f"no cluster configured: KUBECONFIG is not set, there is no service account token in {service_account} "
            f"and no file {default}"
        )
    return _from_files([default], context, environ, clock)


def in_cluster(
    environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT, clock: Clock = time.time
) -> Config:
    """Return the configuration of a pod: its cluster and its service account."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    origin = "service account"
    provider = StaticCredentials(origin, clock, token=service_account / "token")
    namespace = service_account / "namespace"
    return Config(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        credential_cache=CredentialCache(provider, TLSConfig(origin, service_account / "ca.crt"), clock),
    )


def _from_files(paths: list[Path], context: str | None, environ: Mapping[str, str], clock: Clock) -> Config:
    resolved = files.resolve_context(paths, context)
    cluster = resolved.cluster
    server = cluster.server.rstrip("/")
    scheme = urlsplit(server).scheme
    if scheme not in ("http", "https"):
        raise ConfigError(f"{resolved.cluster_origin}: its server must be an http or https URL")
    tls = TLSConfig(
        resolved.cluster_origin,
        cluster.certificate_authority_data or cluster.certificate_authority,
        cluster.insecure_skip_tls_verify,
    )
    proxy, proxy_headers = _proxy(cluster, resolved.cluster_origin)
    return Config(
        server=server,
        namespace=resolved.namespace,
        credential_cache=CredentialCache(
            _credential_provider(resolved, environ, clock), tls if scheme == "https" else None, clock
        ),
        proxy=proxy,
        proxy_headers=proxy_headers,
        server_name=cluster.tls_server_name,
    )


def _credential_provider(resolved: ResolvedContext, environ: Mapping[str, str], clock: Clock) -> CredentialProvider:
    user, origin = resolved.user, resolved.user_origin
    if user.auth_provider:
        raise ConfigError(f"{origin}: auth-provider was removed from Kubernetes; use an exec plugin instead")
    if user.impersonate:
        raise ConfigError(f"{origin}: impersonation (`as`) is not supported; use the credentials of that user")
    static = _static_credentials(user, origin, clock)
    if user.exec and not (static.token or static.basic):
        return ExecPlugin(user.exec, origin, resolved.cluster, static, environ, clock)
    return static


def _static_credentials(user: User, origin: str, clock: Clock) -> StaticCredentials:
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
    """Return the URL and headers of the proxy. A password moves from the URL to a header, so that no error shows it."""
    if cluster.proxy_url is None:
        return None, {}
    url = urlsplit(cluster.proxy_url)
    if url.scheme not in ("http", "https"):
        raise ConfigError(f"{origin}: its proxy-url must be an http or https URL; socks5 is not supported")
    userinfo, _, address = url.netloc.rpartition("@")
    headers = {"Proxy-Authorization": basic(*map(unquote, userinfo.partition(":")[::2]))} if userinfo else {}
    return urlunsplit(url._replace(netloc=address)), headers
