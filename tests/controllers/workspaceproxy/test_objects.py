"""What a workspace proxy is made of."""

from typing import Any

import msgspec
import pytest

from coder_k8s.api import CoderControlPlane, CoderWorkspaceProxy
from coder_k8s.controllers.workspaceproxy import objects
from coder_k8s.kube.objects import Manifest

LONG = "a-workspace-proxy-with-a-name-that-is-long-enough-to-be-cut-short-by-all-limits"
LONGEST = "x" * 253
BOOTSTRAP: Manifest = {"coderURL": "https://coder.example.com", "credentialsSecretRef": {"name": "session"}}
PLANE = {"controlPlaneRef": {"name": "demo"}}
GIVEN = {"proxySessionTokenSecretRef": {"name": "given"}, "primaryAccessURL": "https://coder.example.com"}


def proxy(name: str = "sydney", **spec: Any) -> CoderWorkspaceProxy:
    written = {
        "metadata": {"namespace": "golden", "name": name, "uid": "1234"},
        "spec": spec or {"bootstrap": BOOTSTRAP},
    }
    return msgspec.convert(written, CoderWorkspaceProxy)


def plane(**spec: Any) -> CoderControlPlane:
    written = {"metadata": {"namespace": "golden", "name": "demo", "uid": "5678"}, "spec": spec}
    return msgspec.convert(written, CoderControlPlane)


def container(of: CoderWorkspaceProxy, at: CoderControlPlane | None = None) -> Manifest:
    [found] = objects.deployment(of, at, "")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("name", "prefixed", "secret"),
    [
        ("sydney", "wsproxy-sydney", "sydney-proxy-token"),
        (LONG, "wsproxy-a-workspace-proxy-with-a-name-that-is-long-eno-2c83fc2a", f"{LONG}-proxy-token"),
        (LONGEST, f"wsproxy-{'x' * 46}-ed76e837", f"{'x' * 232}-ed76e837-proxy-token"),
    ],
)
def test_names(name: str, prefixed: str, secret: str) -> None:
    """They stand for ever, and no limit is exceeded."""
    made = proxy(name)
    assert objects.prefixed(made) == prefixed
    assert objects.secret_name(made) == secret
    assert len(prefixed) <= 63
    assert len(secret) <= 253
    for child in (objects.service(made), objects.deployment(made, None, ""), objects.secret(made, "t")):
        assert all(len(value) <= 63 for value in child["metadata"]["labels"].values())
        assert [owner["uid"] for owner in child["metadata"]["ownerReferences"]] == ["1234"]


@pytest.mark.parametrize(
    ("spec", "at", "image", "policy"),
    [
        ({"bootstrap": BOOTSTRAP}, None, "ghcr.io/coder/coder:latest", "Always"),
        ({"bootstrap": BOOTSTRAP, "image": "coder:v1"}, None, "coder:v1", "IfNotPresent"),
        (PLANE, plane(image="coder:v2"), "coder:v2", "IfNotPresent"),
        ({**PLANE, "image": "coder:v1"}, plane(image="coder:v2"), "coder:v1", "IfNotPresent"),
    ],
)
def test_image(spec: Manifest, at: CoderControlPlane | None, image: str, policy: str) -> None:
    made = container(proxy(**spec), at)
    assert (made["image"], made["imagePullPolicy"]) == (image, policy)


@pytest.mark.parametrize(
    ("spec", "at", "url"),
    [
        ({"bootstrap": BOOTSTRAP}, None, "https://coder.example.com"),
        ({"bootstrap": BOOTSTRAP, "primaryAccessURL": "https://other"}, None, "https://other"),
        (GIVEN, None, "https://coder.example.com"),
        (PLANE, plane(), "http://demo.golden.svc.cluster.local"),
        (PLANE, plane(service={"port": 8080}), "http://demo.golden.svc.cluster.local:8080"),
        (PLANE, plane(tls={"secretNames": ["tls"]}), "http://demo.golden.svc.cluster.local"),
        ({**PLANE, "primaryAccessURL": "https://other"}, plane(), "https://other"),
        (PLANE, None, ""),
    ],
)
def test_primary_url(spec: Manifest, at: CoderControlPlane | None, url: str) -> None:
    assert objects.primary_url(proxy(**spec), at) == url


def test_what_the_spec_says_of_pods_is_passed_on() -> None:
    given: dict[str, Any] = {
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "k"}],
        "affinity": {"podAntiAffinity": {}},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "podSecurityContext": {"fsGroup": 1},
        "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "securityContext": {"runAsNonRoot": True},
    }
    made = proxy(bootstrap=BOOTSTRAP, **given)
    pod = objects.deployment(made, None, "")["spec"]["template"]["spec"]
    [inner] = pod.pop("containers")
    pod["podSecurityContext"] = pod.pop("securityContext")
    assert {name: ({**inner, **pod})[name] for name in given} == given
    assert "resources" not in container(proxy())


def test_a_variable_of_the_spec_wins() -> None:
    made = container(proxy(bootstrap=BOOTSTRAP, extraEnv=[{"name": "CODER_PRIMARY_ACCESS_URL", "value": "x"}]))
    assert [entry.get("value") for entry in made["env"]] == ["x", None]


def test_service() -> None:
    made = objects.service(
        proxy(bootstrap=BOOTSTRAP, service={"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}})
    )
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert made["spec"]["type"] == "LoadBalancer"
    assert made["spec"]["ports"] == [{"name": "http", "port": 443, "protocol": "TCP", "targetPort": 3001}]
    assert made["spec"]["selector"] == objects.deployment(proxy(), None, "")["spec"]["selector"]["matchLabels"]


def test_only_a_known_token_shows_on_the_pods() -> None:
    templates = [objects.deployment(proxy(), None, each)["spec"]["template"]["metadata"] for each in ("", "abc")]
    assert ["annotations" in each for each in templates] == [False, True]
