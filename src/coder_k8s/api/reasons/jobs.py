"""The reasons of the conditions about jobs and schedules that no provisioner serves."""

from .common import FORBIDDEN, PENDING, SCALED_TO_ZERO
from .health import UPGRADING
from .reason import Reason

RETAINED = (
    SCALED_TO_ZERO,
    UPGRADING,
    FORBIDDEN.means(
        "A finalizer cannot be added. The status is the last known one.",
        "Change the policy or webhook that the condition `Stalled` names.",
        example="Finalizer coder.com/control-plane-cleanup cannot be added; the status is the last known one",
    ),
)

ALL_SERVED = Reason("AllServed", "A provisioner can run each job, or is expected to start.")
NO_MATCHING_PROVISIONER = Reason(
    "NoMatchingProvisioner",
    "Jobs wait for more than a minute, and no connected daemon and no CoderProvisioner can run them: their tags do not "
    "match. Coder fails such a job 30 minutes after its creation.",
    "Create a CoderProvisioner with the tags that the message names, or correct the tags of the template. "
    "`kubectl coder why` shows why each provisioner cannot run a job.",
    example="1 job in organization coder needs env=gpu; the closest, the built-in provisioner, lacks env=gpu. Provide "
    "a provisioner with these tags before Coder fails the oldest job at 2026-03-01T12:30Z",
)
PROVISIONER_SCALED_TO_ZERO = Reason(
    "ProvisionerScaledToZero",
    "Jobs wait for more than a minute for a CoderProvisioner with `replicas: 0` and without autoscaling.",
    "Set `replicas`, or `autoscaling`, of the CoderProvisioner that the message names.",
    example="1 job in organization coder needs env=gpu; CoderProvisioner gpu has these tags, but is scaled to zero. "
    "Scale it up before Coder fails the oldest job at 2026-03-01T12:30Z",
)
QUEUE_UNREADABLE = Reason(
    "QueueUnreadable",
    "The operator cannot read organizations, jobs or provisioner daemons in Coder; it retries.",
    "Fix what the message names: usually the user of the token needs the role Owner, or Coder is not reachable.",
    example="The jobs of organization coder could not be read from Coder: HTTP 503: Down: for maintenance",
)
TEMPLATES_WITHOUT_PROVISIONER = Reason(
    "TemplatesWithoutProvisioner",
    "No connected daemon and no CoderProvisioner has the tags of these templates. Coder does not start or stop their "
    "workspaces on schedule, nor delete dormant ones, and reports that nowhere else.",
    "Create a CoderProvisioner with the tags of the templates, or import the templates with other tags.",
    example="Coder skips autostart, autostop and automatic deletion of workspaces of template coder/gpu. coder/gpu "
    "needs env=gpu; the closest, the built-in provisioner, lacks env=gpu",
)
TEMPLATES_UNREADABLE = Reason(
    "TemplatesUnreadable",
    "The operator cannot read the templates in Coder; it retries.",
    "Fix what the message names: usually the user of the token needs the role Owner, or Coder is not reachable.",
    example="The templates could not be read from Coder: HTTP 500: Internal error",
)

JOBS_SERVED_REASONS = (
    ALL_SERVED.means(ALL_SERVED.meaning, example="A provisioner can run each waiting job"),
    NO_MATCHING_PROVISIONER,
    PROVISIONER_SCALED_TO_ZERO,
    QUEUE_UNREADABLE,
    PENDING,
    *RETAINED,
)
SCHEDULES_SERVED_REASONS = (
    ALL_SERVED.means(
        "A provisioner can run the scheduled builds of each template, or is expected to start.",
        example="A provisioner can run the scheduled builds of each template",
    ),
    TEMPLATES_WITHOUT_PROVISIONER,
    TEMPLATES_UNREADABLE,
    PENDING.means(
        "Coder, or the operator's access to it, is not ready yet, or not all templates are read yet.",
        example="Waiting for operator access and a ready pod",
    ),
    *RETAINED,
)
