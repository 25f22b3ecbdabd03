"""What many provisioners cost coderd and the API server while nothing happens."""

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

EACH = 20
"""Provisioners of one control plane."""
STEP, STEPS = 12, 10
"""Each provisioner is looked at once in 2 minutes, a tenth of them at a time."""


def asked(plane: Plane) -> Counter[tuple[str, str]]:
    return Counter(plane.coderd.state.requests)


async def serve(place: ProvisionerNamespace, name: str, plane: str) -> None:
    """Its Deployment is done and its daemon is connected."""
    live = await place.deployment(f"provisioner-{name}")
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    status = {"observedGeneration": live.metadata.generation, **counts}
    await place.client.merge(DEPLOYMENT, live.key, {"status": status}, "status")
    place.planes[plane].coderd.state.connect_daemon(name, name)


async def is_told(place: ProvisionerNamespace, number: int) -> bool:
    """Whether the last event is written: that each provisioner is ready."""
    found = [
        Unstructured.decode(item) async for page in place.client.list(EVENT, place.namespace) for item in page.items
    ]
    reasons = [event.manifest["reason"] for event in found]
    return reasons.count("Ready") == number


async def pass_time(
    place: ProvisionerNamespace, operator: Operator, names: Iterable[str], minutes: int, *, fresh: bool
) -> None:
    """Wake every provisioner when its time has come; the control planes look at their licenses meanwhile."""
    keys = [Key(place.namespace, name) for name in names]
    for round_ in range(minutes * 60 // STEP):
        place.clock.advance(seconds=STEP)
        if fresh and round_ % (STEPS - 1) == 0:
            await asyncio.gather(*(place.set_plane_status(plane, **place.fresh("entitled")) for plane in place.planes))
        await operator.reconcile(*keys[round_ % STEPS :: STEPS])


@pytest.mark.parametrize("number", [2, pytest.param(10, marks=pytest.mark.campaign)])
async def test_rest(cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, number: int) -> None:
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
                assert set(spent.values()) <= {4, 5, 6}, spent  # one question for all, every 2 minutes

            before = {name: asked(plane) for name, plane in place.planes.items()}
            await pass_time(place, operator, names, 10, fresh=False)
            for name, plane in place.planes.items():
                spent = asked(plane) - before[name]
                entitlements = spent.pop(("GET", "/api/v2/entitlements"))
                assert entitlements <= 6  # one for all, every 2 minutes
                assert sum(spent.values()) <= 12
            assert operator.write_requests() == writes


async def begin(place: ProvisionerNamespace, operator: Operator, names: dict[str, str]) -> None:
    """All of them at once, until all is well with them."""
    await eventually(lambda: sum(len(plane.keys) for plane in place.planes.values()) == len(names), 120)
    await operator.wait_idle()
    for plane in place.planes.values():
        assert max(asked(plane).values()) <= 5 * EACH  # far from what coderd allows in a minute
    await asyncio.gather(*(serve(place, *each) for each in names.items()))
    await pass_time(place, operator, names, 2, fresh=True)
    for name in names:
        await place.condition("Ready", "AllPartsReady", name=name)
        assert (operator.requeue_after(place.key_of(name)) or 0) > 60
    await eventually(lambda: is_told(place, len(names)), 60)
