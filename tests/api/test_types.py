"""How the operator decodes the API types."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY, CoderControlPlane
from coder_k8s.api.shared import seconds, wire_name
from coder_k8s.kube.objects import Kind, Manifest, Object
from coder_k8s.manifests.crd import Generator
from coder_k8s.manifests.embedded import load

from .admission import KINDS, minimal

RECORDED: list[Manifest] = json.loads(Path(__file__).with_name("recorded.json").read_text())


def decode(manifest: Manifest) -> Any:
    return KINDS[manifest["kind"]].type.decode(json.dumps(manifest).encode())


def whole(struct: Any) -> Any:
    """A struct as JSON with its defaults and wire names."""
    if isinstance(struct, msgspec.Struct):
        fields = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
        return {wire: whole(getattr(struct, name)) for wire, name in fields}
    return struct


def schema_defaults(schema: Manifest) -> Manifest:
    """The defaults that the API server sets in an empty object."""
    filled = {}
    for name, inner in schema["properties"].items():
        if inner.get("default") == {}:
            filled[name] = schema_defaults(inner)
        elif "default" in inner:
            filled[name] = inner["default"]
    return filled


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_defaults_are_those_of_the_schema(kind: Kind[Object]) -> None:
    """An object that was stored before a default existed gets the default when it is decoded."""
    schema = Generator(load()).root(kind.type)["properties"]["spec"]
    spec = whole(decode(minimal(kind)).spec)
    defaults = schema_defaults(schema)
    assert defaults
    assert_contains(spec, defaults)
    assert_unset(spec, defaults, except_for={"controlPlaneRef", "source"})


def assert_contains(whole: Manifest, part: Manifest) -> None:
    for name, value in part.items():
        if isinstance(value, dict):
            assert_contains(whole[name], value)
        else:
            assert (name, whole[name]) == (name, value)


def assert_unset(whole: Manifest, defaults: Manifest, except_for: set[str]) -> None:
    """Assert that all fields without a default in the schema are empty."""
    for name, value in whole.items():
        if isinstance(value, dict) and name in defaults:
            assert_unset(value, defaults[name], set())
        elif name not in defaults and name not in except_for:
            assert not value, name


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda item: item["metadata"]["name"])
def test_recorded_objects_keep_what_is_known(recorded: Manifest) -> None:
    once = decode(recorded)
    encoded = msgspec.json.encode(once)
    assert type(once).decode(encoded) == once
    assert_subset(json.loads(encoded), recorded)
    assert_subset(recorded["status"], whole_json(once.status))
    assert_subset(recorded["spec"], whole_json(once.spec))


def whole_json(struct: Any) -> Any:
    return json.loads(msgspec.json.encode(whole(struct), enc_hook=whole))


def assert_subset(part: Any, whole: Any) -> None:
    if isinstance(part, dict):
        for name, value in part.items():
            assert name in whole, name
            assert_subset(value, whole[name])
    elif isinstance(part, list):
        assert len(part) == len(whole)
        for one, other in zip(part, whole, strict=True):
            assert_subset(one, other)
    else:
        assert part == whole


def test_unknown_fields_and_broken_limits_do_not_stop_decoding() -> None:
    """A newer operator may know more, and an older one may have allowed more."""
    spec = {"replicas": -1, "service": {"type": "ExternalName", "port": 0}, "fromTheFuture": {"a": 1}}
    plane = decode({**minimal(CONTROL_PLANE), "spec": spec, "status": {"phase": "Unheard", "alsoNew": True}})
    assert (plane.spec.replicas, plane.spec.service.type, plane.status.phase) == (-1, "ExternalName", "Unheard")


@pytest.mark.parametrize(
    ("kind", "part", "names"),
    [
        (CONTROL_PLANE, "spec", {"envUseClusterAccessURL", "licenseSecretRef", "rbac", "tls", "podSecurityContext"}),
        (CONTROL_PLANE, "status", {"url", "operatorTokenSecretRef", "licenseLastAppliedHash", "configChecksum"}),
        (PROVISIONER, "spec", {"terminationGracePeriodSeconds", "organizationName", "workspacePermissions"}),
        (PROVISIONER, "status", {"organizationID", "provisionerKeyID", "controlPlaneURL", "tagsHash", "retiringKeys"}),
        (WORKSPACE_PROXY, "spec", {"primaryAccessURL", "proxySessionTokenSecretRef", "derpOnly", "controlPlaneRef"}),
        (WORKSPACE_PROXY, "status", {"proxyID", "proxyTokenSecretRef", "registered"}),
    ],
)
def test_wire_names(kind: Kind[Object], part: str, names: set[str]) -> None:
    assert names <= set(getattr(decode(minimal(kind)), part).__struct_encode_fields__)


@pytest.mark.parametrize(
    ("name", "wire"), [("url", "url"), ("coder_url", "coderURL"), ("proxy_id", "proxyID"), ("identity", "identity")]
)
def test_acronyms(name: str, wire: str) -> None:
    assert wire_name(name) == wire


def test_times_are_read_and_written_as_kubernetes_does() -> None:
    status = {"licenseLastApplied": "2026-01-02T03:04:05Z"}
    plane = decode({**minimal(CONTROL_PLANE), "status": status})
    assert isinstance(plane, CoderControlPlane)
    assert plane.status.license_last_applied == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert json.loads(msgspec.json.encode(plane.status)) == status


@pytest.mark.parametrize(
    ("duration", "length"), [("720h", 2_592_000), ("1h30m", 5400), ("1.5s", 1.5), ("2m0.5s", 120.5), ("250ms", 0.25)]
)
def test_length_of_a_duration(duration: str, length: float) -> None:
    assert seconds(duration) == pytest.approx(length)


def test_conditions_share_their_values() -> None:
    """Most objects have the same conditions, and most conditions of an object have the same time."""
    common = {"status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "message": "Waiting for a ready pod"}
    conditions = [{**common, "type": kind, "reason": "Some"} for kind in ("Ready", "Healthy")]
    manifest = {**minimal(CONTROL_PLANE), "status": {"conditions": conditions}}
    one, other = (decode(manifest).status.conditions for _ in range(2))
    assert one == other
    assert one[0].type is other[0].type
    assert one[0].reason is other[1].reason
    assert one[0].message is other[1].message
    assert one[0].last_transition_time is one[1].last_transition_time
