"""The API reference pages."""

import re
from pathlib import Path

import pytest
import yaml

from coder_k8s.api import RESOURCES
from coder_k8s.api.controlplane import CONTROL_PLANE_RESOURCE
from coder_k8s.api.markers import Resource
from coder_k8s.api.provisioner import PROVISIONER_RESOURCE
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.manifests.model import fields, structs
from coder_k8s.manifests.reference import EXAMPLES, page
from tests.api.admission import submit


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_api_server_accepts_the_example(cluster: ClusterAccess, path: Path) -> None:
    example = yaml.safe_load(path.read_text())
    example["metadata"]["namespace"] = "default"
    status, response = submit(cluster, "default", example, keep=False)
    assert status == 201, response


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.short_name)
def test_every_field_and_condition_is_on_the_page(resource: Resource) -> None:
    text = page(resource)
    for struct in structs(resource.kind.type):
        for field in fields(struct):
            assert field.name in ("spec", "status") or f"| `{field.name}` |" in text
            assert field.description
    for condition in ("Ready", "Stalled", *resource.conditions):
        assert f"### {condition}\n\n" in text


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.short_name)
def test_every_link_of_the_page_has_a_target(resource: Resource) -> None:
    text = page(resource)
    headings = {re.sub(r"[^a-z0-9]", "", heading.lower()) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    links = set(re.findall(r"\(#([^)]*)\)", text))
    assert links
    assert links <= headings


@pytest.mark.parametrize(
    ("resource", "row"),
    [
        (CONTROL_PLANE_RESOURCE, "| `port` | integer | `80` | 1 to 65535 | Port of the Service. |"),
        (CONTROL_PLANE_RESOURCE, "| `disabled` | boolean | `false` |"),
        (CONTROL_PLANE_RESOURCE, "| `type` | string | `ClusterIP` | `ClusterIP`, `NodePort`, `LoadBalancer` |"),
        (CONTROL_PLANE_RESOURCE, "#policyrule-v1-rbac-authorization-k8s-io)"),
        (PROVISIONER_RESOURCE, "| `controlPlaneRef` | [object](#speccontrolplaneref) | **required** |"),
        (PROVISIONER_RESOURCE, "- [`EntitlementsQueryFailed`](conditions.md#entitlementsqueryfailed): "),
    ],
)
def test_row_shows_type_default_and_allowed_values(resource: Resource, row: str) -> None:
    assert row in page(resource)
