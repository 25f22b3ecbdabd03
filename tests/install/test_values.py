"""Each value of the chart has the effect that `values.yaml` documents."""

import json
from typing import Any

import pytest

from tests.install.rendering import CHART, DEFAULTS, NAMESPACE, Helm, Manifest, Objects, render

NAME = f"{NAMESPACE}/coder-k8s"
DIGEST = "sha256:" + "0" * 64


def pod(found: Objects) -> Manifest:
    template: Manifest = found["Deployment", NAME]["spec"]["template"]
    return template


def container(found: Objects) -> Manifest:
    (only,) = pod(found)["spec"]["containers"]
    return dict(only)


def test_values_of_the_pod(helm: Helm) -> None:
    toleration = {"key": "reserved", "operator": "Exists"}
    node_affinity: Manifest = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    found = render(
        helm,
        {
            "image": {"repository": "registry.example.com/coder-k8s", "tag": "1.2.3", "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "registry"}],
            "replicas": 3,
            "antiAffinity": "required",
            "affinity": {"nodeAffinity": node_affinity},
            "resources": {"requests": {"cpu": 1}, "limits": None},
            "logging": {"format": "console", "level": "debug"},
            "watchNamespaces": ["team-a", "team-b"],
            "allowWorkspaceNamespaces": ["workspaces-*", "team-a"],
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [toleration],
            "podAnnotations": {"example.com/a": "true"},
            "serviceAccount": {"annotations": {"example.com/role": "operator"}},
            "extraArgs": ["--workers=3"],
            "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}],
        },
    )
    spec = pod(found)["spec"]
    assert found["Deployment", NAME]["spec"]["replicas"] == 3
    assert pod(found)["metadata"]["annotations"] == {"example.com/a": "true"}
    assert found["ServiceAccount", NAME]["metadata"]["annotations"] == {"example.com/role": "operator"}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert spec["tolerations"] == [toleration]
    (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"] == found["Deployment", NAME]["spec"]["selector"]
    assert spec["affinity"]["nodeAffinity"] == node_affinity
    assert container(found)["image"] == "registry.example.com/coder-k8s:1.2.3"
    assert container(found)["imagePullPolicy"] == "Always"
    assert container(found)["resources"] == {"requests": {"cpu": 1, "memory": "128Mi"}}
    assert container(found)["env"][1:] == [{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}]
    assert container(found)["args"] == [
        "controller",
        "--log-format=console",
        "--log-level=debug",
        "--watch-namespaces=team-a,team-b",
        "--allow-workspace-namespaces=workspaces-*,team-a",
        "--workers=3",
    ]


@pytest.mark.parametrize("repository", ["coder-k8s", "registry:5000/coder-k8s", "[::1]:5000/team/coder-k8s"])
def test_a_registry_can_have_a_port(helm: Helm, repository: str) -> None:
    found = render(helm, {"image": {"repository": repository, "tag": "1.2.3"}})
    assert container(found)["image"] == f"{repository}:1.2.3"


@pytest.mark.parametrize("key", ["team", "Team_1", "a.b-c", "example.com/Team", "a-1.example.com/x"])
def test_keys_of_labels_and_annotations(helm: Helm, key: str) -> None:
    annotation = key.replace("example.com", "Example.com")
    found = render(helm, {"labels": {key: "x"}, "podAnnotations": {annotation: "any text"}})
    assert pod(found)["metadata"]["labels"][key] == "x"
    assert pod(found)["metadata"]["annotations"] == {annotation: "any text"}


def test_a_digest_wins_over_a_tag(helm: Helm) -> None:
    found = render(helm, {"image": {"tag": "1.2.3", "digest": DIGEST}})
    assert container(found)["image"] == f"coder-k8s@{DIGEST}"


def test_labels_are_on_all_objects_and_in_no_selector(helm: Helm) -> None:
    found = helm.template({"labels": {"team": "platform"}})
    assert all(item["metadata"]["labels"]["team"] == "platform" for item in found.values())
    assert pod(found)["metadata"]["labels"]["team"] == "platform"
    assert "team" not in found["Deployment", NAME]["spec"]["selector"]["matchLabels"]


def test_all_selectors_match_the_pods(helm: Helm) -> None:
    found = render(helm, {"networkPolicy": {"enabled": True}}, release="another")
    name = f"{NAMESPACE}/another-coder-k8s"
    labels = found["Deployment", name]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        found["Deployment", name]["spec"]["selector"]["matchLabels"],
        found["Service", f"{name}-metrics"]["spec"]["selector"],
        found["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy", name]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == labels
        assert selector["app.kubernetes.io/instance"] == "another"


def test_optional_objects(helm: Helm) -> None:
    found = helm.template(
        {
            "antiAffinity": "none",
            "podDisruptionBudget": {"enabled": False},
            "metrics": {"enabled": False},
            "crds": {"install": False},
            "admissionPolicy": {"enabled": False},
            "userRoles": {"enabled": False},
        }
    )
    assert sorted(kind for kind, _ in found) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ]
    assert "affinity" not in pod(found)["spec"]
    assert [port["name"] for port in container(found)["ports"]] == ["health"]
    assert container(found)["args"][-1] == "--metrics-bind-address=0"


def test_crds_are_kept_by_default(helm: Helm) -> None:
    def policies(keep: bool) -> set[Any]:
        found = helm.template({"crds": {"keep": keep}})
        crds = [item for (kind, _), item in found.items() if kind == "CustomResourceDefinition"]
        return {crd["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for crd in crds}

    assert (policies(True), policies(False)) == ({"keep"}, {None})


def test_network_policy(helm: Helm) -> None:
    prometheus = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    dns = [{"ports": [{"port": 53, "protocol": "UDP"}]}]
    open_spec = render(helm, {"networkPolicy": {"enabled": True}})["NetworkPolicy", NAME]["spec"]
    assert open_spec["policyTypes"] == ["Ingress"]
    assert open_spec["ingress"] == [{"ports": [{"port": "health"}]}, {"ports": [{"port": "metrics"}]}]

    values = {"networkPolicy": {"enabled": True, "metricsFrom": prometheus, "egress": dns}}
    narrow = render(helm, values)["NetworkPolicy", NAME]["spec"]
    assert narrow["policyTypes"] == ["Ingress", "Egress"]
    assert narrow["ingress"] == [
        {"ports": [{"port": "health"}]},
        {"ports": [{"port": "metrics"}], "from": prometheus},
    ]
    assert narrow["egress"] == dns


def test_monitoring(helm: Helm) -> None:
    values = {
        "labels": {"release": "coder"},
        "metrics": {"podMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}}},
        "prometheusRule": {"enabled": True, "labels": {"release": "rules"}},
    }
    found = render(helm, values)
    monitor, rule = found["PodMonitor", NAME], found["PrometheusRule", NAME]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "interval": "1m", "honorLabels": True}]
    assert rule["metadata"]["labels"]["release"] == "rules"


def test_the_schema_contains_exactly_the_values() -> None:
    """Helm rejects a value that is not in the schema, and a value without a default is not documented."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def names(part: Manifest) -> Any:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if part.get("additionalProperties") is not False or "patternProperties" in part:
            return None
        return {name: names(inner) for name, inner in part["properties"].items() if name != "global"}

    def matches(known: Any, value: Any) -> bool:
        if known is None:
            return True
        return known.keys() == value.keys() and all(matches(known[name], value[name]) for name in known)

    open_ended = {"resources": DEFAULTS["resources"], "affinity": DEFAULTS["affinity"]}
    assert matches({**names(schema), **dict.fromkeys(open_ended)}, DEFAULTS)
