"""Stops the pods of a provisioner for an update of its control plane, and gives running builds time.

A pod that is deleted takes no more jobs, and is killed when its grace period is over. An update waits longer for builds
than most pods: for `update.drain.timeout`. A ReplicaSet deletes pods with their own grace period, which cannot become
longer afterwards. So the operator deletes them first, and then lets the Deployment have none.
"""

from collections.abc import Iterable

from coder_k8s.api import CoderControlPlane, CoderProvisioner
from coder_k8s.api.shared import seconds
from coder_k8s.api.updates import Step
from coder_k8s.controllers.children import Children
from coder_k8s.kube.kinds import DEPLOYMENT, POD
from coder_k8s.kube.objects import Manifest, Unstructured

from . import objects
from .podstates import active

TEMPLATE = "pod-template-hash"


class Draining:
    """Applies Deployments, and stops their pods in the step `Drain`."""

    def __init__(self, children: Children) -> None:
        self._children = children

    async def apply(self, provisioner: CoderProvisioner, plane: CoderControlPlane, desired: Manifest) -> Unstructured:
        """Apply the Deployment of a provisioner."""
        if (grace := longer_grace(provisioner, plane)) is not None:
            found = self._children.pods(objects.NAME, provisioner)
            pods = of_deployment(found, objects.deployment_name(provisioner))
            if pods:  # if the Deployment is rejected, other pods would replace them again and again
                await self._children.dry_run(DEPLOYMENT, desired)
            for pod in pods:
                await self._children.delete(POD, pod, grace)
        return await self._children.apply(DEPLOYMENT, provisioner, desired)


def longer_grace(provisioner: CoderProvisioner, plane: CoderControlPlane) -> int | None:
    """The seconds that pods have to stop; `None` if they do not stop, or have their own grace period.

    | step of the update | `update.drain.timeout`           | grace period        |
    |--------------------|----------------------------------|---------------------|
    | `Drain`            | longer than that of the pods     | this timeout        |
    | `Drain`            | shorter                          | that of the pods    |
    | another, or none   | any                              | that of the pods    |
    """
    update = plane.status.update
    if update is None or update.step != Step.DRAIN:
        return None
    timeout = int(seconds(plane.spec.update.drain.timeout))
    return timeout if timeout > provisioner.spec.termination_grace_period_seconds else None


def of_deployment(pods: Iterable[Unstructured], name: str) -> list[Unstructured]:
    """The pods that a ReplicaSet of this Deployment controls, and that do not stop yet."""
    return [
        pod
        for pod in active(pods)
        if pod.controller is not None
        and pod.controller.kind == "ReplicaSet"
        and pod.controller.name == f"{name}-{pod.metadata.labels.get(TEMPLATE, '')}"
    ]
