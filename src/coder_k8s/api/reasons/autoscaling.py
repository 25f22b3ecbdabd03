"""The reasons of the conditions of autoscaling, with the names that a HorizontalPodAutoscaler uses."""

from enum import StrEnum

from .common import NOT_ENTITLED, PAUSED
from .health import UPGRADING
from .jobs import QUEUE_UNREADABLE
from .provisioner import ROTATING, ProvisionerCondition
from .reason import Reason

VALID_METRIC_FOUND = Reason(
    "ValidMetricFound",
    "The operator reads the jobs of the organization.",
    example="The number of pods follows the jobs of organization default",
)
SCHEDULE_INVALID = Reason(
    "ScheduleInvalid",
    "A schedule has a cron expression or a time zone that does not exist, and is ignored.",
    "Correct the field that the message names.",
    example="Ignoring a schedule; correct autoscaling.schedules[0].start: '0 0 31 2 *' is not a cron expression: Bad "
    "day-of-month",
)
READY_FOR_NEW_SCALE = Reason(
    "ReadyForNewScale",
    "The number of pods can change.",
    example="The number of pods can change",
)
SCALE_DOWN_STABILIZED = Reason(
    "ScaleDownStabilized",
    "The jobs need fewer pods now, but needed more within the stabilization window.",
    example="Fewer pods follow when the jobs needed no more of them for 300 seconds "
    "(behavior.scaleDown.stabilizationWindowSeconds)",
)
PODS_NOT_STARTING = Reason(
    "PodsNotStarting",
    "Pods have not become ready within 3 minutes. The operator adds no more of them, and other provisioners that can "
    "run the jobs get them.",
    "See the condition `DeploymentReady` for the cause, such as missing nodes or an image that cannot be pulled.",
    example="Pods of Deployment provisioner-build do not become ready; no more are added. See the condition "
    "DeploymentReady",
)
BUSY_PODS_UNKNOWN = Reason(
    "BusyPodsUnknown",
    "A build runs, and it is not known in which pod; no pods are removed until it ends. Usually the spec sets another "
    "name for the daemons (`--name` or `CODER_PROVISIONER_DAEMON_NAME`), or a webhook the host name of the pods.",
    "Remove the name from `extraArgs` or `extraEnv`, or the webhook, so that daemons have the names of their pods.",
    example="No pods are removed while builds run, because it is not known in which pods; remove "
    "CODER_PROVISIONER_DAEMON_NAME and --name from the spec",
)
GRACE_PERIOD_TOO_SHORT = Reason(
    "GracePeriodTooShort",
    "More than 5 % of the last 100 builds took longer than `terminationGracePeriodSeconds`. The operator removes idle "
    "pods only, but a pod can get a build at the moment of its removal, and is killed after this time.",
    "Set `terminationGracePeriodSeconds` to more than the longest build.",
    example="More than 5 % of builds take longer than terminationGracePeriodSeconds (600); a pod that gets such a "
    "build while it is removed would be killed. Set it to more than the longest build",
)
DESIRED_WITHIN_RANGE = Reason(
    "DesiredWithinRange",
    "The number of pods that the jobs need is between the minimum and the maximum.",
    example="The jobs need a number of pods between the minimum and maxReplicas",
)
TOO_MANY_REPLICAS = Reason(
    "TooManyReplicas",
    "The jobs need more pods than `maxReplicas`.",
    "If jobs wait for too long: raise `autoscaling.maxReplicas`.",
    example="The jobs need more pods than maxReplicas (3); raise it if jobs wait for too long",
)
TOO_FEW_REPLICAS = Reason(
    "TooFewReplicas",
    "The jobs need fewer pods than the minimum of the spec, of an active schedule, or of `wakeInterval`.",
    example="The jobs need fewer pods than the minimum (1)",
)

AUTOSCALING_REASONS: dict[StrEnum, tuple[Reason, ...]] = {
    ProvisionerCondition.SCALING_ACTIVE: (
        VALID_METRIC_FOUND,
        QUEUE_UNREADABLE.means(
            "The operator cannot read the jobs of the organization. It removes no pods; after three errors there are "
            "at least as many as `replicas`.",
            "If it persists: the message has the error of Coder. The user of the token needs the role Owner, or "
            "Organization Admin in the organization.",
            example="Cannot read the jobs of organization default at CoderControlPlane demo; no pods are removed: HTTP "
            "500 that is not from coderd",
        ),
        SCHEDULE_INVALID,
        NOT_ENTITLED.means(
            "The license does not cover external provisioners; the number of pods does not change.",
            "See the condition `ExternalProvisionersEntitled`.",
            example="The number of pods does not change; see the condition ExternalProvisionersEntitled",
        ),
        PAUSED.means(
            "The annotation `coder.com/paused` is set; the number of pods does not change.",
            "Remove the annotation to resume: `kubectl coder resume`.",
            example="The number of pods does not change while annotation coder.com/paused is set",
        ),
    ),
    ProvisionerCondition.ABLE_TO_SCALE: (
        READY_FOR_NEW_SCALE,
        SCALE_DOWN_STABILIZED,
        PODS_NOT_STARTING,
        ROTATING.means(
            "The key is being rotated, or pods are being replaced; no pods are removed until then.",
            example="No pods are removed until all pods use the current key and template",
        ),
        UPGRADING.means(
            "The control plane is being updated; no pods are removed until then.",
            example="No pods are removed while CoderControlPlane demo is being updated",
        ),
        BUSY_PODS_UNKNOWN,
        GRACE_PERIOD_TOO_SHORT,
    ),
    ProvisionerCondition.SCALING_LIMITED: (DESIRED_WITHIN_RANGE, TOO_MANY_REPLICAS, TOO_FEW_REPLICAS),
}
