"""What tools that know nothing of Coder make of an object: kstatus (Flux, Argo CD, kpt) and `kubectl wait`.

The rules of kstatus for a kind that it has no rules of its own for, in this order: an object that is being deleted is
Terminating; one whose status is about an older generation is InProgress; `Reconciling` is InProgress and `Stalled` is
Failed; `Ready` True is Current and anything else is InProgress; and what says nothing at all is Current, which is why
the first status must not come without `Ready`.
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
    """Whether `kubectl wait --for=condition=Ready` goes on: a condition of an older generation counts for nothing."""
    generation = of["metadata"]["generation"]
    return not any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and condition.get("observedGeneration", generation) >= generation
        for condition in of.get("status", {}).get("conditions", [])
    )


def condition(of: dict[str, Any], name: str) -> dict[str, Any]:
    """A condition of an object; empty when it has none of this type."""
    found = (entry for entry in of.get("status", {}).get("conditions", []) if entry["type"] == name)
    return next(found, {})
