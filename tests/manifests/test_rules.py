"""An object that is older than a rule still gets its status, on every API server."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
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

# What the rules of the current definitions reject, by kind and field.
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
    (PROVISIONER, "spec.key.name", "psk"),
    (PROVISIONER, "spec.key.rotation", {"interval": "30 days"}),
    (WORKSPACE_PROXY, "spec.primaryAccessURL", CREDENTIALS),
    (WORKSPACE_PROXY, "spec.bootstrap", {"coderURL": "https://coder.example.com", "credentialsSecretRef": SECRET}),
]


@pytest.fixture
def group(cluster: ClusterAccess, namespace: str) -> Iterator[str]:
    """A group of this test alone: definitions can change there without harm to others."""
    name = f"{namespace}.example.com"
    yield name
    for resource in RESOURCES:
        cluster.kubectl("delete", "crd", f"{resource.kind.plural}.{name}", "--ignore-not-found", "--wait=false")


def in_group(kind: Kind[Object], group: str, change: Callable[[Manifest], Manifest]) -> Manifest:
    """The definition of a kind in another group, with another schema."""
    [resource] = [each for each in RESOURCES if each.kind is kind]
    crd = deepcopy(definition(resource, load()))
    crd["metadata"]["name"] = f"{kind.plural}.{group}"
    crd["spec"]["group"] = group
    version = crd["spec"]["versions"][0]["schema"]
    version["openAPIV3Schema"] = change(version["openAPIV3Schema"])
    return crd


def apply(cluster: ClusterAccess, crd: Manifest) -> None:
    cluster.kubectl("apply", "--server-side", "--filename=-", input=json.dumps(crd))


@pytest.mark.parametrize(("kind", "field", "value"), REJECTED)
def test_object_from_before_a_rule_can_be_written_but_for_what_breaks_the_rule(
    cluster: ClusterAccess, namespace: str, group: str, kind: Kind[Object], field: str, value: Any
) -> None:
    older = Kind(group, kind.version, kind.name, kind.plural, Unstructured)
    collection, path = older.path(Key(namespace, "")), older.path(Key(namespace, "demo"))
    rejected = altered(minimal(kind, "demo"), field, value) | {"apiVersion": older.api_version}

    def create(name: str, query: str = "") -> int:
        return cluster.request("POST", f"{collection}{query}", altered(rejected, "metadata.name", name))[0]

    def patch(content: Manifest, subresource: str = "") -> tuple[int, Any]:
        status, body = cluster.request("PATCH", f"{path}{subresource}", content, content_type=MERGE)
        return status, json.loads(body)

    apply(cluster, in_group(kind, group, without_rules))
    assert poll(lambda: create("demo") == 201, 30)
    apply(cluster, in_group(kind, group, lambda schema: schema))
    assert poll(lambda: create("another", "?dryRun=All") == 422, 30)

    status, answer = patch({"status": STATUS}, "/status")
    assert (status, answer.get("status")) == (200, STATUS), answer
    status, answer = patch({"metadata": {"finalizers": ["example.com/x"]}})
    assert status == 200, answer
    assert patch({"metadata": {"finalizers": None}, "spec": {"replicas": 2}})[0] in expected_of_edit(field)


def expected_of_edit(field: str) -> tuple[int, ...]:
    """Any edit of the spec changes the value that a rule of the whole spec is about."""
    return (422,) if field == "spec.bootstrap" else (200,)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: each.kind.name)
def test_every_rule_is_skipped_for_what_is_stored_or_asked_at_creation_only(resource: Any) -> None:
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
