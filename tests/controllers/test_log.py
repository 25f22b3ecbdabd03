"""The log at `info` shows every action and every change of a condition, and nothing in steady state."""

import re

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.labels import PAUSED
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.controlplanes import database
from tests.support.log_lines import log_lines

from .combined import KINDS, CombinedNamespace, all_three

__all__ = ["all_three", "database"]

OBJECTS = {"codercontrolplane": "demo", "coderprovisioner": "build", "coderworkspaceproxy": "sydney"}
COMMON = {"ts", "level", "logger", "msg", "controller", "namespace", "object", "duration", "reason"}

LIFECYCLE = {
    "codercontrolplane": [
        ("Created", "Created Deployment NS/demo"),
        ("Created", "Created Service NS/demo"),
        ("Created", "Created Secret NS/demo-operator-token"),
        ("OperatorTokenIssued", "Stored operator token in Secret demo-operator-token"),
        ("AllReady", "Ready is True"),
        ("Changed", "Changed Deployment NS/demo"),
        ("Paused", "Ready is Unknown"),
        ("OperatorTokenRevoked", ""),
        ("FinalizerRemoved", "Removed finalizer coder.com/control-plane-cleanup"),
    ],
    "coderprovisioner": [
        ("FinalizerAdded", "Added finalizer coder.com/"),
        ("Created", "Created Secret NS/build-provisioner-key"),
        ("ProvisionerKeyCreated", ""),
        ("Created", "Created Deployment NS/provisioner-build"),
        ("AllReady", "Ready is True"),
        ("Changed", "Changed Deployment NS/provisioner-build"),
        ("ProvisionerKeyRetired", ""),
        ("FinalizerRemoved", "Removed finalizer coder.com/"),
    ],
    "coderworkspaceproxy": [
        ("FinalizerAdded", "Added finalizer coder.com/"),
        ("WorkspaceProxyRegistered", ""),
        ("Created", "Created Deployment NS/wsproxy-sydney"),
        ("AllReady", "Ready is True"),
        ("Changed", "Changed Deployment NS/wsproxy-sydney"),
        ("WorkspaceProxyDeregistered", ""),
        ("FinalizerRemoved", "Removed finalizer coder.com/"),
    ],
}
"""Reasons with the beginning of their messages, in this order."""
CONDITIONS = {
    "codercontrolplane": "OperatorAccessReady is True",
    "coderprovisioner": "ProvisionerKeyReady is True",
    "coderworkspaceproxy": "Registered is True",
}


async def test_lifecycle_of_each_kind(all_three: CombinedNamespace) -> None:
    with log_lines() as lines:
        async with all_three.operator() as operator:
            await all_three.apply()
            await all_three.become_ready(operator)
            changed = {"spec": {"extraEnv": [{"name": "CODER_VERBOSE", "value": "true"}]}}
            for kind, name in KINDS:
                await all_three.client.merge(kind, Key(all_three.namespace, name), changed)
            await operator.wait_idle()
            await all_three.set_annotations(CONTROL_PLANE, "demo", {PAUSED: "true"})
            await operator.wait_idle()
            await all_three.set_annotations(CONTROL_PLANE, "demo", {PAUSED: None})
            await operator.wait_idle()
            await all_three.delete_all()
            await all_three.all_gone()
    for controller, expected in LIFECYCLE.items():
        found = [line for line in lines if line.get("controller") == controller and "reason" in line]
        assert all(set(line) >= COMMON for line in found)
        assert all(re.fullmatch(r"\d+\.\d{3}s", line["duration"]) for line in found)
        assert {line["object"] for line in found} == {OBJECTS[controller]}
        assert any(line["msg"].startswith(CONDITIONS[controller]) for line in found)
        rest = iter((line["reason"], line["msg"].replace(all_three.namespace, "NS")) for line in found)
        for reason, message in expected:
            assert any(seen == reason and text.startswith(message) for seen, text in rest), (
                controller,
                reason,
                message,
            )


async def test_steady_state_logs_nothing(all_three: CombinedNamespace) -> None:
    async with all_three.operator() as operator:
        await all_three.apply()
        await all_three.become_ready(operator)
        await operator.wait_idle()
        with log_lines() as lines:
            before = operator.reconciles()
            await all_three.later(minutes=3)
            await eventually(lambda: operator.reconciles() >= before + len(OBJECTS))
            await operator.wait_idle()
    assert lines == []
