"""Which rejections of the API server become conditions."""

import pytest

from coder_k8s.api import reasons
from coder_k8s.controllers.rejections import as_condition
from coder_k8s.controllers.report import Report, sentence
from coder_k8s.kube import errors
from coder_k8s.kube.apply import OwnedByOther
from coder_k8s.kube.conditions import Finding
from coder_k8s.kube.kinds import SERVICE
from coder_k8s.kube.objects import ObjectMeta, Unstructured

TAKEN = Unstructured(metadata=ObjectMeta(namespace="default", name="demo"), content=b"{}")

DUPLICATE = "failed to create typed patch object: duplicate entries"


async def write(error: Exception | None = None) -> str:
    if error is not None:
        raise error
    return "written"


@pytest.mark.parametrize(
    ("error", "reason", "message", "requeue"),
    [
        (
            OwnedByOther(SERVICE, TAKEN),
            reasons.NAME_TAKEN,
            "Service demo exists and has no owner; rename this object or delete the other one",
            60.0,
        ),
        (
            errors.UnknownField(400, "BadRequest", "unknown field spec.x", ("spec.x",)),
            reasons.FIELD_NOT_SUPPORTED,
            "unknown field spec.x; remove the field from the spec, or upgrade the cluster",
            300.0,
        ),
        (errors.Invalid(422, "Invalid", "spec.x: too long"), reasons.SPEC_INVALID, "spec.x: too long", None),
        (errors.Forbidden(403, "Forbidden", "exceeded quota"), reasons.FORBIDDEN, "exceeded quota", 60.0),
        (errors.ServerError(500, "", DUPLICATE), reasons.SPEC_INVALID, DUPLICATE, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
@pytest.mark.parametrize("condition", ["", "Exposed"])
async def test_a_rejected_write_stalls_the_object(
    error: Exception, reason: reasons.Reason, message: str, requeue: float | None, condition: str
) -> None:
    report = Report()
    assert await as_condition(write(error), report, condition) is None
    stalled = report.conclude()[2]
    assert stalled[:3] == ("Stalled", True, reason)
    assert report.findings == ([Finding(condition, False, reason, message)] if condition else [])
    assert stalled.message == sentence(message)
    assert report.requeue == requeue


@pytest.mark.parametrize(
    "error",
    [errors.Conflict(409, "Conflict", "changed"), errors.ServerError(500, "", "timeout"), ValueError("a defect")],
    ids=lambda error: type(error).__name__,
)
async def test_any_other_error_is_raised(error: Exception) -> None:
    report = Report()
    with pytest.raises(type(error)):
        await as_condition(write(error), report)
    assert vars(report) == vars(Report())


async def test_a_write_that_succeeds_is_returned() -> None:
    report = Report()
    assert await as_condition(write(), report) == "written"
    assert vars(report) == vars(Report())
