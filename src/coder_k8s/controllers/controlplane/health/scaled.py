"""When it is expected that no provisioner daemon is connected."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from coder_k8s.api import CoderProvisioner

STARTING = timedelta(minutes=3)
"""How long the daemons of new pods may take to connect."""


def autoscaled_to_zero(provisioners: Iterable[CoderProvisioner], checked: datetime) -> bool:
    """Whether autoscaling had scaled every provisioner to zero when coderd ran its check, and there is at least one.

    A result can be ten minutes old, so that pods may have been added since:

    | a provisioner | was at zero |
    |---|---|
    | without autoscaling, or with `minReplicas` of 1 or more | no |
    | with no pods now | yes |
    | whose number of pods changed after the check, or less than 3 minutes before it | yes, or its pods started |
    | any other | no |

    One that is being deleted does not count.
    """
    remaining = [each for each in provisioners if not each.deleting]
    return bool(remaining) and all(_was_at_zero(each, checked) for each in remaining)


def _was_at_zero(provisioner: CoderProvisioner, checked: datetime) -> bool:
    spec, status = provisioner.spec.autoscaling, provisioner.status.autoscaling
    if spec is None or status is None or spec.min_replicas:
        return False
    changed = status.last_scale_time
    return status.desired_replicas == 0 or (changed is not None and checked < changed + STARTING)
