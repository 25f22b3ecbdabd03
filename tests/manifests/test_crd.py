"""The generated CRDs in a real API server."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, WORKSPACE_PROXY
from coder_k8s.api.provisioner import Daemons
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.processes import poll
from coder_k8s.kube.objects import Key, Kind, Manifest, Object
from coder_k8s.manifests.crd import definition
from coder_k8s.manifests.embedded import KUBERNETES, PACKAGES, load, needed, select
from tests.api.admission import EMBEDDED, KINDS, altered, minimal, submit
from tests.conftest import one_worker_at_a_time
from tests.support.manifests import parse
from tests.support.versions import minor

CRDS = sorted((Path(__file__).parents[2] / "config" / "crd").glob("coder*.yaml"))
CLIENT_SIDE_APPLY = 250_000


@pytest.fixture(scope="module")
def served(cluster: ClusterAccess) -> Manifest:
    """The schemas of Kubernetes' own types, by full name, as this API server serves them."""
    schemas: Manifest = {}
    for path, _ in PACKAGES.values():
        schemas |= json.loads(cluster.request("GET", f"/openapi/v3/{path}")[1])["components"]["schemas"]
    if minor(cluster) > int(KUBERNETES.removeprefix("1.")):  # the CRDs drop newer properties
        for name, known in load().items():
            if "properties" in known:
                given = schemas[name]["properties"]
                schemas[name]["properties"] = {each: given[each] for each in given if each in known["properties"]}
    return schemas


def values(schema: Manifest, served: Manifest) -> Any:
    """A value that sets every property of a schema, at every depth."""
    if reference := next((part["$ref"] for part in [schema, *schema.get("allOf", [])] if "$ref" in part), None):
        return values(served[reference.rpartition("/")[2]], served)
    if "oneOf" in schema:
        return "8080" if schema.get("format") == "int-or-string" else "1500m"
    match schema["type"]:
        case "object" if "properties" in schema:
            return {name: values(inner, served) for name, inner in schema["properties"].items()}
        case "object":
            return {"anything": values(schema.get("additionalProperties", {"type": "string"}), served)}
        case "array":
            return [values(schema["items"], served)]
        case "string":
            return "2026-01-02T03:04:05Z" if schema.get("format") == "date-time" else "text"
        case "integer":
            return 7
        case "boolean":
            return True
    raise AssertionError(schema)


def entries(core: str, served: Manifest) -> Iterator[Any]:
    """Objects of a type that together set every property."""
    [name] = [f"{package}.{core}" for _, package in PACKAGES.values() if f"{package}.{core}" in served]
    whole = values(served[name], served)
    if core == "EnvFromSource":  # two sources in one entry are rejected
        yield {key: value for key, value in whole.items() if key != "secretRef"}
        yield {key: value for key, value in whole.items() if key != "configMapRef"}
    else:
        yield whole


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize(("kind", "field", "core"), EMBEDDED)
def test_every_property_of_an_embedded_type_is_stored(
    cluster: ClusterAccess, namespace: str, served: Manifest, kind: Kind[Object], field: str, core: str | list[str]
) -> None:
    written = list(entries(core[0], served)) if isinstance(core, list) else next(entries(core, served))
    status, stored = submit(cluster, namespace, altered(minimal(kind), f"spec.{field}", written))
    assert status == 201, stored
    found = stored["spec"]
    for name in field.split("."):
        found = found[name]
    assert found == written


