"""The pods of a provisioner stop for an update, and running builds have the time of the drain."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane, CoderProvisioner
from coder_k8s.controllers.provisioner.draining import longer_grace
from coder_k8s.kube.kinds import POD, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Manifest
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.provisioners import NAME, ProvisionerNamespace

DRAIN = {"image": "coder:v2.36.1", "step": "Drain"}
HASH = "abc"
LABEL = "pod-template-hash"
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "1", "controller": True}

GRACE: dict[str, tuple[Manifest | None, str, int, int | None]] = {
    # update, update.drain.timeout, grace period of the pods, expected
    "no update": (None, "30m", 600, None),
    "preflight": ({**DRAIN, "step": "Preflight"}, "30m", 600, None),
    "drain": (DRAIN, "30m", 600, 1800),
    "drain for less time": (DRAIN, "5m", 600, None),
    "drain for the same time": (DRAIN, "10m", 600, None),
    "migration": ({**DRAIN, "step": "Migrate"}, "30m", 600, None),
}


@pytest.mark.parametrize(("update", "timeout", "grace", "expected"), GRACE.values(), ids=GRACE)
def test_grace_period(update: Manifest | None, timeout: str, grace: int, expected: int | None) -> None:
    spec: Manifest = {"update": {"drain": {"timeout": timeout}}}
    plane = msgspec.convert({"metadata": {}, "spec": spec, "status": {"update": update}}, CoderControlPlane)
    spec = {"controlPlaneRef": {"name": "demo"}, "terminationGracePeriodSeconds": grace}
    assert longer_grace(msgspec.convert({"metadata": {}, "spec": spec}, CoderProvisioner), plane) == expected


async def add_pod(place: ProvisionerNamespace, operator: Operator, name: str, replica_set: str) -> None:
    """Create a pod on a node: Kubernetes deletes others at once."""
    if await place.find(SERVICE_ACCOUNT, "default") is None:
        await place.client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": place.namespace, "name": "default"}})
    template = (await place.deployment()).manifest["spec"]["template"]["metadata"]
    metadata: dict[str, Any] = {
        **template,
        "namespace": place.namespace,
        "name": name,
        "labels": {**template["labels"], LABEL: HASH},
        "ownerReferences": [{**REPLICA_SET, "name": replica_set}],
    }
    spec = {"nodeName": "node", "containers": [{"name": "a", "image": "a"}], "automountServiceAccountToken": False}
    await place.client.create(POD, {"metadata": metadata, "spec": spec})
    await eventually(lambda: operator.informers[POD].get(place.key_of(name)))


async def stops_within(place: ProvisionerNamespace, name: str) -> timedelta | None:
    """The time that a pod has left to stop; `None` if it does not stop."""
    end = (await place.client.get(POD, place.key_of(name))).metadata.deletion_timestamp
    return None if end is None else end - datetime.now(UTC)


async def replicas(place: ProvisionerNamespace) -> int:
    found: int = (await place.deployment()).manifest["spec"]["replicas"]
    return found


async def test_builds_have_the_time_of_the_drain(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make(replicas=2)
        await place.ready(operator, ready=2)
        own = f"provisioner-{NAME}-{HASH}"
        for name, owner in (("one", own), ("two", own), ("foreign", "another")):
            await add_pod(place, operator, name, owner)
        await place.set_plane_status("demo", update=DRAIN)
        await eventually(lambda: _is(place, 0))
        for name in ("one", "two"):
            left = await stops_within(place, name)
            assert left is not None
            assert timedelta(minutes=20) < left <= timedelta(minutes=30)
        assert await stops_within(place, "foreign") is None
        await operator.wait_idle()
        writes = operator.write_requests()
        await operator.reconcile(place.key)
        assert operator.write_requests() == writes


async def test_pods_of_a_deployment_that_is_rejected_do_not_stop(place: ProvisionerNamespace) -> None:
    """Their ReplicaSet would create others, which would stop as well."""
    async with place.operator() as operator:
        await place.make(replicas=1)
        await place.ready(operator)
        await add_pod(place, operator, "one", f"provisioner-{NAME}-{HASH}")
        await place.change(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
        await place.condition("Stalled", "SpecInvalid", "True")
        await place.set_plane_status("demo", update=DRAIN)
        planes = operator.informers[CONTROL_PLANE]
        await eventually(lambda: (known := planes.get(place.key_of("demo"))) and known.status.update)
        await operator.reconcile(place.key)
        assert await stops_within(place, "one") is None
        assert await replicas(place) == 1


async def _is(place: ProvisionerNamespace, number: int) -> bool:
    return await replicas(place) == number
