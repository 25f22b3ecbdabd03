"""Where a control plane is, for those in the cluster."""

from coder_k8s.api import CoderControlPlane


def has_tls(plane: CoderControlPlane) -> bool:
    return bool(plane.spec.tls.secret_names)


def http_port(plane: CoderControlPlane) -> int:
    """The port of the Service behind which coderd speaks plain HTTP."""
    return 80 if has_tls(plane) and plane.spec.service.port == 443 else plane.spec.service.port


def api_url(plane: CoderControlPlane) -> str:
    """Where the operator and the daemons talk to coderd: its certificate, if any, is for another name."""
    return f"http://{_host(plane)}:{http_port(plane)}"


def status_url(plane: CoderControlPlane) -> str:
    """The URL in the cluster, always with its port."""
    return f"https://{_host(plane)}:443" if has_tls(plane) else f"http://{_host(plane)}:{plane.spec.service.port}"


def access_url(plane: CoderControlPlane) -> str:
    """The URL in the cluster as coderd shows it: a default port is left out."""
    return status_url(plane).removesuffix(":443" if has_tls(plane) else ":80")


def _host(plane: CoderControlPlane) -> str:
    return f"{plane.metadata.name}.{plane.metadata.namespace}.svc.cluster.local"
