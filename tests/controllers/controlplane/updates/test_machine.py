"""Every step of an update, and every way out of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from coder_k8s.api.updates import Step, UpdateStatus
from coder_k8s.controllers.controlplane.updates.machine import next_update
from coder_k8s.controllers.controlplane.updates.observations import Backup, Schema, Seen, Verdict, Verification
from coder_k8s.controllers.controlplane.updates.outcomes import Words, judge

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD, NEW, THIRD = "coder:v1", "coder:v2", "coder:v3"
SEEN = Seen(
    NOW, NEW, replicas=2, inputs="i", running=OLD, version="v2.30.0", live_image=OLD, live_replicas=2, has_pods=True
)
"""Pods of the old image run, and the spec has the new one."""


def update(step: Step, **more: Any) -> UpdateStatus:
    base = UpdateStatus(
        image=NEW, step=step, from_image=OLD, from_="v2.30.0", started_at=NOW, step_started_at=NOW, inputs="i"
    )
    return replace(base, **more)


def after(**span: float) -> datetime:
    return NOW + timedelta(**span)


def verdict(schema: Schema, version: str = "v2.36.1", **more: Any) -> dict[str, Any]:
    return {"verdict": Verdict(version, schema), **more}


def verified(**fields: Any) -> dict[str, Any]:
    return {"ready": True, "live_image": NEW, "live_replicas": 1, "verification": Verification("v2.36.1", **fields)}


MIGRATING = {"live_image": NEW, "live_replicas": 1}
INVALID: dict[str, Any] = {"invalid": "x", "inputs": "other"}
STOPPED: dict[str, Any] = {"live_replicas": 0, "has_pods": False, "stopped": True}

DUE = {
    "another image": ({}, True),
    "no Deployment": ({"live_image": "", "live_replicas": 0, "running": "", "has_pods": False}, False),
    "Deployment deleted": ({"live_image": "", "live_replicas": 0}, True),
    "Deployment deleted, same image": ({"image": OLD, "live_image": "", "live_replicas": 0}, False),
    "Rolling": ({"strategy": "Rolling"}, False),
    "no replicas": ({"replicas": 0}, False),
    "never had a pod": ({"running": "", "has_pods": False}, False),
    "pods, but no complete rollout yet": ({"running": ""}, True),
    "rolled out, but no pod now": ({"has_pods": False}, True),
    "the same image": ({"image": OLD}, False),
    "latest": ({"image": "coder:latest", "running": "coder:latest", "live_image": "coder:latest"}, False),
    "from latest": ({"running": "coder:latest", "live_image": "coder:latest"}, True),
    "rolls already": ({"live_image": NEW}, False),
    "image changed at zero replicas": ({"live_image": NEW, "live_replicas": 0, "has_pods": False}, True),
    "scaled up from zero": ({"image": OLD, "live_replicas": 0, "has_pods": False}, False),
    "reverted in a rollout": ({"image": OLD, "live_image": NEW}, True),
}


@pytest.mark.parametrize(("changes", "due"), DUE.values(), ids=DUE)
@pytest.mark.parametrize("before", [None, Step.COMPLETE])
def test_begins(before: Step | None, changes: dict[str, Any], due: bool) -> None:
    known = update(before, image=OLD) if before else None
    seen = SEEN._replace(**changes)
    found = next_update(known, seen)
    if not due:
        assert found is known
        return
    assert found is not None
    assert (found.step, found.image) == (Step.PREFLIGHT, seen.image)
    assert found.from_image == (seen.live_image if seen.has_pods and seen.live_image else seen.running)
    assert (found.started_at, found.step_started_at, found.from_, found.inputs) == (NOW, NOW, "v2.30.0", "i")


TABLE: dict[str, tuple[Step, dict[str, Any], dict[str, Any], Step | None]] = {
    # step, fields of the update, what is observed, next step
    "preflight runs": (Step.PREFLIGHT, {}, {}, Step.PREFLIGHT),
    "preflight never ends": (Step.PREFLIGHT, {}, {"now": after(minutes=11)}, Step.REFUSED),
    "image cannot be pulled": (Step.PREFLIGHT, {}, {"now": after(minutes=11), "unpulled": "x"}, Step.REFUSED),
    "preflight fails": (Step.PREFLIGHT, {}, {"verdict": Verdict("v2.36.1", error="x")}, Step.REFUSED),
    "no version": (Step.PREFLIGHT, {}, {"verdict": Verdict()}, Step.REFUSED),
    "downgrade": (Step.PREFLIGHT, {}, verdict(Schema.NEWER), Step.REFUSED),
    "dirty database": (Step.PREFLIGHT, {}, verdict(Schema.OLDER, dirty=True), Step.REFUSED),
    "known bad": (Step.PREFLIGHT, {"from_": "v2.26.1"}, verdict(Schema.OLDER, "v2.27.8"), Step.REFUSED),
    "known good": (Step.PREFLIGHT, {"from_": "v2.26.6"}, verdict(Schema.OLDER, "v2.27.8"), Step.WINDOW),
    "same schema": (Step.PREFLIGHT, {}, verdict(Schema.SAME), Step.WINDOW),
    "older schema": (Step.PREFLIGHT, {}, verdict(Schema.OLDER), Step.WINDOW),
    "unknown schema": (Step.PREFLIGHT, {}, verdict(Schema.UNKNOWN), Step.WINDOW),
    "window closed": (Step.WINDOW, {"plan": "Rolling"}, {"window_open": False}, Step.WINDOW),
    "window open, same schema": (Step.WINDOW, {"plan": "Rolling"}, {}, Step.ROLLOUT),
    "window open, other schema": (Step.WINDOW, {"plan": "Recreate"}, {}, Step.BACKUP),
    "window opens late": (Step.WINDOW, {"plan": "Recreate"}, {"now": after(hours=2)}, Step.PREFLIGHT),
    "backup runs": (Step.BACKUP, {}, {}, Step.BACKUP),
    "backup fails": (Step.BACKUP, {}, {"backup": Backup(error="x")}, Step.BACKUP),
    "no backup required": (Step.BACKUP, {}, {"backup": Backup(waived=True)}, Step.DRAIN),
    "backup done": (Step.BACKUP, {}, {"backup": Backup("b")}, Step.DRAIN),
    "builds run": (Step.DRAIN, {}, {"drained": False}, Step.DRAIN),
    "no builds": (Step.DRAIN, {}, {}, Step.STOP),
    "builds run too long": (Step.DRAIN, {}, {"drained": False, "now": after(minutes=30)}, Step.STOP),
    "abort": (Step.DRAIN, {}, {"drained": False, "now": after(minutes=30), "abort": True}, Step.REFUSED),
    "window closed while drained": (Step.DRAIN, {}, {"window_open": False}, Step.WINDOW),
    "pods stop": (Step.STOP, {}, {}, Step.STOP),
    "pods stopped": (Step.STOP, {}, STOPPED, Step.MIGRATE),
    "stopped, reverted": (Step.STOP, {}, {"image": OLD, "live_replicas": 0}, None),
    "stopped, reverted, rejected": (Step.STOP, {}, {"image": OLD, "live_replicas": 0, **INVALID}, Step.ROLLED_BACK),
    "pods stop, rejected": (Step.STOP, {}, INVALID, Step.STOP),
    "stopped, third image": (Step.STOP, {}, {"image": THIRD}, Step.STOP),
    "stopped, no replicas": (Step.STOP, {}, {**STOPPED, "replicas": 0}, None),
    "stopped, Rolling": (Step.STOP, {}, {**STOPPED, "strategy": "Rolling"}, Step.MIGRATE),
    "rejected before it has the new image": (Step.MIGRATE, {}, {**STOPPED, **INVALID}, Step.ROLLED_BACK),
    "rejected while it migrates": (Step.MIGRATE, {}, {**MIGRATING, **INVALID}, Step.MIGRATE),
    "migrates": (Step.MIGRATE, {}, MIGRATING, Step.MIGRATE),
    "migrates long": (Step.MIGRATE, {}, {**MIGRATING, "now": after(hours=9)}, Step.MIGRATE),
    "migrates, third image": (Step.MIGRATE, {}, {**MIGRATING, "image": THIRD}, Step.MIGRATE),
    "migrates, reverted": (Step.MIGRATE, {}, {**MIGRATING, "image": OLD}, Step.MIGRATE),
    "migrates long, third": (
        Step.MIGRATE,
        {},
        {**MIGRATING, "now": after(hours=9), "image": THIRD},
        Step.PREFLIGHT,
    ),
    "crashes, schema unknown": (Step.MIGRATE, {}, {**MIGRATING, "crashing": "x"}, Step.MIGRATE),
    "crashes, third": (Step.MIGRATE, {}, {**MIGRATING, "crashing": "x", "image": THIRD}, Step.PREFLIGHT),
    "crashes, schema moved": (
        Step.MIGRATE,
        {"schema_before": 412},
        {**MIGRATING, "crashing": "x", "schema": 556},
        Step.MIGRATE,
    ),
    "crashes, same schema": (
        Step.MIGRATE,
        {"schema_before": 412},
        {**MIGRATING, "crashing": "x", "schema": 412},
        Step.ROLLBACK,
    ),
    "ready": (Step.MIGRATE, {}, {**MIGRATING, "ready": True}, Step.VERIFY),
    "scaled to zero": (Step.MIGRATE, {}, {**STOPPED, "live_image": NEW, "replicas": 0}, Step.MIGRATE),
    "no answer": (Step.VERIFY, {}, {**MIGRATING, "ready": True}, Step.VERIFY),
    "verified": (Step.VERIFY, {}, verified(), Step.SCALE_BACK),
    "other version": (Step.VERIFY, {}, verified(expected=False), Step.VERIFY),
    "no access": (Step.VERIFY, {}, verified(access=False), Step.VERIFY),
    "no access for long": (Step.VERIFY, {}, {**verified(access=False), "now": after(minutes=2)}, Step.SCALE_BACK),
    "not ready any more": (Step.VERIFY, {}, {**verified(), "ready": False}, Step.VERIFY),
    "starts": (Step.SCALE_BACK, {}, {"live_image": NEW}, Step.SCALE_BACK),
    "started": (Step.SCALE_BACK, {}, {"live_image": NEW, "complete": True}, Step.FLEET),
    "third while starting": (Step.SCALE_BACK, {}, {"live_image": NEW, "image": THIRD}, Step.PREFLIGHT),
    "rolls": (Step.ROLLOUT, {}, {"live_image": NEW}, Step.ROLLOUT),
    "not applied yet": (Step.ROLLOUT, {}, {}, Step.ROLLOUT),
    "rolled": (Step.ROLLOUT, {}, {"live_image": NEW, "complete": True}, Step.FLEET),
    "reverted while rolling": (Step.ROLLOUT, {}, {"live_image": NEW, "image": OLD}, Step.PREFLIGHT),
    "provisioners": (Step.FLEET, {}, {"live_image": NEW}, Step.FLEET),
    "provisioners done": (Step.FLEET, {}, {"live_image": NEW, "fleet": True}, Step.COMPLETE),
    "provisioners never": (Step.FLEET, {}, {"live_image": NEW, "now": after(minutes=10)}, Step.COMPLETE),
    "third in the fleet": (Step.FLEET, {}, {"live_image": NEW, "image": THIRD}, Step.PREFLIGHT),
    "new pod stops": (Step.ROLLBACK, {"schema_before": 412}, MIGRATING, Step.ROLLBACK),
    "stopped, schema unknown": (Step.ROLLBACK, {"schema_before": 412}, STOPPED, Step.ROLLBACK),
    "stopped, same schema": (Step.ROLLBACK, {"schema_before": 412}, {**STOPPED, "schema": 412}, Step.ROLLED_BACK),
    "stopped, migrated": (Step.ROLLBACK, {"schema_before": 412}, {**STOPPED, "schema": 556}, Step.MIGRATE),
    "refused": (Step.REFUSED, {"reason": "KnownBadPath"}, {"now": after(days=9)}, Step.REFUSED),
    "refused, not yet": (Step.REFUSED, {"reason": "ImageUnreadable"}, {"now": after(minutes=9)}, Step.REFUSED),
    "refused, tried again": (Step.REFUSED, {"reason": "ImageUnreadable"}, {"now": after(minutes=10)}, Step.PREFLIGHT),
    "rolled back": (Step.ROLLED_BACK, {}, {"now": after(days=9)}, Step.ROLLED_BACK),
    "rolled back, no replicas yet": (Step.ROLLED_BACK, {}, {**STOPPED, "image": THIRD}, Step.ROLLED_BACK),
    "rolled back, reverted, no replicas yet": (Step.ROLLED_BACK, {}, {**STOPPED, "image": OLD}, Step.ROLLED_BACK),
}


@pytest.mark.parametrize(("step", "fields", "changes", "expected"), TABLE.values(), ids=TABLE)
def test_step(step: Step, fields: dict[str, Any], changes: dict[str, Any], expected: Step | None) -> None:
    before, seen = update(step, **fields), SEEN._replace(**changes)
    found = next_update(before, seen)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.step == expected
    if expected == step:
        assert found == before
    else:
        assert found.step_started_at == seen.now


HELD = [Step.PREFLIGHT, Step.WINDOW, Step.BACKUP, Step.DRAIN, Step.REFUSED, Step.ROLLED_BACK]


@pytest.mark.parametrize("step", HELD)
@pytest.mark.parametrize("changes", [{"image": OLD}, {"strategy": "Rolling"}, {"replicas": 0}])
def test_cancelled_before_pods_stop(step: Step, changes: dict[str, Any]) -> None:
    assert next_update(update(step), SEEN._replace(**changes)) is None


@pytest.mark.parametrize("step", HELD)
@pytest.mark.parametrize("changes", [{"image": THIRD}, {"inputs": "other"}])
def test_begins_again_before_pods_stop(step: Step, changes: dict[str, Any]) -> None:
    found = next_update(update(step, reason="x", schema_before=1, to="v2.36.1"), SEEN._replace(**changes))
    assert found is not None
    assert (found.step, found.reason, found.schema_before, found.to) == (Step.PREFLIGHT, "", 0, "")


PLANS = {
    "same": (Schema.SAME, {}, "Rolling"),
    "older": (Schema.OLDER, {}, "Recreate"),
    "empty": (Schema.EMPTY, {}, "Recreate"),
    "unknown": (Schema.UNKNOWN, {}, "Recreate"),
    "same, Recreate": (Schema.SAME, {"strategy": "Recreate"}, "Recreate"),
    "same, but another image is being rolled out": (Schema.SAME, {"live_image": THIRD}, "Recreate"),
}


@pytest.mark.parametrize(("schema", "changes", "plan"), PLANS.values(), ids=PLANS)
def test_plan(schema: Schema, changes: dict[str, Any], plan: str) -> None:
    found = next_update(
        update(Step.PREFLIGHT), SEEN._replace(verdict=Verdict("v2.36.1", schema), schema=412, **changes)
    )
    assert found is not None
    assert (found.plan, found.to, found.schema_before) == (plan, "v2.36.1", 412)


def test_records_what_later_steps_need() -> None:
    drained = next_update(update(Step.BACKUP), SEEN._replace(backup=Backup("nightly")))
    assert drained is not None
    assert drained.backup_ref == "nightly"
    stopped = next_update(drained, SEEN)
    assert stopped is not None
    assert stopped.resume_replicas == 2
    scaled = next_update(update(Step.VERIFY), SEEN._replace(**verified(), schema=556))
    assert scaled is not None
    assert (scaled.to, scaled.schema_after) == ("v2.36.1", 556)


REFUSALS = {
    "v2.30.0": (verdict(Schema.NEWER, "v2.30.0"), "DowngradeRefused"),
    "unreadable": ({"now": after(minutes=11)}, "ImageUnreadable"),
    "no version": ({"verdict": Verdict()}, "ImageUnreadable"),
    "database": ({"verdict": Verdict("v2.36.1", error="x")}, "PreflightFailed"),
    "dirty": (verdict(Schema.OLDER, dirty=True), "PreflightFailed"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_names_the_image(changes: dict[str, Any], reason: str) -> None:
    found = next_update(update(Step.PREFLIGHT), SEEN._replace(**changes))
    assert found is not None
    assert found.reason == reason
    assert reason == "PreflightFailed" or NEW in found.message


def test_rollback_without_a_known_schema() -> None:
    """It is reported, and another image is taken up."""
    rolling_back = update(Step.ROLLBACK)
    seen = SEEN._replace(live_image=NEW, live_replicas=0, has_pods=False, stopped=True, schema=0)
    assert next_update(rolling_back, seen) == rolling_back
    found = judge(rolling_back, seen, Words())
    assert found.stalled
    assert "the database does not respond" in found.message
    following = next_update(rolling_back, seen._replace(image=THIRD))
    assert following is not None
    assert (following.step, following.image) == (Step.PREFLIGHT, THIRD)


def test_rejected_deployment_is_tried_again_only_with_another_spec() -> None:
    found = next_update(update(Step.MIGRATE), SEEN._replace(**STOPPED, **INVALID))
    assert found is not None
    assert (found.message, found.reason) == (f"The Deployment with image {NEW} is rejected: x", "RolledBack")
    assert next_update(found, SEEN._replace(**INVALID)) == found
    fixed = next_update(found, SEEN)
    assert fixed is not None
    assert fixed.step == Step.PREFLIGHT


def test_no_pod_migrates_without_replicas() -> None:
    seen = SEEN._replace(live_image=NEW, live_replicas=0, replicas=0)
    found = judge(update(Step.MIGRATE), seen, Words())
    assert found.message == f"Waiting until replicas is not 0: no pod of image {NEW} migrates the database"


@pytest.mark.parametrize("reason", ["DrainTimeout", "DowngradeRefused"])
def test_refusal_is_tried_again(reason: str) -> None:
    """Builds end, and a backup can be restored, without a change of the spec."""
    refused = update(Step.REFUSED, reason=reason)
    assert next_update(refused, SEEN._replace(now=after(minutes=59))) == refused
    found = next_update(refused, SEEN._replace(now=after(minutes=60)))
    assert found is not None
    assert found.step == Step.PREFLIGHT


def test_known_bad_path_by_the_tag_of_the_old_image() -> None:
    begun = update(Step.PREFLIGHT, from_="", from_image="ghcr.io/coder/coder:v2.26.1")
    found = next_update(begun, SEEN._replace(**verdict(Schema.OLDER, "v2.27.8")))
    assert found is not None
    assert found.reason == "KnownBadPath"


def test_pod_that_cannot_be_queried() -> None:
    """Its readiness is sufficient, if it has a readiness probe."""
    checking = update(Step.VERIFY, to="v2.36.1")
    seen = SEEN._replace(live_image=NEW, live_replicas=1, ready=True, verification=Verification())
    late = seen._replace(now=after(minutes=2))
    assert next_update(checking, seen) == checking
    found = next_update(checking, late)
    assert found is not None
    assert (found.step, found.to) == (Step.SCALE_BACK, "v2.36.1")
    assert next_update(checking, late._replace(probed=False)) == checking
    assert judge(checking, late, Words(pod="p")).message.startswith("Pod p does not respond to the operator")
