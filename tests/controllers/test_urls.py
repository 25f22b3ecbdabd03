"""The URLs of a control plane inside the cluster."""

import pytest

from coder_k8s.controllers.urls import access_url, api_url, status_url
from coder_k8s.kube.objects import Manifest
from tests.controllers.controlplane.planes import plane

HOST = "demo.golden.svc.cluster.local"
TLS = {"secretNames": ["coder-tls"]}


@pytest.mark.parametrize(
    ("spec", "access", "status"),
    [
        ({}, f"http://{HOST}", f"http://{HOST}:80"),
        ({"service": {"port": 8080}}, f"http://{HOST}:8080", f"http://{HOST}:8080"),
        ({"service": {"port": 443}}, f"http://{HOST}:443", f"http://{HOST}:443"),
        ({"tls": TLS}, f"https://{HOST}", f"https://{HOST}:443"),
        ({"tls": TLS, "service": {"port": 8080}}, f"https://{HOST}", f"https://{HOST}:443"),
    ],
)
def test_urls(spec: Manifest, access: str, status: str) -> None:
    """Only the access URL omits a default port."""
    assert (access_url(plane(**spec)), status_url(plane(**spec))) == (access, status)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, f"http://{HOST}:80"),
        ({"service": {"port": 8080}}, f"http://{HOST}:8080"),
        ({"tls": TLS}, f"http://{HOST}:80"),
        ({"tls": TLS, "service": {"port": 443}}, f"http://{HOST}:80"),
    ],
)
def test_api_url_uses_plain_http(spec: Manifest, expected: str) -> None:
    assert api_url(plane(**spec)) == expected
