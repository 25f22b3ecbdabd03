"""Which objects the API server accepts, defaults and rejects."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, TEMPLATE, WORKSPACE_PROXY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured
from tests.support import eventually
from tests.support.installation import CONFIG
from tests.support.manifests import parse
from tests.support.versions import minor

from .admission import KINDS, altered, minimal, submit
from .limits import FORMATS_SINCE

pytestmark = pytest.mark.usefixtures("crds")

RECORDED: list[Manifest] = json.loads(Path(__file__).with_name("recorded.json").read_text())

SERVICE = {"type": "ClusterIP", "port": 80}
PROBE = {
    "initialDelaySeconds": 0,
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "successThreshold": 1,
    "failureThreshold": 3,
}
CONTROL_PLANE_DEFAULTS: Manifest = {
    "image": "ghcr.io/coder/coder:latest",
    "replicas": 1,
    "service": SERVICE,
    "operatorAccess": {"disabled": False},
    "serviceAccount": {"disableCreate": False},
    "rbac": {"workspacePerms": True, "enableDeployments": True},
    "tls": {},
    "certs": {},
    "readinessProbe": {"enabled": True, **PROBE},
    "livenessProbe": {"enabled": False, **PROBE},
    "envUseClusterAccessURL": True,
    "health": {"interval": "5m"},
    "update": {
        "strategy": "Auto",
        "drain": {"timeout": "30m", "onTimeout": "Proceed"},
        "migrationTimeout": "30m",
    },
    "terminationGracePeriodSeconds": 60,
}
PROVISIONER_DEFAULTS: Manifest = {
    "organizationName": "default",
    "key": {"secretKey": "key"},
    "replicas": 1,
    "terminationGracePeriodSeconds": 600,
    "workspacePermissions": True,
    "enableDeployments": False,
    "disruption": {"protectBusyPods": "Annotations"},
}
WORKSPACE_PROXY_DEFAULTS: Manifest = {"replicas": 1, "service": SERVICE, "derpOnly": False}
TEMPLATE_DEFAULTS: Manifest = {
    "organizationName": "default",
    "settings": {},
    "promotion": {"policy": "OnSuccess"},
    "drift": "Revert",
    "managementPolicy": "Full",
    "deletionPolicy": "Retain",
    "history": 10,
}
DEFAULTS = {
    CONTROL_PLANE.name: CONTROL_PLANE_DEFAULTS,
    PROVISIONER.name: PROVISIONER_DEFAULTS,
    WORKSPACE_PROXY.name: WORKSPACE_PROXY_DEFAULTS,
    TEMPLATE.name: TEMPLATE_DEFAULTS,
}

NAME = "such as coder-token"
IN_A_SECRET = "put credentials into a Secret"
SECRET = {"name": "s"}
INGRESS = {"host": "coder.example.com"}
GW = {"name": "gw"}
GATEWAY = {"host": "coder.example.com", "parentRefs": [GW]}
BOOTSTRAP = {"coderURL": "https://coder.example.com", "credentialsSecretRef": SECRET}
KEY_NAMES = ("a/b", "/", "a\tb", "a\u0085b", "a\n", " a", "a ", "a\u00a0", "\u3000a", ".", "..")
REJECTED: list[tuple[Kind[Object], str, Any, str]] = [
    (CONTROL_PLANE, "metadata.name", "coder.prod", "use '-' instead"),
    (CONTROL_PLANE, "metadata.name", "1-coder", "must start with a letter"),
    (PROVISIONER, "spec.workspaceNamespaces", ["a", "a"], "Duplicate value"),
    (PROVISIONER, "spec.workspaceNamespaces", ["a.b"], "such as coder-workspaces"),
    (PROVISIONER, "spec.workspaceNamespaces", [""], "at least 1 chars"),
    (PROVISIONER, "spec.workspaceNamespaces", [f"n{i}" for i in range(501)], "at most 500 items"),
    (PROVISIONER, "metadata.name", "build.gpu", "use '-' instead"),
    (PROVISIONER, "spec.autoscaling", {}, "maxReplicas: Required value"),
    (PROVISIONER, "spec.autoscaling", {"maxReplicas": 0}, "greater than or equal to 1"),
    (PROVISIONER, "spec.autoscaling", {"minReplicas": 3, "maxReplicas": 2}, "must not be less than minReplicas"),
    (PROVISIONER, "spec.autoscaling", {"maxReplicas": 2, "wakeInterval": "4m"}, "must be at least 5m"),
    *(
        (
            PROVISIONER,
            "spec.autoscaling",
            {"maxReplicas": 5, "schedules": [{"end": "0 9 * * *", "minReplicas": 1, **wrong}]},
            message,
        )
        for wrong, message in (
            ({"start": "0 9 * *"}, "five fields"),
            ({"start": "0 9 * * *", "minReplicas": 0}, "greater than or equal to 1"),
            ({"start": "0 9 * * *", "timeZone": ""}, "at least 1 chars"),
            ({"start": "0 9 * * *", "minReplicas": 6}, "must not be greater than maxReplicas"),
        )
    ),
    (PROVISIONER, "spec.disruption.protectBusyPods", "Always", '"None", "Annotations", "Budget"'),
    *((PROVISIONER, "spec.key.name", name, "must not contain '/'") for name in KEY_NAMES),
    (CONTROL_PLANE, "spec.replicas", -1, "greater than or equal to 0"),
    (CONTROL_PLANE, "spec.replicas", 2**31, "int32"),
    (CONTROL_PLANE, "spec.replicas", "2", "must be of type integer"),
    (CONTROL_PLANE, "spec.image", "i" * 1025, "1024"),
    (CONTROL_PLANE, "spec.service.type", "ExternalName", '"ClusterIP", "NodePort", "LoadBalancer"'),
    (CONTROL_PLANE, "spec.service.port", 0, "greater than or equal to 1"),
    (CONTROL_PLANE, "spec.service.port", 65536, "less than or equal to 65535"),
    (
        CONTROL_PLANE,
        "spec.envFrom",
        [{"configMapRef": SECRET, "secretRef": SECRET}],
        "write configMapRef and secretRef",
    ),
    (CONTROL_PLANE, "spec.operatorAccess", {"disabled": True, "tokenSecretRef": SECRET}, "mutually exclusive"),
    (CONTROL_PLANE, "spec.operatorAccess.generatedTokenSecretName", "n" * 64, "63"),
    (CONTROL_PLANE, "spec.operatorAccess.generatedTokenSecretName", "My Token", NAME),
    (CONTROL_PLANE, "spec.operatorAccess.tokenSecretRef", {"key": "token"}, "tokenSecretRef.name: Required value"),
    (CONTROL_PLANE, "spec.operatorAccess.tokenSecretRef", {"name": "s", "key": "a/b"}, "such as tls.crt"),
    (CONTROL_PLANE, "spec.licenseSecretRef", {"name": ""}, "at least 1 chars"),
    (CONTROL_PLANE, "spec.licenseSecretRef", {"name": "UPPER"}, NAME),
    (CONTROL_PLANE, "spec.serviceAccount.name", "-account", NAME),
    (CONTROL_PLANE, "spec.rbac.extraRules", [{"resources": ["pods"]}], "verbs: Required value"),
    (CONTROL_PLANE, "spec.rbac.workspaceNamespaces", ["a", "a"], "Duplicate value"),
    (CONTROL_PLANE, "spec.rbac.workspaceNamespaces", ["a.b"], "such as coder-workspaces"),
    (CONTROL_PLANE, "spec.rbac.workspaceNamespaces", [f"n{i}" for i in range(501)], "at most 500 items"),
    (CONTROL_PLANE, "spec.tls.secretNames", ["coder_tls"], NAME),
    (CONTROL_PLANE, "spec.tls.secretNames", [f"n{i}" for i in range(101)], "at most 100 items"),
    (CONTROL_PLANE, "spec.certs.secrets", [SECRET], "secrets[0].key: Required value"),
    (CONTROL_PLANE, "spec.certs.secrets", [{"name": "ca", "key": "../x"}], "such as tls.crt"),
    (CONTROL_PLANE, "spec.readinessProbe.initialDelaySeconds", -1, "greater than or equal to 0"),
    (CONTROL_PLANE, "spec.readinessProbe.periodSeconds", 0, "greater than or equal to 1"),
    (CONTROL_PLANE, "spec.readinessProbe.timeoutSeconds", 0, "greater than or equal to 1"),
    (CONTROL_PLANE, "spec.readinessProbe.failureThreshold", 0, "greater than or equal to 1"),
    (CONTROL_PLANE, "spec.livenessProbe.successThreshold", 2, "less than or equal to 1"),
    (
        CONTROL_PLANE,
        "spec.expose",
        {"ingress": INGRESS, "gateway": GATEWAY},
        "ingress and gateway are mutually exclusive",
    ),
    (CONTROL_PLANE, "spec.expose.ingress", {}, "host: Required value"),
    (CONTROL_PLANE, "spec.expose.ingress", {"host": "https://coder.example.com"}, "such as coder.example.com"),
    (CONTROL_PLANE, "spec.expose.ingress", INGRESS | {"wildcardHost": "coder.example.com"}, "*.coder.example.com"),
    (CONTROL_PLANE, "spec.expose.ingress", INGRESS | {"className": "a b"}, NAME),
    (CONTROL_PLANE, "spec.expose.ingress", INGRESS | {"tls": {"secretName": "A"}}, NAME),
    (CONTROL_PLANE, "spec.expose.ingress", INGRESS | {"tls": {"wildcardSecretName": "A"}}, NAME),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY | {"host": "coder.example.com:443"}, "such as coder.example.com"),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY | {"wildcardHost": "*"}, "*.coder.example.com"),
    (CONTROL_PLANE, "spec.expose.gateway", {"host": "a.b"}, "parentRefs: Required value"),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY | {"parentRefs": []}, "at least 1 items"),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY | {"parentRefs": [SECRET] * 33}, "at most 32 items"),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY | {"parentRefs": [{"name": ""}]}, "at least 1 chars"),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY | {"parentRefs": [GW | {"namespace": "a.b"}]}, "coder-workspaces"),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY | {"parentRefs": [GW | {"sectionName": "a_b"}]}, NAME),
    (CONTROL_PLANE, "spec.extraEnv", [{"value": "x"}], "extraEnv[0].name: Required value"),
    (CONTROL_PLANE, "spec.resources", {"limits": {"cpu": "two"}}, "should match"),
    (CONTROL_PLANE, "spec.replica", 2, "unknown field"),
    (PROVISIONER, "spec", None, "spec: Required value"),
    (PROVISIONER, "spec.controlPlaneRef", None, "controlPlaneRef: Required value"),
    (PROVISIONER, "spec.controlPlaneRef.name", "", "at least 1 chars"),
    (PROVISIONER, "spec.replicas", -1, "greater than or equal to 0"),
    (PROVISIONER, "spec.organizationName", "o" * 129, "128"),
    (PROVISIONER, "spec.bootstrap", {}, "credentialsSecretRef: Required value"),
    (PROVISIONER, "spec.key.name", "k" * 65, "64"),
    (PROVISIONER, "spec.key.name", "Built-In", "choose another name"),
    (PROVISIONER, "spec.key.secretName", "a_b", NAME),
    (PROVISIONER, "spec.key.secretKey", "a b", "such as tls.crt"),
    (PROVISIONER, "spec.key.rotation", {}, "interval: Required value"),
    (PROVISIONER, "spec.key.rotation.interval", "30", "such as 720h"),
    (PROVISIONER, "spec.key.rotation.interval", "0s", "such as 720h"),
    (PROVISIONER, "spec.key.rotation.interval", "-5m", "such as 720h"),
    (PROVISIONER, "spec.key.rotation.interval", "30 days", "such as 720h"),
    (PROVISIONER, "spec.key.rotation.interval", "59m59s", "must be at least 1h"),
    (PROVISIONER, "spec.terminationGracePeriodSeconds", -1, "greater than or equal to 0"),
    (WORKSPACE_PROXY, "metadata.name", "eu.west", "use '-' instead"),
    (WORKSPACE_PROXY, "spec.controlPlaneRef", None, "set exactly one of"),
    (WORKSPACE_PROXY, "spec.bootstrap", BOOTSTRAP, "set exactly one of"),
    (WORKSPACE_PROXY, "spec", {"proxySessionTokenSecretRef": SECRET}, "set primaryAccessURL too"),
    (
        WORKSPACE_PROXY,
        "spec",
        {"proxySessionTokenSecretRef": SECRET, "primaryAccessURL": ""},
        "set primaryAccessURL too",
    ),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "coder.example.com", "such as https://coder.example.com"),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "ftp://coder.example.com", "such as https://coder.example.com"),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "https:///path", "such as https://coder.example.com"),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "https://user:password@coder.example.com", IN_A_SECRET),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "https://token@coder.example.com", IN_A_SECRET),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "https://@coder.example.com", IN_A_SECRET),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "https://a%40b:c@d@coder.example.com:8443/x", IN_A_SECRET),
    (WORKSPACE_PROXY, "spec", {"bootstrap": BOOTSTRAP | {"coderURL": "http://a:b@coder"}}, IN_A_SECRET),
    (WORKSPACE_PROXY, "spec", {"bootstrap": BOOTSTRAP | {"icon": "https://a:b@icons.example/x.png"}}, IN_A_SECRET),
    (WORKSPACE_PROXY, "spec", {"bootstrap": BOOTSTRAP | {"coderURL": "coder"}}, "such as https://coder.example.com"),
    (WORKSPACE_PROXY, "spec", {"bootstrap": BOOTSTRAP | {"coderURL": ""}}, "at least 1 chars"),
    (WORKSPACE_PROXY, "spec", {"bootstrap": BOOTSTRAP | {"proxyName": "primary"}}, "choose another name"),
    (WORKSPACE_PROXY, "spec.service.port", 0, "greater than or equal to 1"),
    (TEMPLATE, "metadata.name", "a" * 33, "or set spec.name"),
    (TEMPLATE, "metadata.name", "go.lang", "or set spec.name"),
    (TEMPLATE, "metadata.name", "new", "or set spec.name"),
    (TEMPLATE, "spec.name", "go_lang", "such as go-workspace"),
    (TEMPLATE, "spec.name", "create", "such as go-workspace"),
    (TEMPLATE, "spec.source", {}, "set exactly one of inline"),
    (TEMPLATE, "spec.source.inline", {"files": {"main.tf": ""}}, "set exactly one of inline"),
    (TEMPLATE, "spec.source", {"inline": {"files": {}}}, "at least 1 properties"),
    (TEMPLATE, "spec.source", {"inline": {"files": {"a.tf": "x" * 200_000, "b.tf": "x" * 100_000}}}, "256 KiB"),
    (TEMPLATE, "spec.source", {"inline": {"files": {f"{n}.tf": "" for n in range(1000)}}}, "at most 500 items"),
    (TEMPLATE, "spec.source", {"fluxRef": {"kind": "HelmRepository", "name": "x"}}, "supported values"),
    (TEMPLATE, "spec.source", {"fluxRef": {"kind": "Bucket", "name": "x", "path": "a/../.."}}, "without '..'"),
    (TEMPLATE, "spec.settings.unknown", 1, "unknown field"),
    (TEMPLATE, "spec.settings.schedule", {"deleteDormantAfter": "24h"}, "set allowWorkspaceDeletion to true too"),
]

ACCEPTED: list[tuple[Kind[Object], str, Any]] = [
    (WORKSPACE_PROXY, "metadata.name", "1-sydney"),  # its Service is wsproxy-1-sydney
    (PROVISIONER, "metadata.name", "1-build"),  # it has no Service
    (CONTROL_PLANE, "spec.replicas", 0),
    (CONTROL_PLANE, "spec.image", ""),
    (CONTROL_PLANE, "spec.expose", {}),
    (CONTROL_PLANE, "spec.expose.gateway", GATEWAY),
    (CONTROL_PLANE, "spec.serviceAccount.name", ""),
    (CONTROL_PLANE, "spec.tls.secretNames", ["one.tls", "one.tls"]),
    (CONTROL_PLANE, "spec.operatorAccess", {"disabled": True}),
    (CONTROL_PLANE, "spec.extraEnv", [{"name": "A"}, {"name": "A", "value": "again"}]),
    (CONTROL_PLANE, "spec.resources", {"limits": {"cpu": 2, "memory": "1.5Gi"}}),
    (PROVISIONER, "spec.organizationName", ""),
    (PROVISIONER, "spec.key.name", ""),
    (PROVISIONER, "spec.key.rotation.interval", "1h30m"),
    (PROVISIONER, "spec.key.rotation.interval", "60m"),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "http://[::1]:8080/sub"),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", "https://coder.example.com/@me?to=a@b"),
    (WORKSPACE_PROXY, "spec", {"bootstrap": BOOTSTRAP}),
    (WORKSPACE_PROXY, "spec", {"bootstrap": BOOTSTRAP | {"icon": "/emojis/@2x/1f1e6.png"}}),
]


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_a_minimal_object_gets_every_default(cluster: ClusterAccess, namespace: str, kind: Kind[Object]) -> None:
    written = minimal(kind)
    status, stored = submit(cluster, namespace, written)
    assert status == 201, stored
    assert stored["spec"] == written.get("spec", {}) | DEFAULTS[kind.name]
    assert "status" not in stored


@pytest.mark.parametrize(
    ("field", "value"), [("spec.controlPlaneRef.name", "other"), ("spec.organizationName", "other")]
)
def test_a_template_stays_where_it_is(cluster: ClusterAccess, namespace: str, field: str, value: str) -> None:
    _, stored = submit(cluster, namespace, minimal(TEMPLATE))
    path = TEMPLATE.path(Key(namespace, "minimal"))
    status, answer = cluster.request("PUT", path, altered(stored, field, value))
    assert (status, b"create another CoderTemplate instead" in answer) == (422, True)
    status, _ = cluster.request("PUT", path, altered(stored, "spec.name", value))
    assert status == 200


@pytest.mark.parametrize(
    ("reference", "key"), [("licenseSecretRef", "license"), ("operatorAccess.tokenSecretRef", "token")]
)
def test_a_secret_reference_has_a_default_key(cluster: ClusterAccess, namespace: str, reference: str, key: str) -> None:
    status, stored = submit(cluster, namespace, altered(minimal(CONTROL_PLANE), f"spec.{reference}", SECRET))
    assert status == 201, stored
    found = stored["spec"]
    for name in reference.split("."):
        found = found[name]
    assert found == {"name": "s", "key": key}


@pytest.mark.parametrize(("kind", "path", "value", "message"), REJECTED)
def test_an_invalid_object_is_rejected_with_a_hint(
    cluster: ClusterAccess, kind: Kind[Object], path: str, value: Any, message: str
) -> None:
    status, answer = submit(cluster, "default", altered(minimal(kind), path, value), keep=False)
    assert status in (400, 422), answer
    if message == "int32" and minor(cluster) < FORMATS_SINCE:
        message = "less than or equal to 2147483647"  # only for `replicas`, because of /scale
    assert message in answer["message"]


@pytest.mark.parametrize(("kind", "path", "value"), ACCEPTED)
def test_a_valid_object_is_accepted(cluster: ClusterAccess, kind: Kind[Object], path: str, value: Any) -> None:
    status, answer = submit(cluster, "default", altered(minimal(kind), path, value), keep=False)
    assert status == 201, answer


async def test_an_object_older_than_a_rule_can_be_changed(cluster: ClusterAccess, namespace: str) -> None:
    """Except for the field that violates the rule: the API server validates values that change."""
    group = f"{namespace}.example.com"
    definition = parse((CONFIG / "crd" / f"{WORKSPACE_PROXY.plural}.yaml").read_text())
    definition["metadata"]["name"] = f"{WORKSPACE_PROXY.plural}.{group}"
    definition["spec"]["group"] = group
    for shared in ("categories", "shortNames"):  # kubectl would find this kind, too, in other tests
        del definition["spec"]["names"][shared]
    url = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    rules = url["primaryAccessURL"].pop("x-kubernetes-validations")
    cluster.kubectl("apply", "--server-side", "--filename=-", input=yaml.safe_dump(definition))
    old = Kind(group, WORKSPACE_PROXY.version, WORKSPACE_PROXY.name, WORKSPACE_PROXY.plural, Unstructured)
    spec = {"controlPlaneRef": {"name": "coder"}, "primaryAccessURL": "https://user:password@coder.example.com"}
    manifest = {"apiVersion": old.api_version, "kind": old.name, "metadata": {"name": "demo"}, "spec": spec}
    collection = old.path(Key(namespace, ""))
    await eventually(lambda: cluster.request("POST", collection, manifest)[0] == 201, 30)

    url["primaryAccessURL"]["x-kubernetes-validations"] = rules
    cluster.kubectl("apply", "--server-side", "--filename=-", input=yaml.safe_dump(definition))
    again = altered(manifest, "metadata.name", "another")
    await eventually(lambda: cluster.request("POST", f"{collection}?dryRun=All", again)[0] == 422, 30)

    def change(**spec: Any) -> int:
        patch = {"metadata": {"labels": {"changed": "yes"}}, "spec": spec}
        content_type = "application/merge-patch+json"
        return cluster.request("PATCH", old.path(Key(namespace, "demo")), patch, content_type=content_type)[0]

    assert change(replicas=2) == 200
    assert change(primaryAccessURL="https://another:password@coder.example.com") == 422
    assert change(primaryAccessURL="https://coder.example.com") == 200
    cluster.kubectl("delete", "crd", definition["metadata"]["name"], "--wait=false")


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda item: item["metadata"]["name"])
def test_recorded_objects_are_stored_unchanged_except_for_defaults(
    cluster: ClusterAccess, namespace: str, recorded: Manifest
) -> None:
    status, stored = submit(cluster, namespace, {name: part for name, part in recorded.items() if name != "status"})
    assert status == 201, stored
    path = KINDS[recorded["kind"]].path(Key(namespace, recorded["metadata"]["name"]), "status")
    status, answer = cluster.request("PUT", f"{path}?fieldValidation=Strict", stored | {"status": recorded["status"]})
    assert status == 200, answer
    completed = json.loads(answer)
    assert completed["status"] == recorded["status"]
    assert completed["spec"] == with_defaults(recorded["spec"], defaults_of(recorded))


def defaults_of(recorded: Manifest) -> Manifest:
    """The defaults of a kind, and those of the secret references that an object has."""
    token = {"key": "token"}
    return DEFAULTS[recorded["kind"]] | {
        "proxySessionTokenSecretRef": token,
        "bootstrap": {"credentialsSecretRef": token},
    }


def with_defaults(written: Manifest, defaults: Manifest) -> Manifest:
    """The expected object after defaulting; defaults inside of missing references do not apply."""
    missing = {name: value for name, value in defaults.items() if name not in written and not _is_reference(name)}
    present = {
        name: with_defaults(value, defaults[name]) if isinstance(value, dict) and name in defaults else value
        for name, value in written.items()
    }
    return missing | present


def _is_reference(name: str) -> bool:
    return name.endswith("Ref") or name == "bootstrap"
