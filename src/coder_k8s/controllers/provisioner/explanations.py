"""Which condition follows from the state of the key, and from what coderd refuses; only what it says about our own
request needs a human."""

from datetime import datetime

from coder_k8s.api import CoderProvisioner, reasons
from coder_k8s.api.conditions import ProvisionerCondition
from coder_k8s.coderd import errors
from coder_k8s.controllers.report import Report

from . import keys, records
from .objects import secret_name

ENTITLED = ProvisionerCondition.EXTERNAL_PROVISIONERS_ENTITLED
KEY_READY = ProvisionerCondition.PROVISIONER_KEY_READY


def explain(
    provisioner: CoderProvisioner, trouble: errors.CoderdError, report: Report, *, key_is_settled: bool = False
) -> None:
    """Name what is wrong; after the key is settled, coderd was asked about the daemons."""
    organization = records.organization_name(provisioner)
    match trouble:
        case errors.RateLimited():
            report.add(KEY_READY, None, reasons.RATE_LIMITED, str(trouble))
        case errors.NotLicensed():
            report.add(ENTITLED, False, reasons.NOT_ENTITLED, str(trouble), stalled=True)
        case errors.NotSupported():
            report.add(ENTITLED, False, reasons.NOT_SUPPORTED, str(trouble), stalled=True)
        case errors.Unauthorized() if provisioner.spec.bootstrap is not None:
            report.add(
                ProvisionerCondition.BOOTSTRAP_SECRET_READY, False, reasons.TOKEN_REJECTED, str(trouble), stalled=True
            )
        case errors.Unauthorized():
            report.add(ProvisionerCondition.OPERATOR_ACCESS_READY, False, reasons.TOKEN_REJECTED, str(trouble))
        case _ if key_is_settled:
            message = f"Coder does not list the daemons of organization {organization}: {trouble}"
            report.add(ProvisionerCondition.DAEMONS_CONNECTED, None, reasons.FAILED, message)
        case errors.Forbidden():
            message = (
                f"The user of the token may not manage provisioner keys of organization {organization}: {trouble}. "
                "Give it the role Organization Admin there, or Owner."
            )
            report.add(KEY_READY, False, reasons.FORBIDDEN, message, stalled=True)
        case errors.NotFound():
            message = (
                f"Coder has no organization {organization}, or hides it from the user of the token. Correct "
                "organizationName, or add the user to the organization."
            )
            report.add(KEY_READY, False, reasons.ORGANIZATION_NOT_FOUND, message, stalled=True)
        case errors.Invalid():
            report.add(KEY_READY, False, reasons.FAILED, str(trouble), stalled=True)
        case _:
            report.add(KEY_READY, None, reasons.FAILED, str(trouble))


def tell_rest(
    provisioner: CoderProvisioner, wanted: keys.Wanted, step: keys.Keep | keys.Wait, report: Report, now: datetime
) -> None:
    """Say why nothing is to be done at coderd now."""
    match step:
        case keys.Keep():
            report.add(KEY_READY, True, reasons.KEY_READY, records.described(provisioner))
            report.fields |= {
                "organization_id": wanted.organization,
                "organization_name": records.organization_name(provisioner),
                "control_plane_url": wanted.url,
            }
            if (due := records.rotation_due(provisioner)) is not None:
                report.requeue_after(max(0.0, (due - now).total_seconds()))
        case keys.Wait(why, works=False):
            message = (
                f"{why}: {len(provisioner.status.retiring_keys)} keys were replaced and are not deleted yet, so the "
                f"next one has to wait. Find out what keeps changing the spec, or Secret {secret_name(provisioner)}."
            )
            report.add(KEY_READY, False, reasons.ROTATING, message)
            unhurried = records.unhurried(provisioner)
            report.requeue_after((unhurried - now).total_seconds() if unhurried is not None else 0.0)
        case keys.Wait(why):
            waiting = f"{why}: waiting for one of {len(provisioner.status.retiring_keys)} keys to retire"
            report.add(KEY_READY, True, reasons.ROTATING, waiting, satisfied=False)
