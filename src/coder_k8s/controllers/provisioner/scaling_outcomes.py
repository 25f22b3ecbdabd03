"""Reports decisions about the number of pods as conditions and events."""

from coder_k8s.api import CoderProvisioner, ProvisionerCondition, reasons
from coder_k8s.api.autoscaling import Autoscaling
from coder_k8s.coderd import errors
from coder_k8s.controllers.report import Outcome, sentence
from coder_k8s.kube.conditions import Finding, find

from . import records
from .autoscaling import Decision, Limit, Observed
from .daemons import are_named_after_pods
from .floors import invalid_schedule
from .objects import deployment_name
from .scaling_view import NoAccess

ACTIVE = ProvisionerCondition.SCALING_ACTIVE
ABLE = ProvisionerCondition.ABLE_TO_SCALE
LIMITED = ProvisionerCondition.SCALING_LIMITED

NOT_ENTITLED = Outcome(
    ACTIVE,
    False,
    reasons.NOT_ENTITLED,
    "The number of pods does not change; see the condition ExternalProvisionersEntitled",
    satisfied=True,
)
CAN_CHANGE = (True, reasons.READY_FOR_NEW_SCALE, "The number of pods can change")
PAUSED = Finding(
    ACTIVE,
    False,
    reasons.PAUSED,
    "The number of pods does not change while annotation coder.com/paused is set",
)


def outcomes(
    provisioner: CoderProvisioner, spec: Autoscaling, decision: Decision, warning: Outcome | None = None
) -> list[Outcome]:
    """The conditions of a decision that is based on the jobs. A warning replaces one that the number can change."""
    can_change = able(provisioner, spec, decision.limited_by)
    return [
        active(provisioner, spec),
        warning if warning is not None and can_change.status else can_change,
        limited(spec, decision),
    ]


def grace_period_too_short(provisioner: CoderProvisioner) -> Outcome:
    """The warning that builds take longer than the grace period of pods."""
    grace = provisioner.spec.termination_grace_period_seconds
    message = (
        f"More than 5 % of builds take longer than terminationGracePeriodSeconds ({grace}); a pod that gets such a "
        "build while it is removed would be killed. Set it to more than the longest build"
    )
    return Outcome(ABLE, True, reasons.GRACE_PERIOD_TOO_SHORT, message, satisfied=True)


def is_reported(provisioner: CoderProvisioner, outcome: Outcome) -> bool:
    """Whether the status has a condition with this message."""
    found = find(provisioner.status.conditions, outcome.type)
    return found is not None and found.message == sentence(outcome.message)


def active(provisioner: CoderProvisioner, spec: Autoscaling) -> Outcome:
    if error := invalid_schedule(spec.schedules):
        return Outcome(ACTIVE, True, reasons.SCHEDULE_INVALID, f"Ignoring a schedule; correct {error}")
    message = f"The number of pods follows the jobs of organization {records.organization_name(provisioner)}"
    if not spec.min_replicas:
        message += (
            "; while there are none, scheduled starts and stops of workspaces are up to "
            f"{spec.wake_interval} late (wakeInterval)"
        )
    return Outcome(ACTIVE, True, reasons.VALID_METRIC_FOUND, message)


def unreadable(provisioner: CoderProvisioner, error: errors.CoderdError) -> Outcome:
    """The condition while the jobs cannot be read."""
    where = (
        f"organization {records.organization_name(provisioner)} at CoderControlPlane "
        f"{provisioner.spec.control_plane_ref.name}"
    )
    cause = str(error)
    if isinstance(error, NoAccess):
        cause = "the operator has no access to it; see the other conditions"
    elif isinstance(error, errors.NotFound | errors.Forbidden):
        cause = f"the user of the token needs the role Owner, or Organization Admin in the organization: {error}"
    message = f"Cannot read the jobs of {where}; no pods are removed: {cause}"
    return Outcome(ACTIVE, False, reasons.QUEUE_UNREADABLE, message, satisfied=True)


