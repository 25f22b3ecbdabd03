"""Writes the protection of busy pods."""

import logging
from collections.abc import Collection, Iterable

from coder_k8s.api import CoderProvisioner
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.rejections import as_condition
from coder_k8s.controllers.report import Report
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import POD, POD_DISRUPTION_BUDGET
from coder_k8s.kube.objects import Unstructured

from . import objects
from .podstates import active
from .protection import Protection, is_protected, protect

log = logging.getLogger(__name__)


class PodProtector:
    """Protects the pods of provisioners, with one patch per change."""

    def __init__(self, children: Children) -> None:
        self._children = children

    async def protect(self, provisioner: CoderProvisioner, pods: Iterable[Unstructured], busy: Collection[str]) -> bool:
        """Protect busy pods, and no longer protect idle ones; whether a pod became more costly to remove."""
        raised = False
        for pod in active(pods):
            change = protect(pod, busy=pod.metadata.name in busy, disruption=provisioner.spec.disruption)
            raised |= change.raises
            await self._patch(pod, change)
        return raised

    async def release(self, pods: Iterable[Unstructured]) -> None:
        """Remove what the operator set on pods."""
        for pod in active(pods):
            if is_protected(pod):
                await self._patch(pod, protect(pod, busy=False, disruption=None))

    async def ensure_budget(self, provisioner: CoderProvisioner, report: Report) -> None:
        """Create or remove the PodDisruptionBudget."""
        spec, keep = provisioner.spec, []
        if spec.autoscaling is not None and spec.disruption.protect_busy_pods == "Budget":
            keep = [objects.deployment_name(provisioner)]
            budget = objects.disruption_budget(provisioner)
            await as_condition(self._children.apply(POD_DISRUPTION_BUDGET, provisioner, budget), report)
        await self._children.prune(POD_DISRUPTION_BUDGET, provisioner, keep)

    async def _patch(self, pod: Unstructured, change: Protection) -> None:
        if not change.metadata:
            return
        try:
            await self._children.patch_metadata(POD, pod, change.metadata)
        except (errors.Forbidden, errors.Invalid) as error:
            # By a webhook. A busy pod without a deletion cost is not removed, because it is known to be busy.
            log.warning("cannot protect Pod %s: %s", pod.key, error.message)
