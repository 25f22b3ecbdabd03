"""Which Roles belong to an object, which namespaces get one, and what the condition reports."""

from typing import Any

import msgspec
import pytest

from coder_k8s.api import CoderProvisioner, reasons
from coder_k8s.controllers.provisioner.rbac import ROLES
from coder_k8s.controllers.workspace_roles import ANYONE, OPT_IN, OWNER_UID, Decision, Denial
from coder_k8s.kube.kinds import NAMESPACE_METADATA, ROLE
from coder_k8s.kube.objects import Key, Manifest, PartialObject, Unstructured

OWN = {"coder.com/provisioner": "build", "coder.com/provisioner-namespace": "coder"}
LISTED = Denial(reasons.NAME_TAKEN, "Taken")


def provisioner(**spec: Any) -> CoderProvisioner:
    metadata = {"namespace": "coder", "name": "build", "uid": "1"}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"controlPlaneRef": {"name": "demo"}, **spec}}, CoderProvisioner
    )


def role(**metadata: Any) -> Unstructured:
    return ROLE.type.decode(msgspec.json.encode({"metadata": {"namespace": "coder", "name": "role", **metadata}}))


def controller(kind: str = "CoderProvisioner", name: str = "build", uid: str = "1") -> list[Manifest]:
    return [{"apiVersion": "coder.com/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": True}]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"ownerReferences": controller()}, True),
        ({"ownerReferences": controller(uid="2")}, True),
        ({"ownerReferences": controller(name="other", uid="2"), "labels": OWN, "annotations": {OWNER_UID: "1"}}, False),
        ({"ownerReferences": controller("CoderControlPlane", uid="2"), "labels": OWN}, False),
        ({"labels": OWN}, True),
        ({"annotations": {OWNER_UID: "1"}}, True),
        ({"labels": {**OWN, "coder.com/provisioner-namespace": "other"}}, False),
        ({"labels": {"coder.com/provisioner": "build"}, "annotations": {OWNER_UID: "2"}}, False),
        ({"labels": {"coder.com/control-plane": "build", "coder.com/control-plane-namespace": "coder"}}, False),
        ({}, False),
    ],
)
def test_ownership(metadata: Manifest, expected: bool) -> None:
    assert ROLES.owns(provisioner(), role(**metadata)) is expected


def namespace(label: str | None = None, *, deleting: bool = False) -> PartialObject:
    metadata: Manifest = {"name": "team", "labels": {} if label is None else {OPT_IN: label}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    return NAMESPACE_METADATA.type.decode(msgspec.json.encode({"metadata": metadata}))


@pytest.mark.parametrize(
    ("seen", "listed", "expected"),
    [
        (None, True, "NamespaceMissing"),
        (namespace(ANYONE, deleting=True), True, "NamespaceMissing"),
        (namespace("coder"), False, None),
        (namespace(ANYONE), False, None),
        (namespace("other"), False, "NamespaceNotAllowed"),
        (namespace("*"), False, "NamespaceNotAllowed"),
        (namespace(""), False, "NamespaceNotAllowed"),
        (namespace(), False, "NamespaceNotAllowed"),
        (namespace(), True, None),
    ],
)
def test_denials(seen: PartialObject | None, listed: bool, expected: str | None) -> None:
    found = ROLES.denial(provisioner(), "team", seen, listed=listed)
    assert (found.reason if found else None) == expected


@pytest.mark.parametrize(
    ("enabled", "denials", "expected"),
    [
        (
            True,
            [],
            Decision(True, reasons.APPLIED, "ServiceAccount build-provisioner may run workspaces in namespaces: a"),
        ),
        (False, [], Decision(False, reasons.DISABLED, "Disabled by workspacePermissions")),
        (True, [LISTED], Decision(False, reasons.NAME_TAKEN, "Taken")),
        (True, [LISTED, LISTED], Decision(False, reasons.NAME_TAKEN, "Taken (and 1 more)")),
    ],
)
def test_condition(enabled: bool, denials: list[Denial], expected: Decision) -> None:
    assert ROLES.decide(provisioner(workspacePermissions=enabled), ["a"], denials) == expected


def test_long_lists_are_shortened() -> None:
    message = ROLES.decide(provisioner(), [f"n{number}" for number in range(12)], []).message
    assert message.endswith("n8, n9 and 2 more")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (OWN, Key("coder", "build")),
        ({**OWN, "coder.com/provisioner": "b" * 62}, Key("coder", "b" * 62)),
        ({**OWN, "coder.com/provisioner": "b" * 63}, None),
        ({"coder.com/provisioner": "build"}, None),
        ({}, None),
    ],
)
def test_owner_of_a_role(labels: dict[str, str], expected: Key | None) -> None:
    """A name of 63 characters may be cut, so that it does not tell which object is missing."""
    assert ROLES.owner_of(role(labels=labels)) == expected