def able(provisioner: CoderProvisioner, spec: Autoscaling, limited_by: Limit) -> Outcome:
    """Whether something holds back a change.

    | limited by | status and reason |
    |---|---|
    | pods that do not start | False, `PodsNotStarting` |
    | a rotation or a rollout | False, `Rotating` |
    | an update of the control plane | False, `Upgrading` |
    | running jobs in pods that are not known | False, `BusyPodsUnknown` |
    | the stabilization window | True, `ScaleDownStabilized` |
    | anything else, or nothing | True, `ReadyForNewScale` |
    """
    plane, window = provisioner.spec.control_plane_ref.name, spec.behavior.scale_down.stabilization_window_seconds
    known = {
        Limit.NOT_STARTING: (
            False,
            reasons.PODS_NOT_STARTING,
            f"Pods of Deployment {deployment_name(provisioner)} do not become ready; no more are added. See the "
            "condition DeploymentReady",
        ),
        Limit.ROTATION: (
            False,
            reasons.ROTATING,
            "No pods are removed until all pods use the current key and template",
        ),
        Limit.UPDATE: (
            False,
            reasons.UPGRADING,
            f"No pods are removed while CoderControlPlane {plane} is being updated",
        ),
        Limit.UNKNOWN_PODS: (
            False,
            reasons.BUSY_PODS_UNKNOWN,
            f"No pods are removed while builds run, because it is not known in which pods; {_name_advice(provisioner)}",
        ),
        Limit.WINDOW: (
            True,
            reasons.SCALE_DOWN_STABILIZED,
            f"Fewer pods follow when the jobs needed no more of them for {window} seconds "
            "(behavior.scaleDown.stabilizationWindowSeconds)",
        ),
    }
    status, reason, message = known.get(limited_by, CAN_CHANGE)
    return Outcome(ABLE, status, reason, message, satisfied=True)


def _name_advice(provisioner: CoderProvisioner) -> str:
    if are_named_after_pods(provisioner):
        return "leave hostname and hostNetwork of the pods unset, so that daemons have the names of their pods"
    return "remove CODER_PROVISIONER_DAEMON_NAME and --name from the spec"


def limited(spec: Autoscaling, decision: Decision) -> Outcome:
    """Whether the jobs need another number than the spec allows."""
    recommended = decision.recommended or 0
    if recommended > spec.max_replicas:
        message = f"The jobs need more pods than maxReplicas ({spec.max_replicas}); raise it if jobs wait for too long"
        return Outcome(LIMITED, True, reasons.TOO_MANY_REPLICAS, message)
    if recommended < decision.floor:
        message = f"The jobs need fewer pods than the minimum ({decision.floor})"
        return Outcome(LIMITED, True, reasons.TOO_FEW_REPLICAS, message)
    message = "The jobs need a number of pods between the minimum and maxReplicas"
    return Outcome(LIMITED, False, reasons.DESIRED_WITHIN_RANGE, message, satisfied=True)


def cause(decision: Decision, seen: Observed) -> str:
    """Why the number of pods changes, as the label of a metric."""
    if decision.limited_by in (Limit.SCHEDULE, Limit.WAKE, Limit.QUEUE):
        return str(decision.limited_by)
    return "Bounds" if decision.recommended == seen.current else "Demand"


def describe_change(decision: Decision, seen: Observed) -> str:
    """A change of the number of pods, with its cause, as an event."""
    numbers = f"Scaled from {seen.current} to {decision.desired} pods"
    if seen.demand is None:
        return f"{numbers}: the jobs cannot be read, so that replicas of the spec is the minimum"
    working = len(seen.demand.busy) + seen.demand.unmapped
    jobs = f"{len(seen.demand.share.jobs)} jobs wait and {working} run"
    floors = {Limit.SCHEDULE: ", with the minimum of a schedule", Limit.WAKE: ", with the minimum of wakeInterval"}
    return f"{numbers}: {jobs}{floors.get(decision.limited_by, '')}"
