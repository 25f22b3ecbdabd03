"""Computes the status of an object as generic tools do: kstatus (Flux, Argo CD, kpt) and `kubectl wait`.

The rules of kstatus for custom resources, in order: an object that is being deleted is Terminating; an object whose
status has an older observedGeneration is InProgress; `Reconciling` is InProgress; `Stalled` is Failed; `Ready` is
Current if True and InProgress otherwise; an object without conditions is Current. For this reason the first status must
contain `Ready`.
"""

from typing import Any, Literal

Verdict = Literal["Current", "InProgress", "Failed", "Terminating"]


def kstatus(of: dict[str, Any]) -> Verdict:
    metadata, status = of["metadata"], of.get("status", {})
    if "deletionTimestamp" in metadata:
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready", "True") == "True" else "InProgress"


def kubectl_waits(of: dict[str, Any]) -> bool:
    """Whether `kubectl wait --for=condition=Ready` keeps waiting. It ignores conditions of older generations."""
    generation = of["metadata"]["generation"]
    return not any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and condition.get("observedGeneration", generation) >= generation
        for condition in of.get("status", {}).get("conditions", [])
    )


def condition(of: dict[str, Any], name: str) -> dict[str, Any]:
    """A condition of an object; empty if it has none of this type."""
    found = (entry for entry in of.get("status", {}).get("conditions", []) if entry["type"] == name)
    return next(found, {})
