"""A policy that rejects finalizers: children follow the spec, and nothing that needs a cleanup is created."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.controllers.cleanup import CONTROL_PLANE_FINALIZER, PROVISIONER_FINALIZER, PROXY_FINALIZER
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import DEPLOYMENT, SERVICE
from tests.support.controlplanes import PlaneNamespace, database, demo, env, operator_tokens
from tests.support.databases import CoderdDatabase
from tests.support.policies import REFUSED, drop_finalizers, without_finalizers
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace
from tests.support.workspaceproxies import ProxyNamespace, proxy_namespace

__all__ = ["database", "demo"]


async def test_control_plane_is_deployed_and_gets_no_token(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await demo.make(extraEnv=env(database.url))
    async with without_finalizers(demo.client, CONTROL_PLANE, demo.key), demo.operator() as operator:
        stalled = await demo.condition("Stalled", "Forbidden", "True")
        assert CONTROL_PLANE_FINALIZER in stalled.message
        assert REFUSED in stalled.message
        assert (await demo.event("Forbidden"))["note"] == stalled.message
        await demo.roll_out()
        await demo.change(replicas=2)
        await demo.condition("OperatorAccessReady", "Forbidden", "Unknown")
        await operator.wait_idle()
        deployment, service = await demo.find(DEPLOYMENT, "demo"), await demo.find(SERVICE, "demo")
        assert deployment is not None
        assert (deployment.manifest["spec"]["replicas"], service is not None) == (2, True)
        assert await operator_tokens(database) == []
        before = operator.write_requests()
        await operator.reconcile()
        assert operator.write_requests() - before == 1, "only the finalizer is retried"
    async with demo.operator():
        await demo.condition("OperatorAccessReady", "TokenReady", "True")


async def test_access_of_a_control_plane_keeps_its_last_status(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await demo.make(extraEnv=env(database.url))
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        token = await demo.token()
    async with without_finalizers(demo.client, CONTROL_PLANE, demo.key):
        await drop_finalizers(demo.client, CONTROL_PLANE, demo.key)
        async with demo.operator() as operator:
            await demo.condition("OperatorAccessReady", "Forbidden", "True")
            assert (await demo.get()).status.operator_access_ready
            assert await demo.token() == token
    async with demo.operator():
        await demo.condition("Ready", "AllReady", "True")


@pytest.fixture
async def place(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProvisionerNamespace]:
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        await made.make_plane("demo")
        yield made


async def test_provisioner_gets_no_key(place: ProvisionerNamespace) -> None:
    await place.make()
    async with without_finalizers(place.client, PROVISIONER, place.key), place.operator() as operator:
        condition = await place.condition("ProvisionerKeyReady", "Forbidden", "False")
        assert PROVISIONER_FINALIZER in condition.message
        await place.condition("Stalled", "Forbidden", "True")
        await operator.wait_idle()
        assert place.keys == {}


async def test_deployment_of_a_provisioner_follows_the_spec(place: ProvisionerNamespace) -> None:
    await place.make()
    async with place.operator() as operator:
        await place.ready(operator)
        async with without_finalizers(place.client, PROVISIONER, place.key):
            await drop_finalizers(place.client, PROVISIONER, place.key)
            await place.change(replicas=3, tags={"zone": "b"})
            await place.condition("ProvisionerKeyReady", "Forbidden", "False")
            assert (await place.deployment()).manifest["spec"]["replicas"] == 3
            assert len(place.keys) == 1


@pytest.fixture
async def proxies(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProxyNamespace]:
    async with proxy_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        yield made


async def test_proxy_is_not_registered(proxies: ProxyNamespace) -> None:
    await proxies.make()
    async with without_finalizers(proxies.client, WORKSPACE_PROXY, proxies.key), proxies.operator() as operator:
        condition = await proxies.condition("Registered", "Forbidden", "False")
        assert PROXY_FINALIZER in condition.message
        await proxies.condition("Stalled", "Forbidden", "True")
        await operator.wait_idle()
        assert proxies.registrations() == 0


async def test_deployment_of_a_proxy_follows_the_spec(proxies: ProxyNamespace) -> None:
    await proxies.make()
    async with proxies.operator() as operator:
        await proxies.ready(operator)
        async with without_finalizers(proxies.client, WORKSPACE_PROXY, proxies.key):
            await drop_finalizers(proxies.client, WORKSPACE_PROXY, proxies.key)
            await proxies.change(replicas=3)
            await proxies.condition("Registered", "Forbidden", "False")
            assert (await proxies.deployment()).manifest["spec"]["replicas"] == 3
            assert proxies.registrations() == 1
