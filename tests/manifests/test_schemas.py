"""The JSON schemas for editors accept what the API server accepts, and reject unknown fields."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from coder_k8s.api import GROUP, RESOURCES, VERSION
from coder_k8s.manifests.crd import definition
from coder_k8s.manifests.embedded import load
from coder_k8s.manifests.schemas import path, schema
from tests.docs.pages import blocks, pages
from tests.support.manifests import parse_all

ROOT = Path(__file__).parents[2]
API_VERSION = f"{GROUP}/{VERSION}"
SCHEMAS = {
    resource.kind.name: ROOT / "docs" / "schemas" / GROUP / f"{resource.kind.name.lower()}_{VERSION}.json"
    for resource in RESOURCES
}
EXAMPLES = [
    *sorted((ROOT / "examples").rglob("*.yaml")),
    *sorted((ROOT / "src" / "coder_k8s" / "manifests" / "examples").glob("*.yaml")),
]
VALID: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "CoderProvisioner",
    "metadata": {"name": "gpu"},
    "spec": {"controlPlaneRef": {"name": "coder"}, "resources": {"requests": {"cpu": 2, "memory": "4Gi"}}},
}


def errors(manifest: Any) -> list[str]:
    """Return the errors of the schema of the manifest's kind, each with its field."""
    validator = jsonschema_rs.Draft7Validator(json.loads(SCHEMAS[manifest["kind"]].read_text()))
    found = validator.iter_errors(json.loads(json.dumps(manifest, default=str)))
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]


def objects(text: str) -> list[Any]:
    """Return the objects of the project's kinds in a YAML text."""
    return [each for each in parse_all(text) if each and each.get("apiVersion") == API_VERSION]


def test_examples_are_valid() -> None:
    found = [(file, each) for file in EXAMPLES for each in objects(file.read_text())]
    assert {each["kind"] for _, each in found} == set(SCHEMAS)
    assert [(file.name, problem) for file, each in found for problem in errors(each)] == []


def test_manifests_of_pages_are_valid() -> None:
    texts = [block for page in pages() for block in blocks(page) if block.language == "yaml"]
    found = [(block, each) for block in texts for each in objects(block.text)]
    assert len(found) > 5
    assert [(str(block), problem) for block, each in found for problem in errors(each)] == []


@pytest.mark.parametrize("file", SCHEMAS.values(), ids=lambda file: file.stem)
def test_a_schema_is_valid(file: Path) -> None:
    jsonschema_rs.meta.validate(json.loads(file.read_text()))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"replica": 2}, "spec: "),
        ({"key": {"rotation": {"interval": "720h", "every": "720h"}}}, "spec.key.rotation: "),
        ({"resources": {"request": {}}}, "spec.resources: "),
        ({"tolerations": [{"keys": "gpu"}]}, "spec.tolerations.0: "),
        ({"replicas": "two"}, "spec.replicas: "),
        ({"replicas": -1}, "spec.replicas: "),
        ({"controlPlaneRef": {}}, "spec.controlPlaneRef: "),
        ({"resources": {"requests": {"cpu": "2 cores"}}}, "spec.resources.requests.cpu: "),
    ],
    ids=str,
)
def test_a_wrong_field_is_rejected(change: dict[str, Any], expected: str) -> None:
    assert errors(VALID) == []
    [error] = errors({**VALID, "spec": {**VALID["spec"], **change}})
    assert error.startswith(expected)


@pytest.mark.parametrize("change", [{"apiVersion": "coder.com/v1"}, {"metadata": None}, {"specs": {}}], ids=str)
def test_a_wrong_object_is_rejected(change: dict[str, Any]) -> None:
    assert len(errors({**VALID, **change})) == 1


def test_maps_and_free_form_objects_accept_any_key() -> None:
    assert errors({**VALID, "metadata": {"name": "gpu", "labels": {"any": "label"}}}) == []
    assert errors({**VALID, "spec": {**VALID["spec"], "tags": {"any": "tag"}, "nodeSelector": {"any": "label"}}}) == []


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind.name)
def test_a_schema_has_no_keywords_of_kubernetes(resource: Any) -> None:
    assert "x-kubernetes-" not in json.dumps(schema(definition(resource, load())))


def test_the_path_is_the_one_that_kubeconform_expects() -> None:
    """`{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json`, with the kind in lower case."""
    assert path(definition(RESOURCES[0], load())) == "coder.com/codercontrolplane_v1alpha1.json"
