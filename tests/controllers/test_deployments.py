"""The fields of a Deployment that reconciles read often."""

from typing import Any

import msgspec

from coder_k8s.controllers.deployments import image_in, typed
from coder_k8s.kube.objects import Unstructured

METADATA = {"name": "demo", "namespace": "coder"}


def live(containers: list[dict[str, Any]], **fields: Any) -> Unstructured:
    spec = {"template": {"spec": {"containers": containers, "terminationGracePeriodSeconds": 60}}, **fields}
    return Unstructured.decode(msgspec.json.encode({"metadata": METADATA, "spec": spec}))


def test_fields_that_are_missing_have_the_defaults_of_kubernetes() -> None:
    found = typed(live([{"name": "coder"}]))
    assert (found.spec.replicas, found.status.replicas, found.status.conditions) == (1, 0, [])
    assert found.image("coder") == ""


def test_the_image_is_that_of_the_named_container() -> None:
    inserted, own = {"name": "sidecar", "image": "sidecar:v1"}, {"name": "coder", "image": "coder:v2"}
    found = live([inserted, own], replicas=0)
    assert (image_in(found, "coder"), image_in(found, "other"), typed(found).spec.replicas) == ("coder:v2", "", 0)
