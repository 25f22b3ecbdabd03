"""Helm rejects invalid values of the chart, with a message that names them."""

import pytest

from tests.install.rendering import Helm, HelmFailed, Manifest, render

DIGEST = "sha256:" + "0" * 64

REFUSED: dict[str, tuple[Manifest, str]] = {
    "unknown": ({"replica": 3}, "additional properties 'replica' not allowed"),
    "unknown inside": ({"metrics": {"port": 80}}, "at '/metrics': additional properties 'port' not allowed"),
    "type": ({"replicas": "three"}, "at '/replicas': got string, want integer"),
    "range": ({"replicas": -1}, "at '/replicas': minimum: got -1, want 0"),
    "choice": ({"logging": {"level": "verbose"}}, "value must be one of 'debug', 'info', 'warning', 'error'"),
    "anti-affinity": ({"antiAffinity": "soft"}, "value must be one of 'preferred', 'required', 'none'"),
    "namespace": ({"watchNamespaces": ["Team_A"]}, "at '/watchNamespaces/0': 'Team_A' does not match pattern"),
    "no list": ({"watchNamespaces": "team-a"}, "at '/watchNamespaces': got string, want array"),
    "comma": ({"allowWorkspaceNamespaces": ["a,b"]}, "at '/allowWorkspaceNamespaces/0': 'a,b' does not match"),
    "digest": ({"image": {"digest": "latest"}}, "at '/image/digest': 'latest' does not match pattern"),
    "number as tag": ({"image": {"tag": 1.10}}, "at '/image/tag': got number, want string"),
    "flag": ({"extraArgs": ["workers=3"]}, "at '/extraArgs/0': 'workers=3' does not match pattern '^--'"),
    "pull secret": ({"imagePullSecrets": ["registry"]}, "at '/imagePullSecrets/0': got string, want object"),
    "interval": ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "'often' does not match pattern"),
    "label key": ({"labels": {"a b": "x"}}, "at '/labels': additional properties 'a b' not allowed"),
    "label key without a name": ({"labels": {"example.com/": "x"}}, "additional properties 'example.com/' not allowed"),
    "label key of a monitor": (
        {"metrics": {"podMonitor": {"labels": {"-a": "x"}}}},
        "additional properties '-a' not allowed",
    ),
    "long label key": ({"labels": {"a" * 64: "x"}}, "at '/labels': additional properties 'aaaa"),
    "annotation key": (
        {"podAnnotations": {"a/b/c": "x"}},
        "at '/podAnnotations': additional properties 'a/b/c' not allowed",
    ),
    "node label": ({"nodeSelector": {"disk": "very fast"}}, "at '/nodeSelector/disk': 'very fast' does not match"),
    "number as variable": (
        {"extraEnv": [{"name": "WORKERS", "value": 1}]},
        "at '/extraEnv/0/value': got number, want string",
    ),
    "field of a variable": (
        {"extraEnv": [{"name": "A", "valuefrom": {}}]},
        "at '/extraEnv/0': additional properties 'valuefrom' not allowed",
    ),
    "variable of the chart": (
        {"extraEnv": [{"name": "POD_NAMESPACE", "value": "elsewhere"}]},
        "extraEnv: POD_NAMESPACE is set by the chart",
    ),
    "variable twice": (
        {"extraEnv": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]},
        "extraEnv: A is listed twice",
    ),
    "no image": ({"image": {"repository": ""}}, "image.repository: set it to the image that you built, for example"),
    "null as image": ({"image": None}, "image.repository: set it to the image that you built, for example"),
    "null as repository": ({"image": {"repository": None}}, "image.repository: set it to the image that you built"),
    "space in repository": ({"image": {"repository": "a b"}}, "at '/image/repository': 'a b' does not match pattern"),
    "tag in repository": (
        {"image": {"repository": "registry.example.com:5000/coder-k8s:1.2.3"}},
        "image.repository: registry.example.com:5000/coder-k8s:1.2.3 has a tag or a digest; "
        "set image.tag or image.digest instead",
    ),
    "digest in repository": (
        {"image": {"repository": f"coder-k8s@{DIGEST}"}},
        f"image.repository: coder-k8s@{DIGEST} has a tag or a digest; set image.tag or image.digest instead",
    ),
    "label of the chart": (
        {"labels": {"app.kubernetes.io/name": "x"}},
        "labels: app.kubernetes.io/name is set by the chart",
    ),
    "two monitors": (
        {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
        "enable only one of them, otherwise every metric is collected twice",
    ),
    "no metrics": (
        {"metrics": {"enabled": False, "podMonitor": {"enabled": True}}},
        "metrics.serviceMonitor and metrics.podMonitor need metrics.enabled",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_value_is_rejected(helm: Helm, case: str) -> None:
    values, message = REFUSED[case]
    with pytest.raises(HelmFailed) as refused:
        render(helm, values)
    assert message in str(refused.value)


def test_a_release_name_that_starts_with_a_digit_is_rejected(helm: Helm) -> None:
    with pytest.raises(HelmFailed) as refused:
        render(helm, {}, release="1op")
    assert "1op-coder-k8s starts with a digit" in str(refused.value)
    assert render(helm, {"fullnameOverride": "op"}, release="1op")


@pytest.mark.parametrize("name", ["1op", "-op", "op-", "Op", "o.p", "o" * 51])
def test_an_invalid_full_name_is_rejected(helm: Helm, name: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        render(helm, {"fullnameOverride": name})
    assert "fullnameOverride" in str(refused.value)
