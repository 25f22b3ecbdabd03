"""The URLs of a control plane inside the cluster."""

from coder_k8s.api import CoderControlPlane


def has_tls(plane: CoderControlPlane) -> bool:
    return bool(plane.spec.tls.secret_names)


def http_port(plane: CoderControlPlane) -> int:
    """The port of the Service for plain HTTP."""
    return 80 if has_tls(plane) and plane.spec.service.port == 443 else plane.spec.service.port


def api_url(plane: CoderControlPlane) -> str:
    """The URL for the operator and the daemons: plain HTTP, because coderd's certificate is for another host name."""
    return f"http://{_host(plane)}:{http_port(plane)}"


def status_url(plane: CoderControlPlane) -> str:
    """The URL in the cluster, always with its port."""
    return f"https://{_host(plane)}:443" if has_tls(plane) else f"http://{_host(plane)}:{plane.spec.service.port}"


def access_url(plane: CoderControlPlane) -> str:
    """The URL in the cluster without a default port."""
    return status_url(plane).removesuffix(":443" if has_tls(plane) else ":80")


def _host(plane: CoderControlPlane) -> str:
    return f"{plane.metadata.name}.{plane.metadata.namespace}.svc.cluster.local"
