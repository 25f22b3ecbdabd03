"""Errors of coderd, and when the operator retries."""

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import timestamp
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.planes import make_ready_plane, put_pod, put_waiting_pod
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace


class Never(Random):
    """A random number generator that always returns the minimum."""

    def random(self) -> float:
        return 0.0


class Always(Random):
    """A random number generator that always returns the maximum."""

    def random(self) -> float:
        return 1.0


async def entitled_for_long(place: ProvisionerNamespace) -> None:
    """Keep the entitlement in the status of the control plane fresh, however far the clock advances."""
    later = timestamp(place.clock() + timedelta(days=1))
    await place.set_plane_status("demo", entitlementsLastChecked=later)


async def requeued_after(place: ProvisionerNamespace, operator: Operator) -> float:
    """The requeue time after one more rejection."""
    place.clock.advance(minutes=3)
    await operator.reconcile(place.key)
    return operator.requeue_after() or 0


async def test_rate_limit(place: ProvisionerNamespace) -> None:
    """The delay doubles up to 2 minutes, and a success resets it."""
    state = place.plane.coderd.state
    await entitled_for_long(place)
    async with place.operator(rng=Always()) as operator:
        await place.make()
        await place.ready(operator)
        for _ in range(2):
            state.set(rate_limited=True)
            waits = [await requeued_after(place, operator) for _ in range(8)]
            assert waits == pytest.approx([4, 8, 16, 32, 64, 120, 120, 120], abs=1)
            await place.condition("ProvisionerKeyReady", "RateLimited", "Unknown")
            await place.condition("Ready", "RateLimited", "Unknown")
            await place.condition("Stalled", "Progressing", "False")
            state.set(rate_limited=False)
            place.clock.advance(minutes=3)
            await operator.reconcile(place.key)
            await place.condition("ProvisionerKeyReady", "KeyReady", "True")


async def test_rate_limit_jitter(place: ProvisionerNamespace) -> None:
    """Jitter spreads the retries; none comes before 2 s."""
    await entitled_for_long(place)
    async with place.operator(rng=Never()) as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.set(rate_limited=True)
        waits = [await requeued_after(place, operator) for _ in range(3)]
        assert waits == pytest.approx([2, 4, 8], abs=1)


async def test_rate_limit_of_entitlements(place: ProvisionerNamespace) -> None:
    async with place.operator(rng=Always()) as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.set(rate_limited=True)
        waits = [await requeued_after(place, operator) for _ in range(3)]
        assert waits == pytest.approx([4, 8, 16], abs=1)
        await place.condition("ProvisionerKeyReady", "RateLimited", "Unknown")


