"""Requests of many provisioners to coderd and the API server in steady state."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key, Unstructured
from tests.support import eventually
from tests.support.objects import EVENT
from tests.support.operators import Operator
from tests.support.provisioners import Plane, ProvisionerNamespace, provisioner_namespace

pytestmark = pytest.mark.slow

EACH = 20
"""Provisioners of one control plane."""
STEP, STEPS = 12, 10
"""Each provisioner is reconciled once in 2 minutes, a tenth of them at a time."""


def asked(plane: Plane) -> Counter[tuple[str, str]]:
    return Counter(plane.coderd.state.requests)


async def serve(place: ProvisionerNamespace, name: str, plane: str) -> None:
    """Complete the rollout of a Deployment and connect its daemon."""
    live = await place.deployment(f"provisioner-{name}")
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    status = {"observedGeneration": live.metadata.generation, **counts}
    await place.client.merge(DEPLOYMENT, live.key, {"status": status}, "status")
    place.planes[plane].coderd.state.connect_daemon(name, name)


async def has_ready_event(place: ProvisionerNamespace, number: int) -> bool:
    """Whether the last event exists, which says that each provisioner is ready."""
    found = [
        Unstructured.decode(item) async for page in place.client.list(EVENT, place.namespace) for item in page.items
    ]
    reasons = [event.manifest["reason"] for event in found]
    return reasons.count("Ready") == number


async def pass_time(
    place: ProvisionerNamespace, operator: Operator, names: Iterable[str], minutes: int, *, fresh: bool
) -> None:
    """Advance the clock and reconcile every provisioner that is due; control planes check their licenses."""
    keys = [Key(place.namespace, name) for name in names]
    for round_ in range(minutes * 60 // STEP):
        place.clock.advance(seconds=STEP)
        if fresh and round_ % (STEPS - 1) == 0:
            await asyncio.gather(*(place.set_plane_status(plane, **place.fresh("entitled")) for plane in place.planes))
        await operator.reconcile(*keys[round_ % STEPS :: STEPS])


@pytest.mark.parametrize("number", [2, pytest.param(10, marks=pytest.mark.campaign)])
async def test_steady_state(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, number: int
) -> None:
    planes = [f"plane-{index}" for index in range(number)]
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, planes=planes) as place:
        await asyncio.gather(*(place.make_plane(name) for name in planes))
        names = {f"build-{index}": planes[index % number] for index in range(number * EACH)}
        for name, of in names.items():
            await place.make(name, controlPlaneRef={"name": of})
        async with place.operator() as operator:
            await begin(place, operator, names)
            writes = operator.write_requests()
            before = {name: asked(plane) for name, plane in place.planes.items()}
            await pass_time(place, operator, names, 10, fresh=True)
            for name, plane in place.planes.items():
                spent = asked(plane) - before[name]
                assert len(spent) == 2, spent
                assert set(spent.values()) <= {4, 5, 6}, spent  # one query for all, every 2 minutes

            before = {name: asked(plane) for name, plane in place.planes.items()}
            await pass_time(place, operator, names, 10, fresh=False)
            for name, plane in place.planes.items():
                spent = asked(plane) - before[name]
                entitlements = spent.pop(("GET", "/api/v2/entitlements"))
                assert entitlements <= 6  # one for all, every 2 minutes
                assert sum(spent.values()) <= 12
            assert operator.write_requests() == writes


async def begin(place: ProvisionerNamespace, operator: Operator, names: dict[str, str]) -> None:
    """Create all of them at once, and wait until they are ready."""
    await eventually(lambda: sum(len(plane.keys) for plane in place.planes.values()) == len(names), 120)
    await operator.wait_idle()
    for plane in place.planes.values():
        assert max(asked(plane).values()) <= 5 * EACH  # far below coderd's rate limit per minute
    await asyncio.gather(*(serve(place, *each) for each in names.items()))
    await pass_time(place, operator, names, 2, fresh=True)
    for name in names:
        await place.condition("Ready", "AllReady", name=name)
        assert (operator.requeue_after(place.key_of(name)) or 0) > 60
    await eventually(lambda: has_ready_event(place, len(names)), 60)
