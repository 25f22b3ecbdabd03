"""The tree of objects, and how it is rendered."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, WORKSPACE_PROXY
from coder_k8s.console import render
from coder_k8s.console.objects import Found, Pod, Target, parse_target
from coder_k8s.console.session import CommandFailed
from coder_k8s.console.tree import Node, Tree, build
from coder_k8s.kube.objects import Manifest
from tests.console.manifests import READY, RUNNING, labels, plane, pod, provisioner, proxy, selector, with_conditions

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OF_PLANE = labels("coder-control-plane", "prod")
OF_GPU = labels("coder-provisioner", "gpu")


def found(*manifests: Manifest, pods: list[Manifest] | None = None) -> Found:
    objects = [
        (resource.kind, msgspec.convert(each, resource.kind.type, strict=False))
        for resource in RESOURCES
        for each in manifests
        if each["kind"] == resource.kind.name
    ]
    return Found(
        objects,
        None if pods is None else [msgspec.convert(each, Pod, strict=False) for each in pods],
    )


def names(tree: Tree) -> list[Any]:
    """Return the names in the tree."""
    return [(node.name, [child.name for child in node.children]) if node.children else node.name for node in tree.items]


def text(tree: Tree) -> list[str]:
    return render.as_text(tree, render.plain, NOW).splitlines()


def the_node(*manifests: Manifest, pods: list[Manifest] | None = None) -> Node:
    (node,) = build(found(*manifests, pods=pods or [])).items
    return node


FAMILY = (
    plane("prod", with_conditions(READY)),
    plane("test"),
    provisioner("gpu", "prod"),
    provisioner("lost", "gone"),
    proxy("eu", {"controlPlaneRef": {"name": "prod"}}),
    proxy("far", {"bootstrap": {"coderURL": "https://far.example", "credentialsSecretRef": {"name": "token"}}}),
    provisioner("prod", "test"),
    provisioner("gpu", "prod", namespace="other"),
)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (
            None,
            [("gone", ["lost"]), ("prod", ["gpu", "eu"]), ("test", ["prod"]), "far", ("prod", ["gpu"])],
        ),
        ("gpu", [("prod", ["gpu"]), ("prod", ["gpu"])]),
        ("prod", [("prod", ["gpu", "eu"]), ("test", ["prod"])]),
        ("ccp/prod", [("prod", ["gpu", "eu"])]),
        ("cprov/prod", [("test", ["prod"])]),
        ("lost", [("gone", ["lost"])]),
        ("far", ["far"]),
        ("test", [("test", ["prod"])]),
        ("nobody", []),
    ],
)
def test_selection(target: str | None, shown: list[Any]) -> None:
    assert names(build(found(*FAMILY), parse_target(target) if target else None)) == shown


def test_a_control_plane_that_does_not_exist() -> None:
    node = the_node(provisioner("lost", "gone"))
    assert (node.kind, node.name, node.exists, node.ready) == ("CoderControlPlane", "gone", False, "False")
    assert text(build(found(provisioner("lost", "gone"), pods=[])))[1:3] == [
        "└─ control plane gone  missing",
        "   │   NotFound: Does not exist, but is referenced by the objects below",
    ]


@pytest.mark.parametrize(
    ("manifest", "readiness", "state"),
    [
        (plane("prod", with_conditions(READY)), ("True", "AllReady"), "Ready"),
        (plane("prod"), ("Unknown", "NoStatus"), "not ready"),
        (plane("prod", with_conditions(READY), generation=2), ("Unknown", "NotObserved"), "not ready"),
        (
            plane("prod", with_conditions(("Ready", "False", "NoReplicasReady", ""))),
            ("False", "NoReplicasReady"),
            "not ready",
        ),
        (
            plane("prod", with_conditions(("Ready", "False", "Invalid", ""), ("Stalled", "True", "Invalid", ""))),
            ("False", "Invalid"),
            "stalled",
        ),
        (
            plane("prod", with_conditions(READY), annotations={"coder.com/paused": "true"}),
            ("Unknown", "Paused"),
            "paused",
        ),
        (
            plane("prod", with_conditions(READY), annotations={"coder.com/paused": "no"}),
            ("True", "AllReady"),
            "Ready",
        ),
        (
            plane("prod", with_conditions(READY), deletionTimestamp="2026-01-01T00:00:00Z"),
            ("False", "Deleting"),
            "deleting",
        ),
        (
            plane(
                "prod",
                with_conditions(READY),
                deletionTimestamp="2026-01-01T00:00:00Z",
                annotations={"coder.com/paused": "true"},
            ),
            ("False", "DeletionPaused"),
            "deletion paused",
        ),
    ],
)
def test_readiness(manifest: Manifest, readiness: tuple[str, str], state: str) -> None:
    node = the_node(manifest)
    assert (node.ready, node.reason) == readiness
    assert f"prod  {state}" in text(build(found(manifest, pods=[])))[1]


@pytest.mark.parametrize(
    ("condition", "health", "shown"),
    [
        (("Healthy", "True", "AllChecksPassed", ""), {"severity": "ok"}, ["health ok"]),
        (
            ("Healthy", "True", "DatabaseSlow", ""),
            {"severity": "warning", "codes": ["EDB02"]},
            ["health warning (EDB02)"],
        ),
        (
            ("Healthy", "False", "WebsocketBlocked", "EWS01: x"),
            {"severity": "error", "codes": ["EWS01", "EDB02"]},
            ["health error (EWS01, EDB02)", "Healthy: WebsocketBlocked: EWS01: x"],
        ),
        (("Healthy", "Unknown", "TimedOut", "x"), {"severity": "error", "codes": ["EWS01"]}, ["health unknown"]),
        (("Healthy", "Unknown", "Pending", "x"), None, ["health unknown"]),
    ],
)
def test_health(condition: tuple[str, str, str, str], health: dict[str, Any] | None, shown: list[str]) -> None:
    status = with_conditions(READY, condition, **({"health": health} if health else {}))
    _, first, *more = text(build(found(plane("prod", status), pods=[])))
    assert first.endswith(shown[0])
    assert [line.strip() for line in more] == shown[1:]


def test_every_unsatisfied_condition_is_shown() -> None:
    status = with_conditions(
        ("Ready", "False", "DatabaseUnreachable", "no route"),
        ("Reconciling", "True", "DatabaseUnreachable", "no route"),
        ("Stalled", "False", "Progressing", ""),
        ("Available", "True", "MinimumReplicasReady", ""),
        ("OperatorAccessReady", "False", "DatabaseUnreachable", "no route"),
        ("EntitlementsKnown", "False", "Pending", "waiting for operator access"),
        ("LicenseApplied", "Unknown", "NotConfigured", ""),
        version="v2.30.0",
        licenseTier="premium",
        readyReplicas=1,
    )
    assert text(build(found(plane("prod", status, {"replicas": 2}), pods=[]))) == [
        "namespace coder",
        "└─ control plane prod  not ready  1/2 pods, v2.30.0, license premium",
        "       DatabaseUnreachable: no route",
        "       EntitlementsKnown: Pending: waiting for operator access",
    ]
    node = the_node(plane("prod", status))
    assert [each.type for each in node.conditions] == ["OperatorAccessReady", "EntitlementsKnown"]


def test_no_conditions_are_shown_for_a_ready_object() -> None:
    status = with_conditions(READY, ("WorkspaceRBACReady", "False", "NamespaceMissing", "no such namespace"))
    assert the_node(plane("prod", status)).conditions == []


WAITING = {
    "phase": "Pending",
    "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
    "containerStatuses": [
        {
            "name": "coder",
            "restartCount": 3,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
        }
    ],
}
CRASHED = {
    "phase": "Running",
    "containerStatuses": [{"name": "coder", "state": {"terminated": {"reason": "Error", "exitCode": 2}}}],
}
UNSCHEDULED = {
    "phase": "Pending",
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has a GPU"},
    ],
}


@pytest.mark.parametrize(
    ("status", "drawn"),
    [
        (RUNNING, ["daemon gpu-a  ready"]),
        (WAITING, ["daemon gpu-a  not ready  Pending  3 restarts", "ImagePullBackOff: no such image"]),
        (CRASHED, ["daemon gpu-a  not ready", "Error: exit code 2"]),
        (UNSCHEDULED, ["daemon gpu-a  not ready  Pending", "Unschedulable: no node has a GPU"]),
        ({"phase": "Pending"}, ["daemon gpu-a  not ready  Pending"]),
    ],
)
def test_why_a_pod_is_not_ready(status: Manifest, drawn: list[str]) -> None:
    objects = [plane("prod"), provisioner("gpu", "prod", with_conditions(READY, selector=selector(OF_GPU)))]
    lines = text(build(found(*objects, pods=[pod("gpu-a", status, OF_GPU)])))
    assert [line.lstrip("│└─ ") for line in lines[4:]] == drawn


def test_pods_belong_to_the_object_that_selects_them() -> None:
    objects = [
        plane("prod", with_conditions(READY, selector=selector(OF_PLANE))),
        provisioner("gpu", "prod", with_conditions(READY, selector=selector(OF_GPU))),
        provisioner("new", "prod"),
    ]
    pods = [
        pod("prod-a", RUNNING, OF_PLANE),
        pod("gpu-a", RUNNING, OF_GPU),
        pod("gpu-b", RUNNING, OF_GPU, namespace="other"),
        pod("stray", RUNNING, {}),
    ]
    node = the_node(*objects, pods=pods)
    assert [each.name for each in node.pods] == ["prod-a"]
    assert [[each.name for each in child.pods] for child in node.children] == [["gpu-a"], []]


def test_a_complete_tree() -> None:
    daemons = {"connected": 1, "busy": 1, "offline": 2, "versions": ["v2.30.0"]}
    waiting = ("Ready", "False", "Connecting", "coderd sees 1 of 2 daemons")
    rotating = with_conditions(
        waiting,
        ("DaemonsConnected", "True", "Connecting", "coderd sees 1 of 2 daemons"),
        selector=selector(OF_GPU),
        daemons=daemons,
        provisionerKeyName="gpu-2",
        retiringKeys=[{"name": "gpu"}],
        readyReplicas=2,
    )
    registered = with_conditions(READY, registered=True, coderURL="http://prod.coder.svc:80", readyReplicas=1)
    tree = build(
        found(
            plane(
                "prod",
                with_conditions(READY, url="http://prod.coder.svc:80", selector=selector(OF_PLANE), readyReplicas=1),
            ),
            provisioner("gpu", "prod", rotating, {"replicas": 2}),
            proxy("eu", {"controlPlaneRef": {"name": "prod"}}, registered),
            plane("test", namespace="zone"),
            pods=[pod("prod-a", RUNNING, OF_PLANE), pod("gpu-a", RUNNING, OF_GPU)],
        )
    )
    assert text(tree) == [
        "namespace coder",
        "└─ control plane prod  Ready  1/1 pods, http://prod.coder.svc:80",
        "   ├─ pod prod-a  ready",
        "   ├─ provisioner gpu  not ready  2/2 pods, 1 connected, 1 busy, 2 offline, key gpu-2, retiring gpu",
        "   │  │   Connecting: coderd sees 1 of 2 daemons",
        "   │  └─ daemon gpu-a  ready",
        "   └─ proxy eu  Ready  1/1 pods, registered, of http://prod.coder.svc:80",
        "namespace zone",
        "└─ control plane test  not ready  0/1 pods",
        "       NoStatus: Not reconciled yet. Is the operator running?",
    ]
    assert not tree.ready
    assert build(found(plane("prod", with_conditions(READY)))).ready


def test_pods_cannot_be_listed() -> None:
    tree = build(found(plane("prod", with_conditions(READY))))
    assert text(tree)[-1] == "Pods are not shown: you do not have permission to list them."
    assert msgspec.json.decode(render.as_json(tree))["podsListed"] is False


def test_control_characters_are_removed() -> None:
    lines = text(
        build(found(plane("prod", with_conditions(("Ready", "False", "Bad", "\x1b[2Jgone\nnext\x07"))), pods=[]))
    )
    assert lines[2:] == ["       Bad:  [2Jgone next "]


def test_colors() -> None:
    def paint(text: str, color: str) -> str:
        return f"<{color}>{text}</>"

    stalled = with_conditions(("Ready", "False", "Invalid", ""), ("Stalled", "True", "Invalid", ""))
    tree = build(found(plane("good", with_conditions(READY)), plane("slow"), plane("bad", stalled), pods=[]))
    drawn = render.as_text(tree, paint, NOW)
    assert "<green>Ready</>" in drawn
    assert "<yellow>not ready</>" in drawn
    assert "<red>stalled</>" in drawn


NODE = {
    "kind",
    "namespace",
    "name",
    "exists",
    "ready",
    "reason",
    "message",
    "stalled",
    "paused",
    "deleting",
    "phase",
    "replicas",
    "readyReplicas",
    "details",
    "conditions",
    "pods",
    "children",
}


def test_json_and_yaml_have_every_field() -> None:
    tree = build(found(*FAMILY, pods=[]))
    content = msgspec.json.decode(render.as_json(tree))
    assert yaml.safe_load(render.as_yaml(tree)) == content
    assert set(content) == {"version", "podsListed", "operator", "items"}
    nodes = [*content["items"], *(child for node in content["items"] for child in node["children"])]
    assert all(set(node) == NODE for node in nodes)
    details = {node["kind"]: set(node["details"]) for node in nodes if node["exists"]}
    assert details == {
        "CoderControlPlane": {"version", "url", "licenseTier", "health", "unservedJobs", "update"},
        "CoderProvisioner": {"organizationName", "provisionerKeyName", "retiringKeys", "daemons", "autoscaling"},
        "CoderWorkspaceProxy": {"registered", "proxyName", "coderURL"},
    }


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("gpu", Target(None, "gpu")),
        ("cprov/gpu", Target(PROVISIONER, "gpu")),
        ("CoderProvisioner/gpu", Target(PROVISIONER, "gpu")),
        ("coderprovisioners.coder.com/gpu", Target(PROVISIONER, "gpu")),
        ("proxy/eu", Target(WORKSPACE_PROXY, "eu")),
        ("ccp/prod", Target(CONTROL_PLANE, "prod")),
    ],
)
def test_parse_target(word: str, target: Target) -> None:
    assert parse_target(word) == target


def test_an_unknown_kind() -> None:
    with pytest.raises(CommandFailed, match="unknown kind 'pod': use one of ccp, cprov, cwp"):
        parse_target("pod/x")


def test_problems_of_coder_that_do_not_affect_ready() -> None:
    """They are shown although the object is Ready; what is not known is not a problem."""
    node = the_node(
        plane(
            "prod",
            with_conditions(
                READY,
                ("Healthy", "False", "WebsocketBlocked", "EWS01"),
                ("JobsServed", "False", "NoMatchingProvisioner", "3 jobs need env=gpu"),
                ("SchedulesServed", "Unknown", "Pending", "Waiting"),
                ("LicenseApplied", "False", "Error", ""),
                health={"severity": "error"},
                unservedJobs=[{"organizationName": "coder", "count": 2}, {"organizationName": "b", "count": 1}],
            ),
        )
    )
    assert [each.type for each in node.conditions] == ["Healthy", "JobsServed"]
    (_, line, *notes) = text(Tree(items=[node]))
    assert "Ready" in line
    assert "health error, 3 jobs without a provisioner" in line
    assert [note.strip() for note in notes] == [
        "Healthy: WebsocketBlocked: EWS01",
        "JobsServed: NoMatchingProvisioner: 3 jobs need env=gpu",
    ]
