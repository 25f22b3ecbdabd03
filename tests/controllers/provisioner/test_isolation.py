"""Tokens and keys of one control plane are sent to no other."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace


@pytest.fixture
async def two(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProvisionerNamespace]:
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace, planes=("a", "b")) as place:
        for name in place.planes:
            await place.make_plane(name)
        yield place


async def move(place: ProvisionerNamespace, operator: Operator, **spec: Any) -> None:
    """Move the provisioner to the other control plane and wait for its key."""
    await place.change(controlPlaneRef={"name": "b"}, **spec)
    await eventually(lambda: place.planes["b"].keys)
    await place.condition("ProvisionerKeyReady", "KeyReady", "True")
    await operator.wait_idle()


async def roll_out(place: ProvisionerNamespace, operator: Operator) -> None:
    """Roll out the pods."""
    for daemon in list(place.planes["a"].coderd.state.daemons):
        place.planes["a"].coderd.state.disconnect_daemon(daemon)
    await place.roll_out_daemons(plane="b")
    place.clock.advance(seconds=11)
    await place.set_plane_status("b", **place.fresh("entitled"))
    await operator.reconcile(place.key)
    await place.condition("Ready", "AllReady")


def leaked(place: ProvisionerNamespace) -> set[str]:
    """Tokens and keys that were sent to the wrong server."""
    a, b = place.planes["a"], place.planes["b"]
    return a.presented & b.presented


async def test_operator_tokens(two: ProvisionerNamespace) -> None:
    a, b = two.planes["a"], two.planes["b"]
    async with two.operator() as operator:
        await two.make()
        await two.ready(operator)
        keys = {key.secret for key in a.keys.values()}
        await move(two, operator)
        assert set(a.keys) == set(b.keys) == {"build"}
        await roll_out(two, operator)
        await eventually(lambda: not a.keys)
        [container] = (await two.deployment()).manifest["spec"]["template"]["spec"]["containers"]
        assert container["env"][0]["value"].startswith("http://b.")
    assert a.token in a.presented
    assert b.token in b.presented
    assert keys <= a.presented
    assert not leaked(two)
    status = (await two.get()).status
    assert (status.control_plane_ref_name, status.retiring_keys) == ("b", [])
    [event] = await two.events("ProvisionerKeyRotated")
    assert event["note"].endswith("(control plane changed)")


async def test_bootstrap_tokens(two: ProvisionerNamespace) -> None:
    """The token of the spec is for the control plane of the spec; the operator's token deletes the old key."""
    a, b = two.planes["a"], two.planes["b"]
    given = {name: plane.coderd.state.add_token(plane.coderd.state.owner) for name, plane in two.planes.items()}
    for name, token in given.items():
        await two.put_secret(f"given-{name}", token=token)
    async with two.operator() as operator:
        await two.make(bootstrap={"credentialsSecretRef": {"name": "given-a"}})
        await two.ready(operator)
        assert a.token not in a.presented
        await move(two, operator, bootstrap={"credentialsSecretRef": {"name": "given-b"}})
        await roll_out(two, operator)
        await eventually(lambda: not a.keys)
    assert {given["a"], a.token} <= a.presented
    assert given["b"] in b.presented
    assert not leaked(two)


async def test_old_control_plane_without_access(two: ProvisionerNamespace) -> None:
    """The key cannot be deleted there: an event reports it."""
    a = two.planes["a"]
    await two.put_secret("given", token=two.planes["b"].token)
    async with two.operator() as operator:
        await two.make()
        await two.ready(operator)
        no_access = {"spec": {"operatorAccess": {"disabled": True}}}
        await two.client.merge(CONTROL_PLANE, Key(two.namespace, "a"), no_access)
        await two.set_plane_status("a", operatorAccessReady=False, operatorTokenSecretRef=None)
        await move(two, operator, bootstrap={"credentialsSecretRef": {"name": "given"}})
        [event] = await eventually(lambda: two.events("ProvisionerKeyLeaked"))
        await roll_out(two, operator)
    assert "key build in organization default of CoderControlPlane a" in event["note"]
    assert set(a.keys) == {"build"}
    assert (await two.get()).status.retiring_keys == []
    assert not leaked(two)


async def test_old_control_plane_is_temporarily_unavailable(two: ProvisionerNamespace) -> None:
    """The operator waits for a token and does not give up."""
    a = two.planes["a"]
    async with two.operator() as operator:
        await two.make()
        await two.ready(operator)
        await two.set_plane_status("a", operatorAccessReady=False)
        await move(two, operator)
        await roll_out(two, operator)
        assert set(a.keys) == {"build"}
        assert [key.control_plane_ref_name for key in (await two.get()).status.retiring_keys] == ["a"]
        await two.set_plane_status("a", operatorAccessReady=True)
        await eventually(lambda: not a.keys)
        assert not await two.events("ProvisionerKeyLeaked")
    assert not leaked(two)


async def test_old_control_plane_is_deleted(two: ProvisionerNamespace) -> None:
    async with two.operator() as operator:
        await two.make()
        await two.ready(operator)
        await two.delete(CONTROL_PLANE, "a")
        await move(two, operator)
        await eventually(lambda: two.events("ProvisionerKeyLeaked"))
        await roll_out(two, operator)
    assert not leaked(two)


async def test_name_taken_at_the_new_control_plane(two: ProvisionerNamespace) -> None:
    """The new key gets another name; the existing key is not changed."""
    a, b = two.planes["a"], two.planes["b"]
    theirs = b.coderd.state.add_key("build")
    async with two.operator() as operator:
        await two.make()
        await two.ready(operator)
        await two.change(controlPlaneRef={"name": "b"})
        await eventually(lambda: len(b.keys) == 2)
        await two.condition("ProvisionerKeyReady", "KeyReady", "True")
        await operator.wait_idle()
        await roll_out(two, operator)
        await eventually(lambda: not a.keys)
    assert b.keys["build"].secret == theirs
    assert not leaked(two)


async def test_new_control_plane_is_unavailable(two: ProvisionerNamespace) -> None:
    """Pods with the key of one control plane never connect to the other."""
    a, b = two.planes["a"], two.planes["b"]
    b.coderd.state.set(failing=True)
    async with two.operator() as operator:
        await two.make()
        await two.ready(operator)
        before = await two.deployment()
        await two.change(controlPlaneRef={"name": "b"}, replicas=3)
        await two.condition("ProvisionerKeyReady", "Failed", "Unknown")
        await operator.reconcile(two.key)
        assert await two.deployment() == before
        assert await two.stored() == a.keys["build"].secret
    assert not leaked(two)


async def test_secret_of_another_operator(two: ProvisionerNamespace) -> None:
    """The key of a Secret without an origin is sent to no coderd once a new key is recorded."""
    a, b = two.planes["a"], two.planes["b"]
    async with two.operator() as operator:
        await two.make()
        await two.ready(operator)
    secret = Key(two.namespace, "build-provisioner-key")
    await two.client.merge(SECRET, secret, {"metadata": {"annotations": {"coder.com/control-plane": None}}})
    await two.change(controlPlaneRef={"name": "b"})
    b.coderd.state.set(failing=True)
    async with two.operator() as operator:
        await two.condition("ProvisionerKeyReady", "Failed", "Unknown")
        await operator.wait_idle()
        b.coderd.state.set(failing=False)
        await operator.reconcile(two.key)
        await two.condition("ProvisionerKeyReady", "KeyReady", "True")
        await roll_out(two, operator)
        await eventually(lambda: not a.keys)
    assert not leaked(two)
