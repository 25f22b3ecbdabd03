"""The children of a CoderControlPlane, except its Deployment and its Roles."""

from typing import Any

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.api.exposure import Gateway, Ingress
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.labels import metadata as owned
from coder_k8s.controllers.urls import has_tls, http_port
from coder_k8s.kube.objects import Manifest, Unstructured

NAME = "coder-control-plane"
HTTP_PORT = 8080
HTTPS_PORT = 8443


def metadata(plane: CoderControlPlane, name: str = "", **more: dict[str, str]) -> Manifest:
    """The metadata of a child; by default it has the name of the object."""
    base = owned(CONTROL_PLANE, plane, NAME, name or plane.metadata.name)
    base["labels"] = {**more.pop("labels", {}), **base["labels"]}
    return {**base, **{field: values for field, values in more.items() if values}}


def service_account_name(plane: CoderControlPlane) -> str:
    return plane.spec.service_account.name or plane.metadata.name


def service_account(plane: CoderControlPlane) -> Manifest:
    account = plane.spec.service_account
    return {
        "metadata": metadata(plane, service_account_name(plane), labels=account.labels, annotations=account.annotations)
    }


def owns_account(plane: CoderControlPlane, live: Unstructured) -> bool:
    """Whether a ServiceAccount belongs to this control plane: it is its owner, or released it and there is no other."""
    if live.controller is not None:
        return live.is_controlled_by(plane)
    return labels(NAME, plane).items() <= live.metadata.labels.items()


def service(plane: CoderControlPlane) -> Manifest:
    wanted = plane.spec.service
    return {
        "metadata": metadata(plane, annotations=wanted.annotations),
        "spec": {"type": wanted.type, "selector": labels(NAME, plane), "ports": _ports(plane)},
    }


def hosts(wanted: Ingress | Gateway) -> list[str]:
    return [host for host in (wanted.host, wanted.wildcard_host) if host]


def exposed_url(plane: CoderControlPlane) -> str:
    """The URL of the exposed host; empty without one. A Gateway is assumed to have TLS."""
    expose = plane.spec.expose
    if expose and expose.ingress:
        tls = expose.ingress.tls is not None and expose.ingress.tls.secret_name
        return f"{'https' if tls else 'http'}://{expose.ingress.host}"
    return f"https://{expose.gateway.host}" if expose and expose.gateway else ""


def ingress(plane: CoderControlPlane, wanted: Ingress) -> Manifest:
    backend = {"service": {"name": plane.metadata.name, "port": {"number": http_port(plane)}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    spec: Manifest = {"rules": [{"host": host, "http": {"paths": [path]}} for host in hosts(wanted)]}
    if wanted.class_name:
        spec["ingressClassName"] = wanted.class_name
    if tls := _ingress_tls(wanted):
        spec["tls"] = tls
    return {"metadata": metadata(plane, annotations=wanted.annotations), "spec": spec}


def http_route(plane: CoderControlPlane, wanted: Gateway) -> Manifest:
    parents = [
        {
            "group": "gateway.networking.k8s.io",
            "kind": "Gateway",
            "name": parent.name,
            **({"namespace": parent.namespace} if parent.namespace else {}),
            **({"sectionName": parent.section_name} if parent.section_name else {}),
        }
        for parent in wanted.parent_refs
    ]
    backend = {"group": "", "kind": "Service", "name": plane.metadata.name, "port": http_port(plane), "weight": 1}
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [backend]}
    return {
        "metadata": metadata(plane),
        "spec": {"parentRefs": parents, "hostnames": hosts(wanted), "rules": [rule]},
    }


def _ports(plane: CoderControlPlane) -> list[dict[str, Any]]:
    http = {"name": "http", "port": http_port(plane), "protocol": "TCP", "targetPort": HTTP_PORT}
    if not has_tls(plane):
        return [http]
    https = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": HTTPS_PORT}
    return [https, http] if plane.spec.service.port == 443 else [http, https]


def _ingress_tls(wanted: Ingress) -> list[dict[str, Any]]:
    if wanted.tls is None:
        return []
    pairs = ((wanted.host, wanted.tls.secret_name), (wanted.wildcard_host, wanted.tls.wildcard_secret_name))
    return [{"hosts": [host], "secretName": secret} for host, secret in pairs if host and secret]
