"""An object that is older than a validation rule can still be updated."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, WORKSPACE_PROXY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import poll
from coder_k8s.kube.objects import Key, Kind, Manifest, Object, Unstructured
from coder_k8s.manifests.crd import definition
from coder_k8s.manifests.embedded import load
from coder_k8s.manifests.rules import RULES, without_rules
from tests.api.admission import altered, minimal

MERGE = "application/merge-patch+json"
STATUS = {"observedGeneration": 1, "readyReplicas": 3}
SECRET = {"name": "s"}
CREDENTIALS = "https://user:password@coder.example.com"

# Values that the rules of the current CRDs reject, by kind and field.
REJECTED: list[tuple[Kind[Object], str, Any]] = [
    (CONTROL_PLANE, "spec.operatorAccess", {"disabled": True, "tokenSecretRef": SECRET}),
    (CONTROL_PLANE, "spec.serviceAccount.name", "-account"),
    (CONTROL_PLANE, "spec.envFrom", [{"configMapRef": SECRET, "secretRef": SECRET}]),
    (CONTROL_PLANE, "spec.tls.secretNames", ["coder_tls"]),
    (CONTROL_PLANE, "spec.rbac.workspaceNamespaces", ["a.b"]),
    (CONTROL_PLANE, "spec.certs.secrets", [{"name": "ca", "key": "../x"}]),
    (
        CONTROL_PLANE,
        "spec.expose.gateway",
        {"host": "coder.example.com", "parentRefs": [{"name": "g", "namespace": "a.b"}]},
    ),
    (CONTROL_PLANE, "spec.expose", {"ingress": {"host": "a.b"}, "gateway": {"host": "a.b", "parentRefs": [SECRET]}}),
    (PROVISIONER, "spec.workspaceNamespaces", ["a.b"]),
    (PROVISIONER, "spec.key.name", "psk"),
    (PROVISIONER, "spec.key.rotation", {"interval": "30 days"}),
    (PROVISIONER, "spec.key.rotation", {"interval": "30m"}),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", CREDENTIALS),
    (WORKSPACE_PROXY, "spec.bootstrap", {"coderURL": "https://coder.example.com", "credentialsSecretRef": SECRET}),
]


@pytest.fixture
def group(cluster: ClusterAccess, namespace: str) -> Iterator[str]:
    """An API group for this test, so that changes of its CRDs do not affect other tests."""
    name = f"{namespace}.example.com"
    yield name
    for resource in RESOURCES:
        cluster.kubectl("delete", "crd", f"{resource.kind.plural}.{name}", "--ignore-not-found", "--wait=false")


def in_group(kind: Kind[Object], group: str, change: Callable[[Manifest], Manifest]) -> Manifest:
    """The CRD of a kind in another group, with another schema."""
    [resource] = [each for each in RESOURCES if each.kind is kind]
    crd = deepcopy(definition(resource, load()))
    crd["metadata"]["name"] = f"{kind.plural}.{group}"
    crd["spec"]["group"] = group
    for shared in ("categories", "shortNames"):  # kubectl would find this kind, too, in other tests
        del crd["spec"]["names"][shared]
    version = crd["spec"]["versions"][0]["schema"]
    version["openAPIV3Schema"] = change(version["openAPIV3Schema"])
    return crd


def apply(cluster: ClusterAccess, crd: Manifest) -> None:
    cluster.kubectl("apply", "--server-side", "--filename=-", input=json.dumps(crd))


@dataclass
class Older:
    """An object whose kind had no rules when it was created."""

    cluster: ClusterAccess
    collection: str
    manifest: Manifest

    def create(self, name: str, query: str = "") -> int:
        named = altered(self.manifest, "metadata.name", name)
        return self.cluster.request("POST", f"{self.collection}{query}", named)[0]

    def patch(self, content: Manifest, subresource: str = "") -> tuple[int, Any]:
        path = f"{self.collection}/{self.manifest['metadata']['name']}{subresource}"
        status, body = self.cluster.request("PATCH", path, content, content_type=MERGE)
        return status, json.loads(body)


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, _, _ in REJECTED), ids=lambda kind: kind.name)
def test_objects_older_than_a_rule_can_be_updated_except_for_the_rejected_value(
    cluster: ClusterAccess, namespace: str, group: str, kind: Kind[Object]
) -> None:
    older = Kind(group, kind.version, kind.name, kind.plural, Unstructured)
    fields = {f"demo-{number}": field for number, (_, field, _) in enumerate(REJECTED)}
    objects = [
        Older(
            cluster,
            older.path(Key(namespace, "")),
            altered(minimal(kind, name), field, value) | {"apiVersion": older.api_version},
        )
        for name, (of, field, value) in zip(fields, REJECTED, strict=True)
        if of is kind
    ]
    apply(cluster, in_group(kind, group, without_rules))
    for each in objects:
        assert poll(lambda each=each: each.create(each.manifest["metadata"]["name"]) == 201, 30)  # type: ignore[misc]
    apply(cluster, in_group(kind, group, lambda schema: schema))
    for each in objects:
        assert poll(lambda each=each: each.create("another", "?dryRun=All") == 422, 30)  # type: ignore[misc]
        status, response = each.patch({"status": STATUS}, "/status")
        assert (status, response.get("status")) == (200, STATUS), response
        status, response = each.patch({"metadata": {"finalizers": ["example.com/x"]}})
        assert status == 200, response
        field = fields[each.manifest["metadata"]["name"]]
        changed = each.patch({"metadata": {"finalizers": None}, "spec": {"replicas": 2}})
        assert changed[0] in statuses_of_change(field), changed


def statuses_of_change(field: str) -> tuple[int, ...]:
    """Every change of the spec changes the value of a rule for the complete spec."""
    return (422,) if field == "spec.bootstrap" else (200,)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: each.kind.name)
def test_every_rule_is_skipped_for_unchanged_values(resource: Any) -> None:
    schema = definition(resource, load())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = list(rules_in(schema))
    assert rules
    for rule in rules:
        assert rule["optionalOldSelf"]
        assert rule["rule"].startswith("oldSelf.hasValue() ")
    assert not list(rules_in(schema["properties"]["status"]))


def rules_in(schema: Manifest) -> Iterator[Manifest]:
    yield from schema.get(RULES, [])
    for inner in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        yield from rules_in(inner)
