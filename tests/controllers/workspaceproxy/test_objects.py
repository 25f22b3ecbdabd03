"""The children of a workspace proxy."""

from typing import Any

import msgspec
import pytest

from coder_k8s.api import CoderControlPlane, CoderWorkspaceProxy
from coder_k8s.controllers.workspaceproxy import objects
from coder_k8s.kube.objects import Manifest, Unstructured

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


def plane(image: str = "", **spec: Any) -> CoderControlPlane:
    """A control plane that runs this image."""
    metadata = {"namespace": "golden", "name": "demo", "uid": "5678"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"image": image}}, CoderControlPlane)


def deployment(of: CoderWorkspaceProxy, image: str = "coder:v1", checksum: str = "") -> Manifest:
    return objects.deployment(of, "https://coder.example.com", image, checksum)


def container(of: CoderWorkspaceProxy, image: str = "coder:v1") -> Manifest:
    [found] = deployment(of, image)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def live(image: str) -> Unstructured:
    """A Deployment that runs this image beside an injected container."""
    found = deployment(proxy(), image)
    found["spec"]["template"]["spec"]["containers"].insert(0, {"name": "sidecar", "image": "sidecar"})
    return Unstructured.decode(msgspec.json.encode({**found, "kind": "Deployment"}))


@pytest.mark.parametrize(
    ("name", "deployment_name", "secret"),
    [
        ("sydney", "wsproxy-sydney", "sydney-proxy-token"),
        (LONG, "wsproxy-a-workspace-proxy-with-a-name-that-is-long-eno-2c83fc2a", f"{LONG}-proxy-token"),
        (LONGEST, f"wsproxy-{'x' * 46}-ed76e837", f"{'x' * 232}-ed76e837-proxy-token"),
    ],
)
def test_names(name: str, deployment_name: str, secret: str) -> None:
    """Names are stable and within their limits."""
    made = proxy(name)
    assert objects.deployment_name(made) == deployment_name
    assert objects.secret_name(made) == secret
    assert len(deployment_name) <= 63
    assert len(secret) <= 253
    for child in (objects.service(made), deployment(made), objects.secret(made, "t")):
        assert all(len(value) <= 63 for value in child["metadata"]["labels"].values())
        assert [owner["uid"] for owner in child["metadata"]["ownerReferences"]] == ["1234"]


@pytest.mark.parametrize(
    ("spec", "at", "running", "image"),
    [
        ({"bootstrap": BOOTSTRAP}, None, None, "ghcr.io/coder/coder:latest"),
        ({"bootstrap": BOOTSTRAP}, None, "coder:v0", "ghcr.io/coder/coder:latest"),
        ({"bootstrap": BOOTSTRAP, "image": "coder:v1"}, None, None, "coder:v1"),
        ({**PLANE, "image": "coder:v1"}, plane("coder:v2"), "coder:v0", "coder:v1"),
        ({**PLANE, "image": "coder:v1"}, plane(), None, "coder:v1"),
        (PLANE, plane("coder:v2"), "coder:v0", "coder:v2"),
        (PLANE, plane("coder:v2"), None, "coder:v2"),
        (PLANE, plane(), "coder:v0", "coder:v0"),
        (PLANE, plane(), None, ""),
    ],
)
def test_image(spec: Manifest, at: CoderControlPlane | None, running: str | None, image: str) -> None:
    """The image of a control plane counts only after its rollout."""
    if at is not None:
        at = msgspec.structs.replace(at, spec=msgspec.structs.replace(at.spec, image="coder:v3"))
    assert objects.image_of(proxy(**spec), at, live(running) if running else None) == image


@pytest.mark.parametrize(("image", "policy"), [("ghcr.io/coder/coder:latest", "Always"), ("coder:v1", "IfNotPresent")])
def test_pull_policy(image: str, policy: str) -> None:
    made = container(proxy(), image)
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


def test_pod_fields_of_the_spec() -> None:
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
    pod = deployment(made)["spec"]["template"]["spec"]
    [inner] = pod.pop("containers")
    pod["podSecurityContext"] = pod.pop("securityContext")
    assert {name: ({**inner, **pod})[name] for name in given} == given
    assert "resources" not in container(proxy())


def test_variable_of_the_spec_wins() -> None:
    made = container(proxy(bootstrap=BOOTSTRAP, extraEnv=[{"name": "CODER_PRIMARY_ACCESS_URL", "value": "x"}]))
    assert [entry.get("value") for entry in made["env"]] == ["x", None]


def test_service() -> None:
    made = objects.service(
        proxy(bootstrap=BOOTSTRAP, service={"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}})
    )
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert made["spec"]["type"] == "LoadBalancer"
    assert made["spec"]["ports"] == [{"name": "http", "port": 443, "protocol": "TCP", "targetPort": 3001}]
    assert made["spec"]["selector"] == deployment(proxy())["spec"]["selector"]["matchLabels"]


def test_checksum_only_of_a_known_token() -> None:
    templates = [deployment(proxy(), checksum=each)["spec"]["template"]["metadata"] for each in ("", "abc")]
    assert ["annotations" in each for each in templates] == [False, True]
