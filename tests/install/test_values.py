"""Each value of the chart does what `values.yaml` says, and what cannot be meant is refused."""

import json
from typing import Any

import pytest
import yaml

from tests.install.rendering import CHART, NAMESPACE, RELEASE, Helm, HelmFailed, Manifest, Objects

NAME = f"{NAMESPACE}/coder-k8s"
DIGEST = "sha256:" + "0" * 64
DEFAULTS: Manifest = yaml.safe_load((CHART / "values.yaml").read_text())

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
    "our label": (
        {"labels": {"app.kubernetes.io/name": "x"}},
        "labels: app.kubernetes.io/name is set by the chart itself",
    ),
    "two monitors": (
        {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
        "enable one of them, or every metric is there twice",
    ),
    "no metrics": (
        {"metrics": {"enabled": False, "podMonitor": {"enabled": True}}},
        "metrics.serviceMonitor and metrics.podMonitor need metrics.enabled",
    ),
}


SMALL: Manifest = {"crds": {"install": False}, "admissionPolicy": {"enabled": False}}
"""What takes long to render and is not looked at."""


def render(helm: Helm, values: Manifest, release: str = RELEASE) -> Objects:
    return helm.template(SMALL | values, release=release)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused(helm: Helm, case: str) -> None:
    values, message = REFUSED[case]
    with pytest.raises(HelmFailed) as refused:
        render(helm, values)
    assert message in str(refused.value)


def pod(found: Objects) -> Manifest:
    template: Manifest = found["Deployment", NAME]["spec"]["template"]
    return template


def container(found: Objects) -> Manifest:
    (only,) = pod(found)["spec"]["containers"]
    return dict(only)


def test_what_the_pod_is_given(helm: Helm) -> None:
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
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}],
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
    assert container(found)["env"][1:] == [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}]
    assert container(found)["args"] == [
        "controller",
        "--log-format=console",
        "--log-level=debug",
        "--watch-namespaces=team-a,team-b",
        "--allow-workspace-namespaces=workspaces-*,team-a",
        "--workers=3",
    ]


def test_a_digest_wins_over_a_tag(helm: Helm) -> None:
    found = render(helm, {"image": {"tag": "1.2.3", "digest": DIGEST}})
    assert container(found)["image"] == f"coder-k8s@{DIGEST}"


def test_labels_are_on_everything_and_select_nothing(helm: Helm) -> None:
    found = helm.template({"labels": {"team": "platform"}})
    assert all(item["metadata"]["labels"]["team"] == "platform" for item in found.values())
    assert pod(found)["metadata"]["labels"]["team"] == "platform"
    assert "team" not in found["Deployment", NAME]["spec"]["selector"]["matchLabels"]


def test_the_pods_are_found_by_everything_that_selects_them(helm: Helm) -> None:
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


def test_what_can_be_left_out(helm: Helm) -> None:
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


def test_crds_are_kept_unless_told_otherwise(helm: Helm) -> None:
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
        "prometheusRule": {"enabled": True, "runbookUrl": "https://wiki.example.com/coder"},
    }
    found = render(helm, values)
    monitor, rule = found["PodMonitor", NAME], found["PrometheusRule", NAME]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "interval": "1m", "honorLabels": True}]
    alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    assert {alert["annotations"]["runbook_url"] for alert in alerts} == {
        f"https://wiki.example.com/coder#{alert['alert'].lower()}" for alert in alerts
    }


def test_the_schema_knows_every_value_and_no_other() -> None:
    """A value without its place in the schema would be refused, and one without a default would be undocumented."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def names(part: Manifest) -> Any:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if part.get("additionalProperties") is not False:
            return None
        return {name: names(inner) for name, inner in part["properties"].items() if name != "global"}

    def matches(known: Any, value: Any) -> bool:
        if known is None:
            return True
        return known.keys() == value.keys() and all(matches(known[name], value[name]) for name in known)

    open_ended = {"resources": DEFAULTS["resources"], "affinity": DEFAULTS["affinity"]}
    assert matches({**names(schema), **dict.fromkeys(open_ended)}, DEFAULTS)
