"""A coderd that is slow, unavailable or broken: requests are bounded, and other control planes are not affected."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.coderd.connections import Endpoint, Limits
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer, make_license
from coder_k8s.dev.processes import free_port
from tests.support import eventually
from tests.support.campaign import slice_of
from tests.support.controlplanes import PlaneNamespace, plane_namespace
from tests.support.operators import Operator

FAILURES: list[dict[str, Any]] = [
    {"latency": 30},
    {"failing": True},
    {"cut": True},
    {"rate_limited": True},
    {"database_down": True},
    {"sign_in_page": True},
]


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        await place.put_secret("given", token=place.coderd.state.token)
        await place.put_secret("license", license=make_license(place.clock()))
        await place.make(operatorAccess={"tokenSecretRef": {"name": "given"}}, licenseSecretRef={"name": "license"})
        yield place


@pytest.mark.parametrize("switches", slice_of(FAILURES, 1, 3))
async def test_requests_are_bounded_while_coderd_fails(demo: PlaneNamespace, switches: dict[str, Any]) -> None:
    async with demo.operator(limits=Limits(total=0.5)) as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await demo.condition("EntitlementsKnown", "Checked", "True")
        await operator.wait_idle()
        demo.coderd.state.set(**switches)
        await operator.later(minutes=2)
        await demo.condition("LicenseApplied", "Error", "False")
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        assert (await demo.get()).status.license_tier == "premium", "the last known value stays, with its time"
        before = sum(demo.coderd.state.requests.values())
        for _ in range(60):
            await operator.later(seconds=1)
        assert sum(demo.coderd.state.requests.values()) - before <= 12


@pytest.mark.parametrize("switches", slice_of(FAILURES, 2, 4))
async def test_requests_are_bounded_if_coderd_fails_from_the_start(
    demo: PlaneNamespace, switches: dict[str, Any]
) -> None:
    demo.coderd.state.set(**switches)
    async with demo.operator(limits=Limits(total=0.5)) as operator:
        await demo.roll_out()
        await eventually(lambda: sum(demo.coderd.state.requests.values()))
        await operator.wait_idle()
        before = sum(demo.coderd.state.requests.values())
        for _ in range(60):
            await operator.later(seconds=1)
        assert sum(demo.coderd.state.requests.values()) - before <= 4
        assert (await demo.conditions())["OperatorAccessReady"] == ("Unknown", "Pending")


async def test_coderd_is_not_queried_in_steady_state(demo: PlaneNamespace) -> None:
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        before, writes = sum(demo.coderd.state.requests.values()), operator.write_requests()
        for _ in range(20):
            await operator.reconcile()
        await operator.later(seconds=59)
        assert sum(demo.coderd.state.requests.values()) == before
        assert operator.write_requests() == writes


async def test_ready_needs_pods_access_and_license(demo: PlaneNamespace) -> None:
    async with demo.operator():
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await demo.put_secret("license", license="")
        await demo.condition("Ready", "SecretMissing", "False")
        await demo.put_secret("license", license=make_license(demo.clock()))
        await demo.condition("Ready", "AllReady", "True")
        await demo.put_secret("given", token="")
        await demo.condition("Ready", "SecretUnavailable", "False")
        await demo.change(operatorAccess={"tokenSecretRef": None, "disabled": True})
        await demo.condition("Ready", "Pending", "False")
        await demo.change(licenseSecretRef=None)
        await demo.condition("Ready", "AllReady", "True")
        await demo.roll_out(0)
        await demo.condition("Ready", "NoReplicasReady", "False")


PLANES = [f"plane-{number:02}" for number in range(50)]
HANGING, WELL = PLANES[:10], PLANES[10:]


async def checked(demo: PlaneNamespace) -> set[str]:
    """The control planes whose coderd was queried."""
    pages = demo.client.list(CONTROL_PLANE, demo.namespace)
    planes = [CoderControlPlane.decode(item) async for page in pages for item in page.items]
    return {each.metadata.name for each in planes if each.status.entitlements_last_checked is not None}


async def serve(demo: PlaneNamespace, names: list[str]) -> None:
    for name in names:
        await demo.roll_out(name=name)


async def test_hanging_coderds_do_not_delay_other_control_planes(
    demo: PlaneNamespace, operator_kubeconfig: Path
) -> None:
    """All the others are reconciled while each of the ten waits for a response."""
    await demo.delete(CONTROL_PLANE, demo.key.name)
    for name in PLANES:
        metadata = {"namespace": demo.namespace, "name": name}
        access = {"tokenSecretRef": {"name": "given"}}
        await demo.client.create(CONTROL_PLANE, {"metadata": metadata, "spec": {"operatorAccess": access}})
    port = free_port()
    routes = {
        Endpoint(f"{name}.{demo.namespace}.svc.cluster.local", 80): Endpoint(
            "127.0.0.1", port if name in HANGING else demo.coderd.port
        )
        for name in PLANES
    }
    options: dict[str, Any] = {"connect_to": routes, "limits": Limits(total=100)}
    async with (
        Operator(operator_kubeconfig, [demo.namespace], wiring.build, **options),
        CoderdServer(port=port) as hanging,  # its end also ends the pending requests
    ):
        hanging.state.set(latency=1000)
        await serve(demo, HANGING)
        await eventually(lambda: sum(hanging.state.requests.values()) == len(HANGING), 60)
        await serve(demo, WELL)

        async def done() -> bool:
            return await checked(demo) == set(WELL)

        await eventually(done, 60)
        assert sum(hanging.state.requests.values()) == len(HANGING), "each gets one request"