def test_embedded_schemas_match_the_api_server(cluster: ClusterAccess, served: Manifest) -> None:
    if f"1.{minor(cluster)}" != KUBERNETES:
        pytest.skip(f"the schemas are from Kubernetes {KUBERNETES}, the API server has version 1.{minor(cluster)}")
    assert load() == select(served, needed())


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_crd_can_be_applied_client_side_and_server_side(cluster: ClusterAccess, path: Path) -> None:
    assert len(json.dumps(parse(path.read_text()))) < CLIENT_SIDE_APPLY
    strict = ("--validate=strict", "--warnings-as-errors", "--dry-run=server", "--filename", path)
    with one_worker_at_a_time(cluster):  # another one may install the CRD meanwhile
        cluster.kubectl("apply", *strict)
        cluster.kubectl("apply", "--server-side", "--force-conflicts", *strict)


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_crd_has_no_schema_violations(cluster: ClusterAccess, kind: Kind[Object]) -> None:
    crd = json.loads(cluster.kubectl("get", "crd", str(kind), "--output=json"))
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("codercontrolplane.spec.affinity", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("codercontrolplane.spec.service", "load balancer"),
        ("ccp.spec.rbac.extraRules", "nonResourceURLs"),
        ("cprov.spec.key.rotation", "interval"),
        ("cwp.spec.bootstrap", "credentialsSecretRef"),
        ("cwp.status.conditions", "lastTransitionTime"),
    ],
)
def test_kubectl_explain(cluster: ClusterAccess, path: str, expected: str) -> None:
    assert expected in cluster.kubectl("explain", path) + cluster.kubectl("explain", path, "--recursive")


@pytest.mark.usefixtures("crds")
def test_the_category_lists_all_kinds(cluster: ClusterAccess, namespace: str) -> None:
    for kind in KINDS.values():
        submit(cluster, namespace, minimal(kind, "fleet"))
    listed = cluster.kubectl("get", "coder", "--namespace", namespace, "--output=name").split()
    assert listed == [f"{kind.name.lower()}.coder.com/fleet" for kind in sorted(KINDS.values(), key=str)]
    assert "fleet" in cluster.kubectl("get", "coder", "--all-namespaces")
    for resource in RESOURCES:
        assert "fleet" in cluster.kubectl("get", resource.short_name, "--namespace", namespace)


@pytest.mark.usefixtures("crds")
def test_columns_show_the_summary(cluster: ClusterAccess, namespace: str) -> None:
    _, stored = submit(cluster, namespace, minimal(CONTROL_PLANE, "shown"))
    condition = {"type": "Ready", "status": "False", "reason": "Waiting", "message": "Waiting for a pod"}
    stored["status"] = {
        "phase": "Pending",
        "readyReplicas": 2,
        "version": "v2",
        "accessURL": "https://coder.example.com",
        "licenseTier": "trial",
        "conditions": [condition | {"lastTransitionTime": "2026-01-02T03:04:05Z"}],
    }
    status, response = cluster.request("PUT", CONTROL_PLANE.path(Key(namespace, "shown"), "status"), stored)
    assert status == 200, response
    row = ["get", "ccp", "shown", "--namespace", namespace, "--no-headers"]
    shown = ["shown", "False", "Waiting", "1", "2", "v2", "https://coder.example.com"]
    assert cluster.kubectl(*row).split()[:-1] == shown
    for text in ("trial", "Pending", "Waiting for a pod"):
        assert text in cluster.kubectl(*row, "--output=wide")


