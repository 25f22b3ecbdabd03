"""The children of a control plane, except its Deployment and its Roles."""

import json
from typing import Any

import pytest

from coder_k8s.controllers.controlplane.objects import (
    http_route,
    ingress,
    owns_account,
    service,
    service_account,
)
from coder_k8s.kube.objects import Manifest, Unstructured

from .planes import plane

LABELS = {
    "app.kubernetes.io/name": "coder-control-plane",
    "app.kubernetes.io/instance": "demo",
    "app.kubernetes.io/managed-by": "coder-k8s",
}
HTTP = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}
HTTPS = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 8443}
TLS = {"secretNames": ["coder-tls"]}


def ports(**spec: Any) -> list[Manifest]:
    found: list[Manifest] = service(plane(**spec))["spec"]["ports"]
    return found


def test_a_child_is_named_labelled_and_owned() -> None:
    assert service_account(plane()) == {
        "metadata": {
            "name": "demo",
            "namespace": "golden",
            "labels": LABELS,
            "ownerReferences": [
                {
                    "apiVersion": "coder.com/v1alpha1",
                    "kind": "CoderControlPlane",
                    "name": "demo",
                    "uid": "1234",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }
    }


def test_a_long_name_is_cut_only_in_labels() -> None:
    made = service_account(plane(name="x" * 70))["metadata"]
    assert made["name"] == "x" * 70
    assert made["labels"]["app.kubernetes.io/instance"].startswith("x" * 54 + "-")
    assert len(made["labels"]["app.kubernetes.io/instance"]) == 63


def test_service_account_takes_name_annotations_and_labels_of_the_spec() -> None:
    wanted = {"name": "coder-sa", "annotations": {"role": "arn"}, "labels": {"team": "dev"}}
    made = service_account(plane(serviceAccount=wanted))["metadata"]
    assert (made["name"], made["annotations"], made["labels"]) == (
        "coder-sa",
        {"role": "arn"},
        LABELS | {"team": "dev"},
    )


def test_a_label_of_the_spec_cannot_hide_a_child_from_the_operator() -> None:
    hidden = {"app.kubernetes.io/managed-by": "helm", "app.kubernetes.io/instance": "other"}
    assert service_account(plane(serviceAccount={"labels": hidden}))["metadata"]["labels"] == LABELS


@pytest.mark.parametrize(
    ("owners", "marks", "expected"),
    [
        pytest.param(["1234"], {}, True, id="owned, whatever its labels"),
        pytest.param([], LABELS, True, id="released"),
        pytest.param([], {}, False, id="unrelated"),
        pytest.param([], LABELS | {"app.kubernetes.io/instance": "other"}, False, id="of another control plane"),
        pytest.param(["5678"], LABELS, False, id="released and claimed by another"),
    ],
)
def test_owns_account(owners: list[str], marks: dict[str, str], expected: bool) -> None:
    references = [
        {"apiVersion": "v1", "kind": "Owner", "name": "owner", "uid": uid, "controller": True} for uid in owners
    ]
    metadata = {"name": "demo", "namespace": "golden", "labels": marks, "ownerReferences": references}
    live = Unstructured.decode(json.dumps({"metadata": metadata}).encode())
    assert owns_account(plane(), live) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [HTTP], id="plain"),
        pytest.param({"service": {"port": 8080}}, [HTTP | {"port": 8080}], id="own port"),
        pytest.param({"service": {"port": 443}}, [HTTP | {"port": 443}], id="443 without TLS is http"),
        pytest.param({"tls": TLS}, [HTTP, HTTPS], id="TLS"),
        pytest.param({"tls": TLS, "service": {"port": 8080}}, [HTTP | {"port": 8080}, HTTPS], id="TLS, own port"),
        pytest.param({"tls": TLS, "service": {"port": 443}}, [HTTPS, HTTP], id="TLS on 443 leaves 80 to http"),
    ],
)
def test_ports_of_the_service(spec: Manifest, expected: list[Manifest]) -> None:
    assert ports(**spec) == expected


def test_service() -> None:
    made = service(plane(service={"type": "LoadBalancer", "annotations": {"a": "b"}}))
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert (made["spec"]["type"], made["spec"]["selector"]) == ("LoadBalancer", LABELS)


def by_ingress(spec: Manifest | None = None, **wanted: Any) -> Manifest:
    made = plane(expose={"ingress": {"host": "coder.example.com", **wanted}}, **(spec or {}))
    assert made.spec.expose is not None
    assert made.spec.expose.ingress is not None
    return ingress(made, made.spec.expose.ingress)


def rule(host: str, port: int = 80) -> Manifest:
    backend = {"service": {"name": "demo", "port": {"number": port}}}
    return {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}


WILDCARD = "*.coder.example.com"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({}, {"rules": [rule("coder.example.com")]}, id="host only"),
        pytest.param(
            {"wildcardHost": WILDCARD, "className": "nginx"},
            {"rules": [rule("coder.example.com"), rule(WILDCARD)], "ingressClassName": "nginx"},
            id="wildcard and class",
        ),
        pytest.param(
            {"tls": {"secretName": "cert", "wildcardSecretName": "wild"}},
            {"rules": [rule("coder.example.com")], "tls": [{"hosts": ["coder.example.com"], "secretName": "cert"}]},
            id="no certificate for a host that is not there",
        ),
        pytest.param(
            {"wildcardHost": WILDCARD, "tls": {"wildcardSecretName": "wild"}},
            {
                "rules": [rule("coder.example.com"), rule(WILDCARD)],
                "tls": [{"hosts": [WILDCARD], "secretName": "wild"}],
            },
            id="certificate of the wildcard only",
        ),
    ],
)
def test_ingress(wanted: Manifest, expected: Manifest) -> None:
    assert by_ingress(**wanted)["spec"] == expected


def test_ingress_uses_the_http_port_also_if_443_is_https() -> None:
    made = by_ingress({"tls": TLS, "service": {"port": 443}}, annotations={"a": "b"})
    assert made["spec"]["rules"] == [rule("coder.example.com", 80)]
    assert made["metadata"]["annotations"] == {"a": "b"}


def test_http_route() -> None:
    gateway = {
        "host": "coder.example.com",
        "wildcardHost": WILDCARD,
        "parentRefs": [{"name": "one"}, {"name": "two", "namespace": "gateways", "sectionName": "https"}],
    }
    made = plane(expose={"gateway": gateway}, service={"port": 8080})
    assert made.spec.expose is not None
    assert made.spec.expose.gateway is not None
    spec = http_route(made, made.spec.expose.gateway)["spec"]
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
    assert spec["parentRefs"] == [
        {**parent, "name": "one"},
        {**parent, "name": "two", "namespace": "gateways", "sectionName": "https"},
    ]
    assert spec["hostnames"] == ["coder.example.com", WILDCARD]
    assert [(backend["name"], backend["port"]) for backend in spec["rules"][0]["backendRefs"]] == [("demo", 8080)]
    assert spec["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
