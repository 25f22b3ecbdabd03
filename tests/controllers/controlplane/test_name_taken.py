"""Objects of the same name that belong to another owner are neither used nor changed."""

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.coderd_server import make_license
from coder_k8s.kube.kinds import DEPLOYMENT, INGRESS, SERVICE
from coder_k8s.kube.objects import Kind, Manifest, Unstructured
from tests.support.controlplanes import PlaneNamespace, env, operator_tokens
from tests.support.databases import CoderdDatabase
from tests.support.kstatus import kstatus

LABELS = {"app.kubernetes.io/name": "coder", "app.kubernetes.io/managed-by": "Helm"}


async def put_release(demo: PlaneNamespace, *kinds: Kind[Unstructured]) -> list[Unstructured]:
    """Create the objects of a Helm release with the name of the control plane; its pods are ready."""
    container = {"name": "coder", "image": "ghcr.io/coder/coder:v2.36.1"}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    specs: dict[str, Manifest] = {
        "Deployment": {"selector": {"matchLabels": LABELS}, "template": template},
        "Service": {"selector": LABELS, "ports": [{"port": 80}]},
    }
    metadata = {"namespace": demo.namespace, "name": demo.key.name, "labels": LABELS}
    for kind in kinds:
        await demo.client.create(kind, {"metadata": metadata, "spec": specs[kind.name]})
    if DEPLOYMENT in kinds:
        await demo.roll_out()
    return [await demo.client.get(kind, demo.key) for kind in kinds]


async def make(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await demo.put_secret("license", license=make_license(demo.clock()))
    await demo.make(extraEnv=env(database.url), licenseSecretRef={"name": "license"})


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((DEPLOYMENT, SERVICE), id="both"),
        pytest.param((DEPLOYMENT,), id="Deployment"),
        pytest.param((SERVICE,), id="Service"),
    ],
)
async def test_coderd_of_another_owner_gets_no_request(
    demo: PlaneNamespace, database: CoderdDatabase, kinds: tuple[Kind[Unstructured], ...]
) -> None:
    before = await put_release(demo, *kinds)
    await make(demo, database)
    async with demo.operator() as operator:
        taken = await demo.condition("Ready", "NameTaken", "False")
        assert f"{kinds[0].name} {demo.key.name} exists" in taken.message
        if DEPLOYMENT not in kinds:
            await demo.roll_out()
        await operator.wait_idle()
        await operator.later(minutes=5)
        conditions = await demo.conditions()
        assert (conditions["Stalled"], conditions["OperatorAccessReady"]) == (
            ("True", "NameTaken"),
            ("Unknown", "Pending"),
        )
        assert (conditions["LicenseApplied"], conditions["EntitlementsKnown"]) == (
            ("False", "Pending"),
            ("Unknown", "Pending"),
        )
        assert kstatus(await demo.client.get_manifest(CONTROL_PLANE, demo.key)) == "Failed"
        status = (await demo.get()).status
        assert not status.operator_access_ready
        if DEPLOYMENT in kinds:
            assert conditions["Available"] == ("False", "NoReplicasReady")
            assert (status.phase, status.replicas, status.ready_replicas, status.image) == ("Pending", 0, 0, "")
    assert sum(demo.coderd.state.requests.values()) == 0
    assert await operator_tokens(database) == []
    assert await demo.token() == ""
    assert [await demo.client.get(kind, demo.key) for kind in kinds] == before


async def test_service_of_another_owner_is_not_exposed(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """Its URL is not published either: provisioners would send their tokens to it."""
    await put_release(demo, SERVICE)
    await demo.make(extraEnv=env(database.url), expose={"ingress": {"host": "coder.example.com"}})
    async with demo.operator() as operator:
        exposed = await demo.condition("Exposed", "NameTaken", "False")
        assert exposed.message == "Service demo exists and has no owner; rename this object or delete the other one"
        await operator.wait_idle()
        assert await demo.find(INGRESS, demo.key.name) is None
        assert (await demo.get()).status.url == ""
        await demo.delete(SERVICE, demo.key.name)
        await operator.reconcile()
        await demo.condition("Exposed", "Applied", "True")
        assert (await demo.get()).status.url


async def test_exposure_of_a_service_that_was_taken_over_stays(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await demo.make(extraEnv=env(database.url), expose={"ingress": {"host": "coder.example.com"}})
    async with demo.operator():
        await demo.condition("Exposed", "Applied", "True")
        url = (await demo.get()).status.url
        await demo.client.merge(SERVICE, demo.key, {"metadata": {"ownerReferences": None}})
        await demo.condition("Exposed", "NameTaken", "False")
        assert await demo.find(INGRESS, demo.key.name) is not None
        assert (await demo.get()).status.url == url


async def test_it_continues_when_the_name_is_free(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    await put_release(demo, DEPLOYMENT, SERVICE)
    await make(demo, database)
    async with demo.operator() as operator:
        await demo.condition("Ready", "NameTaken", "False")
        for kind in (DEPLOYMENT, SERVICE):
            await demo.delete(kind, demo.key.name)
        await operator.reconcile()
        await demo.condition("OperatorAccessReady", "TokenReady", "True")
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")


async def test_deployment_that_was_released_is_no_longer_used(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    """A user removed the owner reference to keep the pods."""
    await make(demo, database)
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        await demo.client.merge(DEPLOYMENT, demo.key, {"metadata": {"ownerReferences": None}})
        await demo.condition("Ready", "NameTaken", "False")
        status = (await demo.get()).status
        assert (status.phase, status.ready_replicas, status.operator_access_ready) == ("Pending", 0, False)
        await operator.wait_idle()
        asked = sum(demo.coderd.state.requests.values())
        await operator.later(minutes=5)
        assert sum(demo.coderd.state.requests.values()) == asked