@pytest.mark.usefixtures("crds")
def test_columns_show_zero_and_the_primary_url(cluster: ClusterAccess, namespace: str) -> None:
    statuses = {
        PROVISIONER: {"daemons": msgspec.to_builtins(Daemons(connected=3))},
        WORKSPACE_PROXY: {"primaryAccessURL": "http://coder.coder.svc.cluster.local"},
    }
    rows = {}
    for kind, status in statuses.items():
        _, stored = submit(cluster, namespace, minimal(kind, "shown"))
        path = kind.path(Key(namespace, "shown"), "status")
        assert cluster.request("PUT", path, stored | {"status": status})[0] == 200
        output = cluster.kubectl("get", str(kind), "shown", "--namespace", namespace, "--output=wide")
        header, row = output.splitlines()
        names = [name for name in ("CONNECTED", "BUSY", "PRIMARY URL") if name in header]
        rows[kind] = {name: row[header.index(name) :].split()[0] for name in names}
    assert rows == {
        PROVISIONER: {"CONNECTED": "3", "BUSY": "0"},
        WORKSPACE_PROXY: {"PRIMARY URL": "http://coder.coder.svc.cluster.local"},
    }


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("kind", [each.kind for each in RESOURCES if each.has_pods], ids=str)
def test_an_object_can_be_scaled(cluster: ClusterAccess, namespace: str, kind: Kind[Object]) -> None:
    _, stored = submit(cluster, namespace, minimal(kind))
    status = {"replicas": 1, "selector": "app=coder"}
    path = kind.path(Key(namespace, "minimal"))
    cluster.request("PUT", f"{path}/status", stored | {"status": status})
    cluster.kubectl("scale", f"{kind}/minimal", "--namespace", namespace, "--replicas=5")
    scale = json.loads(cluster.request("GET", f"{path}/scale")[1])
    assert (scale["spec"], scale["status"]) == ({"replicas": 5}, status)


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "Maybe"}, "supported values"),
        ({"reason": ""}, "at least 1 chars"),
        ({"reason": "not one word"}, "should match"),
        ({"lastTransitionTime": "yesterday"}, "date-time"),
    ],
)
def test_invalid_condition_is_rejected(
    cluster: ClusterAccess, namespace: str, change: dict[str, str], message: str
) -> None:
    good = {
        "type": "Ready",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    assert put_conditions(cluster, namespace, [good])[0] == 200
    status, response = put_conditions(cluster, namespace, [good | change])
    assert status == 422
    assert message.lower() in response.lower()


@pytest.mark.usefixtures("crds")
def test_duplicate_condition_type_is_rejected(cluster: ClusterAccess, namespace: str) -> None:
    twice = {
        "type": "Ready",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    status, response = put_conditions(cluster, namespace, [twice, twice])
    assert (status, "Duplicate value" in response) == (422, True)


def put_conditions(cluster: ClusterAccess, namespace: str, conditions: list[Manifest]) -> tuple[int, str]:
    _, stored = submit(cluster, namespace, minimal(WORKSPACE_PROXY))
    path = WORKSPACE_PROXY.path(Key(namespace, "minimal"))
    stored = json.loads(cluster.request("GET", path)[1])
    status, response = cluster.request("PUT", f"{path}/status", stored | {"status": {"conditions": conditions}})
    return status, response.decode()


def test_name_is_validated_at_creation_only(cluster: ClusterAccess, namespace: str) -> None:
    """The finalizer of an object that is older than the rule can be removed."""
    group = f"{namespace}.example.com"
    with_rule = definition(RESOURCES[0], load())
    with_rule["metadata"]["name"] = f"codercontrolplanes.{group}"
    with_rule["spec"] |= {"group": group, "names": {"kind": "Older", "plural": "codercontrolplanes"}}
    without = deepcopy(with_rule)
    del without["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    kind = Kind(group, "v1alpha1", "Older", "codercontrolplanes", Object)
    dotted = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "a.b", "finalizers": ["x.y/z"]}}

    def create(name: str) -> int:
        manifest = altered(dotted, "metadata.name", name)
        return cluster.request("POST", kind.path(Key(namespace, "")), manifest)[0]

    try:
        cluster.kubectl("create", "--filename=-", input=json.dumps(without))
        assert poll(lambda: create("a.b") == 201, 10)
        cluster.kubectl("replace", "--filename=-", input=json.dumps(with_rule))
        numbers = iter(range(1000))
        assert poll(lambda: create(f"a.{next(numbers)}") == 422, 10)
        cluster.kubectl(
            "patch", f"{kind}/a.b", "--namespace", namespace, "--type=merge", '--patch={"metadata":{"finalizers":null}}'
        )
    finally:
        cluster.kubectl("delete", "crd", f"codercontrolplanes.{group}", "--wait=false")