async def test_outage(place: ProvisionerNamespace) -> None:
    """Nothing is known, so nothing changes; pods keep running."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        before = await place.deployment()
        for switch in ("failing", "cut", "database_down", "sign_in_page"):
            place.plane.coderd.state.set(**{switch: True})
            place.clock.advance(minutes=3)
            await place.set_plane_status("demo", **place.fresh("entitled"))
            await operator.reconcile(place.key)
            await place.condition("ProvisionerKeyReady", "Failed", "Unknown")
            await place.condition("Stalled", "Progressing", "False")
            assert (await place.get()).status.phase == "Ready"
            place.plane.coderd.state.set(**{switch: False})
            await operator.reconcile(place.key)
            await place.condition("Ready", "AllReady", "True")
    assert (await place.deployment()) == before
    assert set(place.keys) == {"build"}


async def test_agpl(cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str) -> None:
    """A build without enterprise features has neither entitlements nor keys."""
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, version="agpl") as place:
        await place.make_plane("demo", **place.fresh("unknown"))
        async with place.operator() as operator:
            await place.make()
            await place.condition("ExternalProvisionersEntitled", "NotSupported", "False")
            await place.condition("Stalled", "NotSupported", "True")
            await operator.wait_idle()
            assert 60 < (operator.requeue_after() or 0) <= 120
            await place.set_plane_status("demo", **place.fresh("entitled"))
            await operator.reconcile(place.key)
            await place.condition("ExternalProvisionersEntitled", "NotSupported", "False")


async def test_agpl_after_the_control_plane_was_checked(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> None:
    """The status of such a control plane is that of one without a license, except for its condition."""
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, version="agpl") as place:
        known = {"type": "EntitlementsKnown", "status": "False", "reason": "NotSupported", "message": "AGPL"}
        condition = {**known, "lastTransitionTime": timestamp(place.clock())}
        await place.make_plane("demo", conditions=[condition], **place.fresh("not_entitled"))
        async with place.operator() as operator:
            await place.make()
            await place.condition("ExternalProvisionersEntitled", "NotSupported", "False")
            await operator.wait_idle()
            assert 60 < (operator.requeue_after() or 0) <= 120


async def test_unauthorized_while_the_database_is_down(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> None:
    """coderd 2.30 returns 401 while its database is down: the token is still valid."""
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, version="2.30.0") as place:
        await place.make_plane("demo")
        async with place.operator() as operator:
            await place.make()
            await place.ready(operator)
            place.plane.coderd.state.set(database_down=True)
            place.clock.advance(minutes=3)
            await place.set_plane_status("demo", **place.fresh("entitled"))
            await operator.reconcile(place.key)
            await place.condition("ProvisionerKeyReady", "Failed", "Unknown")
            assert (await place.conditions())["OperatorAccessReady"] == ("True", "OperatorAccessReady")


async def test_deployment_of_a_control_plane_is_not_adopted(place: ProvisionerNamespace) -> None:
    """A control plane may be named like the Deployment of a provisioner."""
    before = await make_ready_plane(place.client, place.namespace, "provisioner-build")
    async with place.operator() as operator:
        await place.make()
        taken = await place.condition("Ready", "NameTaken", "False")
        assert "Deployment provisioner-build exists and belongs to CoderControlPlane" in taken.message
        await operator.reconcile(place.key)
        assert (await place.conditions())["DeploymentReady"] == ("False", "NoReplicasReady")
        status = (await place.get()).status
        assert (status.phase, status.replicas, status.ready_replicas) == ("Pending", 0, 0)
    assert await place.deployment() == before


async def test_condition_has_the_cause_of_a_pod_that_does_not_start(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make(replicas=2)
        await place.condition("ProvisionerKeyReady", "KeyReady")
        deployment = await place.deployment()
        await operator.wait_idle()
        await put_waiting_pod(place.client, deployment, "ImagePullBackOff")
        cause = 'pod provisioner-build-1: ImagePullBackOff: Back-off pulling image "coder"'
        expected = f"0 of 2 updated pods are ready; {cause}"
        await place.message("DeploymentReady", "NoReplicasReady", expected)
        await place.message("Ready", "NoReplicasReady", expected)


async def test_pod_that_cannot_be_scheduled_during_a_rollout(place: ProvisionerNamespace) -> None:
    """The old pods are ready, and do not count."""
    async with place.operator() as operator:
        await place.make(replicas=3)
        await place.ready(operator, ready=3)
        await place.change(nodeSelector={"disk": "none"})
        await eventually(lambda: has_node_selector(place))
        deployment = await place.deployment()
        counts = {"replicas": 4, "updatedReplicas": 1, "readyReplicas": 3, "availableReplicas": 3}
        status = {"observedGeneration": deployment.metadata.generation, **counts}
        await place.client.merge(DEPLOYMENT, deployment.key, {"status": status}, "status")
        await place.message("DeploymentReady", "MinimumReplicasReady", "0 of 3 updated pods are ready")
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
        await put_pod(place.client, deployment, conditions=[unscheduled])
        cause = "pod provisioner-build-1: Unschedulable: 0/3 nodes"
        await place.message("DeploymentReady", "MinimumReplicasReady", f"0 of 3 updated pods are ready; {cause}")


async def has_node_selector(place: ProvisionerNamespace) -> bool:
    return "nodeSelector" in (await place.deployment()).manifest["spec"]["template"]["spec"]
