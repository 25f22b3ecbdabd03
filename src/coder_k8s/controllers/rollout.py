"""The progress of a Deployment."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from coder_k8s.api import reasons
from coder_k8s.api.shared import PodStatus
from coder_k8s.kube.objects import Unstructured

from .deployments import typed
from .labels import selector
from .report import StatusReport

S = TypeVar("S", bound=PodStatus)


class Rollout(NamedTuple):
    """The state of the pods of a Deployment, from its status."""

    wanted: int
    replicas: int = 0
    updated: int = 0
    """Pods of the current template."""
    ready: int = 0
    """Ready pods, including those of older templates."""
    complete: bool = False
    stuck: str = ""
    """The message of the Deployment once its progress deadline is exceeded; empty otherwise."""
    not_created: str = ""
    """Why pods cannot be created, such as an exceeded quota; empty otherwise."""
    image: str = ""
    """Image of the Coder container in the pod template."""

    @property
    def updated_and_ready(self) -> int:
        """How many of the wanted pods run the current template and are ready.

        A Deployment does not count these. All old pods are assumed to be ready, so the number is never too high.
        """
        old = self.replicas - self.updated
        return max(0, min(self.ready - old, self.wanted))

    @property
    def running_image(self) -> str:
        """The image of all pods; empty while there are no pods, or pods of an older template."""
        return self.image if self.complete and self.wanted else ""


def rollout(deployment: Unstructured | None, wanted: int, container: str) -> Rollout:
    """The progress of a Deployment; `wanted` is the number of pods while there is no Deployment."""
    if deployment is None:
        return Rollout(wanted)
    live = typed(deployment)
    wanted, status = live.spec.replicas, live.status
    observed = status.observed_generation >= deployment.metadata.generation
    counts = (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas)
    conditions = {each.type: each for each in status.conditions} if observed else {}
    progressing, failure = conditions.get("Progressing"), conditions.get("ReplicaFailure")
    return Rollout(
        wanted=wanted,
        replicas=status.replicas,
        updated=status.updated_replicas if observed else 0,
        ready=status.ready_replicas,
        complete=observed and all(count == wanted for count in counts),
        stuck=progressing.message if progressing and progressing.reason == "ProgressDeadlineExceeded" else "",
        not_created=failure.message if failure and failure.status == "True" else "",
        image=live.image(container),
    )


def progress(found: Rollout) -> str:
    """The progress of the pods, as the message of a condition.

    | pods                                | message                                             |
    |-------------------------------------|-----------------------------------------------------|
    | none wanted, none there             | Scaled to zero                                      |
    | none wanted, some there             | Waiting for all pods to stop                        |
    | all wanted ones, and no others      | 2 of 2 pods are ready with image I                  |
    | all wanted ones, and others         | 2 of 2 updated pods are ready; old ones still run   |
    | some of the wanted ones             | 1 of 2 updated pods are ready                       |
    """
    if found.wanted == 0:
        return "Waiting for all pods to stop" if found.replicas else "Scaled to zero"
    if found.complete:
        return f"{found.ready} of {found.wanted} pods are ready with image {found.image}"
    counts = f"{found.updated_and_ready} of {found.wanted} updated pods are ready"
    surplus = found.updated_and_ready == found.wanted < found.replicas
    return f"{counts}; old ones still run" if surplus else counts


def explain(found: Rollout, cause: str = "") -> str:
    """The progress of the pods and, while not all are ready, the cause: of a pod, or of the Deployment."""
    detail = cause or found.not_created or found.stuck
    return f"{progress(found)}; {detail}" if detail and found.wanted and not found.complete else progress(found)


def report_pods(
    found: Rollout, condition: str, pods: Mapping[str, str], report: StatusReport[S], cause: str = ""
) -> None:
    """Report the condition of a Deployment, satisfied when it has rolled out, and the status fields of its pods.

    | pods       | rollout      | condition                     | reason of `Ready`                   |
    |------------|--------------|-------------------------------|-------------------------------------|
    | some ready | complete     | True, `MinimumReplicasReady`  | that of another condition, or True  |
    | some ready | not complete | True, `MinimumReplicasReady`  | `RolloutInProgress`                 |
    | none ready | complete     | False, `NoReplicasReady`      | `ScaledToZero`                      |
    | none ready | not complete | False, `NoReplicasReady`      | `NoReplicasReady`                   |
    """
    reason = reasons.MINIMUM_REPLICAS_READY if found.ready else reasons.NO_REPLICAS_READY
    summary = reasons.ROLLOUT_IN_PROGRESS if found.ready else None
    report.add(condition, found.ready > 0, reason, explain(found, cause), satisfied=found.complete, summary=summary)
    report_counts(found, pods, report)


def report_counts(found: Rollout, pods: Mapping[str, str], report: StatusReport[S]) -> None:
    """Report the status fields of the pods."""
    report.scaled_to_zero = found.wanted == 0
    status = report.status
    status.replicas, status.ready_replicas = found.replicas, found.ready
    status.phase = "Ready" if found.ready else "Pending"
    status.selector = selector(pods)
