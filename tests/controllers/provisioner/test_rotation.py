"""Keys are rotated without downtime for every cause; keys of other owners are not changed."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.controllers.provisioner import records
from coder_k8s.controllers.provisioner.wiring import CHILDREN
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Manifest
from tests.support import eventually
from tests.support.children import collect_garbage, managed
from tests.support.operators import Operator
from tests.support.provisioners import ProvisionerNamespace

SECRET_NAME = "build-provisioner-key"
CHECKSUM = "checksum/provisioner-key"


async def lose_secret(place: ProvisionerNamespace) -> None:
    await place.delete(SECRET, SECRET_NAME)


async def empty_secret(place: ProvisionerNamespace) -> None:
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"data": {"key": ""}})


async def spoil_secret(place: ProvisionerNamespace) -> None:
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"data": {"key": "Z2FyYmFnZQ=="}})


async def change_url(place: ProvisionerNamespace) -> None:
    await place.client.merge(CONTROL_PLANE, Key(place.namespace, "demo"), {"spec": {"service": {"port": 8080}}})
    await place.set_plane_status("demo", url=f"http://demo.{place.namespace}.svc.cluster.local:8080")


async def ask(place: ProvisionerNamespace) -> None:
    await place.annotate(rotate_key="once")


async def delete_key(place: ProvisionerNamespace) -> None:
    place.plane.coderd.state.delete_key("build")
    place.clock.advance(minutes=2)


async def wait(place: ProvisionerNamespace) -> None:
    place.clock.advance(hours=24)
    await place.set_plane_status("demo", **place.fresh("entitled"))


async def change_tags(place: ProvisionerNamespace) -> None:
    await place.change(tags={"env": "gpu"})


async def change_name(place: ProvisionerNamespace) -> None:
    await place.change(key={"name": "Other"})


NUMBERED = "{}-[0-9a-f]{{4}}"
"""The name of a key beside another; the digits depend on how often the operator retried."""

CAUSES: dict[str, tuple[Callable[[ProvisionerNamespace], Awaitable[None]], str, str]] = {
    "secret lost": (lose_secret, "SecretLost", NUMBERED.format("build")),
    "secret emptied": (empty_secret, "SecretLost", NUMBERED.format("build")),
    "secret spoiled": (spoil_secret, "SecretLost", NUMBERED.format("build")),
    "tags": (change_tags, "TagsChanged", NUMBERED.format("build")),
    "name": (change_name, "NameChanged", NUMBERED.format("other")),
    "asked": (ask, "Requested", NUMBERED.format("build")),
    "interval": (wait, "IntervalElapsed", NUMBERED.format("build")),
    "deleted in coderd": (delete_key, "KeyDeleted", "build"),
}


@pytest.mark.parametrize("why", CAUSES)
async def test_rotation(place: ProvisionerNamespace, why: str) -> None:
    """The new key is in the Secret while daemons still use the old one; then the old one is deleted."""
    happen, cause, pattern = CAUSES[why]
    async with place.operator() as operator:
        await place.make(key={"rotation": {"interval": "24h"}})
        before = await place.ready(operator)
        secret = await place.stored()
        await happen(place)
        await operator.reconcile(place.key)
        name = await eventually(lambda: next((it for it, key in place.keys.items() if key.secret != secret), ""))
        assert re.fullmatch(pattern, name)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
        await operator.wait_idle()
        old = {"build"} if why != "deleted in coderd" else set()
        assert set(place.keys) == {*old, name}
        assert await place.stored() == place.keys[name].secret != secret
        during = await place.get()
        assert [key.id for key in during.status.retiring_keys] == [before.status.provisioner_key_id]
        assert during.status.provisioner_key_name == name
        template = (await place.deployment()).manifest["spec"]["template"]
        assert template["metadata"]["annotations"][CHECKSUM] == fnv1a32(place.keys[name].secret.encode())

        after = await place.ready(operator)
        await eventually(lambda: set(place.keys) == {name})
        [event] = await eventually(lambda: place.events("ProvisionerKeyRotated"))
        words = " ".join(re.findall("[A-Z][a-z]+", cause)).lower()
        assert event["note"] == f"Rotated key build to {name} ({words})"
        assert f'cause="{cause}"' in operator.metrics()
        await operator.reconcile(place.key)
        assert set(place.keys) == {name}
    assert after.status.provisioner_key_id == place.keys[name].id != before.status.provisioner_key_id
    assert (await place.get()).status.retiring_keys == []
    assert len(await place.events("ProvisionerKeyRetired")) == len(old)


async def test_every_key_has_another_name(place: ProvisionerNamespace) -> None:
    """Each key exists beside the previous one, so no rotation waits for a name."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        for turn, name in enumerate(("build-0002", "build-0004", "build-0006")):
            await place.annotate(rotate_key=str(turn))
            await eventually(lambda: place.keys.get(name))  # noqa: B023 - awaited at once
            await place.condition("ProvisionerKeyReady", "KeyReady")
            await place.ready(operator)
            await eventually(lambda: set(place.keys) == {name})  # noqa: B023 - awaited at once
        for _ in range(3):
            await operator.reconcile(place.key)
    assert set(place.keys) == {"build-0006"}


async def test_another_url_of_the_same_coderd(place: ProvisionerNamespace) -> None:
    """As with TLS, or another port: a key that coderd still has is kept."""
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        await change_url(place)
        url = f"http://demo.{place.namespace}.svc.cluster.local:8080"
        await eventually(lambda: has_url(place, url))
        await operator.wait_idle()
        after = await place.get()
        [container] = (await place.deployment()).manifest["spec"]["template"]["spec"]["containers"]
    assert container["env"][0]["value"] == url
    assert after.status.provisioner_key_id == before.status.provisioner_key_id
    assert set(place.keys) == {"build"}
    assert not await place.events("ProvisionerKeyRotated")


async def has_url(place: ProvisionerNamespace, url: str) -> bool:
    return (await place.get()).status.control_plane_url == url


async def test_another_url_of_another_coderd(place: ProvisionerNamespace) -> None:
    """One that does not have the key."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.delete_key("build")
        await change_url(place)
        [event] = await eventually(lambda: place.events("ProvisionerKeyRotated"))
        assert event["note"].endswith("to build (control plane changed)")
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
    assert await place.stored() == place.keys["build"].secret


async def test_organization(place: ProvisionerNamespace) -> None:
    """A key of the same name in the other organization is another key."""
    acme = place.plane.acme.state
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.change(organizationName="acme")
        await eventually(lambda: acme.keys.get("build"))
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
        assert await place.stored() == acme.keys["build"].secret
        assert set(place.keys) == {"build"}
        await place.roll_out_daemons(ready=0)
        acme.connect_daemon("build-0", "build")
        place.clock.advance(seconds=11)
        await place.change(replicas=0)
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await place.roll_out_daemons(ready=0)
        await eventually(lambda: not place.keys)
    status = (await place.get()).status
    assert (status.organization_name, status.organization_id) == ("acme", acme.keys["build"].organization)
    [event] = await place.events("ProvisionerKeyRotated")
    assert event["note"].endswith("(organization changed)")


async def test_another_name_of_the_organization(place: ProvisionerNamespace) -> None:
    """The default organization is named coder: nothing changes."""
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        await place.change(organizationName="coder")
        await place.condition("Ready", "AllReady")
        await operator.wait_idle()
    assert set(place.keys) == {"build"}
    assert (await place.get()).status.provisioner_key_id == before.status.provisioner_key_id


async def test_renamed_organization(place: ProvisionerNamespace) -> None:
    """In coderd, and then in the manifest: its keys are kept, and a retiring key is deleted."""
    state = place.plane.coderd.state
    state.add_organization("gpu")
    async with place.operator() as operator:
        await place.make(organizationName="gpu")
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
        [key] = place.keys.values()
        await place.annotate(rotate_key="now")
        await eventually(lambda: len(place.keys) == 2)
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
        state.rename_organization("gpu", "tpu")
        place.clock.advance(minutes=2)
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await operator.reconcile(place.key)
        assert (await place.conditions())["ProvisionerKeyReady"] == ("True", "KeyReady")
        await place.change(organizationName="tpu", replicas=0)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
        await operator.wait_idle()
        found = await place.get()
        assert found.status.organization_name == "tpu"
        assert found.status.organization_id == key.organization
        assert [each.organization_id for each in found.status.retiring_keys] == [key.organization]
        await place.roll_out_daemons(ready=0)
        await eventually(lambda: len(place.keys) == 1)
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: not place.keys)
    assert len(await place.events("ProvisionerKeyRotated")) == 1
    assert not await place.events("ProvisionerKeyLeaked")


async def test_missing_organization(place: ProvisionerNamespace) -> None:
    async with place.operator():
        await place.make(organizationName="nowhere")
        condition = await place.condition("ProvisionerKeyReady", "OrganizationNotFound", "False")
        user = "the operator's user of CoderControlPlane demo"
        assert condition.message == (
            f"Coder has no organization nowhere, or {user} cannot see it; correct organizationName, or add the user to "
            "the organization"
        )
        await place.condition("Stalled", "OrganizationNotFound", "True")
        await place.change(organizationName="default")
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")


async def rotate(place: ProvisionerNamespace, operator: Operator) -> None:
    """Rotate: the new pods are ready while an old daemon still runs a job."""
    await place.make(terminationGracePeriodSeconds=3600)
    await place.ready(operator)
    await place.annotate(rotate_key="now")
    await eventually(lambda: place.keys.get("build-0002"))
    await place.condition("ProvisionerKeyReady", "KeyReady")
    await operator.wait_idle()
    await place.roll_out_daemons()
    place.plane.coderd.state.connect_daemon("build-old", "build", "busy")


async def test_old_key_waits_for_its_last_daemon(place: ProvisionerNamespace) -> None:
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await rotate(place, operator)
        for _ in range(3):
            place.clock.advance(minutes=5)
            await operator.reconcile(place.key)
            assert set(place.keys) == {"build", "build-0002"}
            assert (operator.requeue_after() or 0) <= 10
        [old] = [daemon for daemon in state.daemons.values() if daemon.name == "build-old"]
        state.set_daemon(old.id, "offline")
        place.clock.advance(seconds=10)
        await operator.reconcile(place.key)
        assert set(place.keys) == {"build-0002"}
        await operator.reconcile(place.key)
        assert (operator.requeue_after() or 0) > 60


def pod(place: ProvisionerNamespace, name: str, checksum: str) -> Manifest:
    """A pod as the Deployment controller creates it."""
    labels = {
        "app.kubernetes.io/name": "coder-provisioner",
        "app.kubernetes.io/instance": "build",
        "app.kubernetes.io/managed-by": "coder-k8s",
    }
    metadata = {"namespace": place.namespace, "name": name, "labels": labels, "annotations": {CHECKSUM: checksum}}
    spec = {"containers": [{"name": "provisioner", "image": "coder"}], "automountServiceAccountToken": False}
    return {"metadata": metadata, "spec": spec}


async def put_pod(place: ProvisionerNamespace, name: str, checksum: str) -> None:
    if await place.find(SERVICE_ACCOUNT, "default") is None:
        await place.client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": place.namespace, "name": "default"}})
    await place.client.create(POD, pod(place, name, checksum))


async def test_old_key_is_deleted_after_its_pods_and_grace_period(place: ProvisionerNamespace) -> None:
    """coderd may still list a daemon that died; an old pod that exists counts as well."""
    async with place.operator() as operator:
        await rotate(place, operator)
        await put_pod(place, "build-old", "an-older-key")
        await eventually(lambda: operator.informers[POD].get(place.key_of("build-old")))
        place.clock.advance(hours=2)
        await operator.reconcile(place.key)
        assert set(place.keys) == {"build", "build-0002"}
        await place.delete(POD, "build-old")
        await eventually(lambda: not operator.informers[POD].get(place.key_of("build-old")))
        await operator.reconcile(place.key)
        assert set(place.keys) == {"build-0002"}


async def test_old_key_waits_for_the_rollout(place: ProvisionerNamespace) -> None:
    """However long it takes, and although coderd lists no daemon."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.annotate(rotate_key="now")
        await eventually(lambda: place.keys.get("build-0002"))
        place.plane.coderd.state.daemons.clear()
        for _ in range(3):
            place.clock.advance(hours=1)
            await place.set_plane_status("demo", **place.fresh("entitled"))
            await operator.reconcile(place.key)
        assert set(place.keys) == {"build", "build-0002"}


async def moved(place: ProvisionerNamespace, secret: str) -> bool:
    return await place.stored("elsewhere", "key") == secret


async def test_three_keys_may_retire(place: ProvisionerNamespace) -> None:
    """A further rotation waits until one of them is deleted; meanwhile pods follow the spec."""
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await rotate(place, operator)
        for turn, name in enumerate(("build-0004", "build-0006")):
            await place.annotate(rotate_key=str(turn))
            await eventually(lambda: place.keys.get(name))  # noqa: B023 - awaited at once
            await place.condition("ProvisionerKeyReady", "KeyReady")
            await operator.wait_idle()
        await place.change(tags={"env": "gpu"}, image="coder:next")
        condition = await place.condition("ProvisionerKeyReady", "Rotating", "True")
        assert "(tags changed)" in condition.message
        await place.condition("Ready", "Rotating", "False")
        assert len(place.keys) == 4
        [container] = (await place.deployment()).manifest["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "coder:next"
        secret = await place.stored()
        await place.change(key={"secretName": "elsewhere"})  # new pods need it there, or the rollout does not complete
        await eventually(lambda: moved(place, secret))
        await operator.wait_idle()
        await place.roll_out_daemons()
        live, seen = await place.deployment(), operator.informers[DEPLOYMENT]
        await eventually(lambda: seen.get(live.key) == live)  # this reconcile may not have seen the daemons yet
        await operator.wait_idle()
        place.clock.advance(seconds=11)
        await operator.reconcile(place.key)
        await eventually(lambda: place.keys.get("build-0008"))
        assert place.keys["build-0008"].tags == {"env": "gpu"}
        state.daemons.clear()
        await place.ready(operator)
        await eventually(lambda: set(place.keys) == {"build-0008"})


async def test_secret_lost_while_keys_retire(place: ProvisionerNamespace) -> None:
    """Without a Secret no pod starts, so no key could retire: a new key is created at once, and none is deleted."""
    async with place.operator() as operator:
        await rotate(place, operator)
        before = dict(place.keys)
        await place.delete(SECRET, SECRET_NAME)
        await eventually(lambda: place.keys.get("build-0004"))
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
        assert await place.stored() == place.keys["build-0004"].secret
        assert before.items() <= place.keys.items()
        assert [key.name for key in (await place.get()).status.retiring_keys] == ["build", "build-0002"]
        place.plane.coderd.state.daemons.clear()
        await place.ready(operator)
        await eventually(lambda: set(place.keys) == {"build-0004"})


async def test_foreign_key_of_the_same_name(place: ProvisionerNamespace) -> None:
    """It is not changed, and the key of this object gets another name."""
    theirs = place.plane.coderd.state.add_key("build")
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        [event] = await eventually(lambda: place.events("ProvisionerKeyNameTaken"))
        assert "key build that" in event["note"]
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: set(place.keys) == {"build"})
    assert place.keys["build"].secret == theirs


async def test_name_taken_during_the_request(place: ProvisionerNamespace) -> None:
    """The response proves that the key belongs to another owner."""
    state = place.plane.coderd.state

    def steal(request: web.Request) -> None:
        if request.method == "POST" and not state.keys:
            state.add_key("build", {"env": "gpu"})

    place.plane.before = steal
    async with place.operator() as operator:
        await place.make(tags={"env": "gpu"})
        await place.ready(operator)
        assert set(place.keys) == {"build", "build-0001"}
        assert (await place.get()).status.retiring_keys == []
        [event] = await eventually(lambda: place.events("ProvisionerKeyNameTaken"))
        taken = "Coder already has a provisioner key build that this object did not create"
        assert event["note"] == f"{taken}; using the name build-0001 instead"
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: set(place.keys) == {"build"})


async def test_two_objects_with_the_same_key_name(place: ProvisionerNamespace) -> None:
    """Applied at once: each gets its own key, and neither changes the other's."""
    names = ("one", "two", "three")
    async with place.operator() as operator:
        await asyncio.gather(*(place.make(name, key={"name": "shared"}) for name in names))
        for name in names:
            await place.ready(operator, name)
        assert len(place.keys) == 3
        for name in names:
            found = await place.get(name)
            key = place.keys[found.status.provisioner_key_name]
            assert found.status.provisioner_key_id == key.id
            assert await place.stored(f"{name}-provisioner-key") == key.secret
        for _ in range(2):
            place.clock.advance(minutes=2)
            await operator.reconcile(*(place.key_of(name) for name in names))
    assert len(place.keys) == 3
    assert "shared" in place.keys


async def test_alternating_names_of_an_earlier_version(place: ProvisionerNamespace) -> None:
    """Provisioners build and build-2 do not block each other."""
    async with place.operator() as operator:
        for name in ("build", "build-2"):
            await place.make(name)
            await place.ready(operator, name)
        await place.annotate("build", rotate_key="now")
        await eventually(lambda: "build-0002" in place.keys)
        await place.ready(operator)
        await place.annotate("build-2", rotate_key="now")
        await eventually(lambda: "build-2-0004" in place.keys)
        await place.ready(operator, "build-2")
        await eventually(lambda: set(place.keys) == {"build-0002", "build-2-0004"})


async def test_delete_all_and_apply_again(place: ProvisionerNamespace) -> None:
    """Also while coderd still has the old keys, because they could not be deleted."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.set(failing=True)
        asked = place.plane.request_count("GET", "provisionerkeys")
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: place.plane.request_count("GET", "provisionerkeys") > asked)
        await operator.wait_idle()
        place.clock.advance(minutes=6)
        await operator.reconcile(place.key)
        await eventually(lambda: place.events("ProvisionerKeyLeaked"))
        place.plane.coderd.state.set(failing=False)
        left = dict(place.keys)
        await collect_garbage(place.client, await managed(place.client, CHILDREN, [place.namespace]))
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await place.make()
        await place.ready(operator)
    assert left.items() <= place.keys.items()
    assert set(place.keys) == {"build", "build-0002"}


async def test_lost_response(place: ProvisionerNamespace) -> None:
    """The key that was created is deleted, and created again under the recorded name."""
    state = place.plane.coderd.state
    state.set(unanswered="POST")
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "Failed", "Unknown")
        await operator.wait_idle()
        [lost] = place.keys.values()
        found = await place.get()
        assert (found.status.provisioner_key_name, found.status.provisioner_key_id) == ("build", "")
        assert found.status.key_requested == place.clock() - records.GRANULARITY
        state.set(unanswered="")
        await operator.reconcile(place.key)
        await place.ready(operator)
        [made] = place.keys.values()
    assert made.name == lost.name == "build"
    assert made.id != lost.id


async def test_name_that_becomes_free_again(place: ProvisionerNamespace) -> None:
    """A key whose response was lost belongs to the object, even if its name was rejected before."""
    state = place.plane.coderd.state

    def steal(request: web.Request) -> None:
        if request.method == "POST" and not state.keys:
            state.add_key("build")
            place.plane.before = lambda request: None

    place.plane.before = steal
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        assert set(place.keys) == {"build", "build-0001"}
        state.delete_key("build")
        state.delete_key("build-0001")
        state.set(unanswered="POST")
        place.clock.advance(minutes=2)
        await operator.reconcile(place.key)
        await place.condition("ProvisionerKeyReady", "Failed", "Unknown")
        state.set(unanswered="")
        await place.set_plane_status("demo", **place.fresh("entitled"))
        await operator.reconcile(place.key)
        await place.ready(operator)
    assert set(place.keys) == {"build"}


@pytest.mark.parametrize("why", ["older", "other tags", "in use"])
async def test_lost_response_and_a_foreign_key(place: ProvisionerNamespace, why: str) -> None:
    """A key of the same name that the request cannot have created is not changed."""
    state = place.plane.coderd.state
    state.set(unanswered="POST")
    async with place.operator() as operator:
        await place.make()
        await place.condition("ProvisionerKeyReady", "Failed", "Unknown")
        await operator.wait_idle()
        state.delete_key("build")
        state.add_key("build", {"other": "tags"} if why == "other tags" else {})
        theirs = place.keys["build"]
        if why == "older":
            theirs = state.keys["build"] = replace(theirs, created_at=theirs.created_at - timedelta(seconds=2))
        if why == "in use":
            state.connect_daemon("theirs", "build")
        state.set(unanswered="")
        await operator.reconcile(place.key)
        await place.ready(operator)
        assert place.keys["build"] == theirs
        assert set(place.keys) == {"build", "build-0001"}
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: set(place.keys) == {"build"})


async def test_records_of_an_earlier_version(place: ProvisionerNamespace) -> None:
    """Retiring keys have names without IDs; they are deleted, and no key is rotated."""
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
    state.add_key("build-2")
    retiring = {"name": "build-2", "organizationName": "default", "controlPlaneRefName": "demo"}
    status = {"organizationID": "", "retiringKeys": [retiring]}
    await place.client.merge(PROVISIONER, place.key, {"status": status}, "status")
    async with place.operator() as operator:
        await eventually(lambda: set(place.keys) == {"build"})
        await operator.wait_idle()
        after = await place.get()
    assert after.status.retiring_keys == []
    assert after.status.organization_id == before.status.organization_id == state.organization_id
    assert after.status.provisioner_key_id == before.status.provisioner_key_id


async def test_key_replaced_by_a_user(place: ProvisionerNamespace) -> None:
    """A key that a user created under the same name is foreign: the new key gets another name."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.delete_key("build")
        theirs = place.plane.coderd.state.add_key("build")
        place.clock.advance(minutes=2)
        await operator.reconcile(place.key)
        await place.ready(operator)
        assert set(place.keys) == {"build", "build-0002"}
        await operator.reconcile(place.key)
    assert place.keys["build"].secret == theirs


@pytest.mark.parametrize("fits", [True, False])
async def test_adoption(place: ProvisionerNamespace, fits: bool) -> None:
    """A key whose secret is in the Secret belongs to the object; it is kept if it matches the spec."""
    secret = place.plane.coderd.state.add_key("build", {"env": "gpu" if fits else "cpu"})
    await place.set_plane_status("demo", operatorAccessReady=False)
    made = await place.make(tags={"env": "gpu"})
    owner: dict[str, Any] = {"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "build"}
    await place.put_secret(SECRET_NAME, key=secret)
    references = [{**owner, "uid": made.metadata.uid, "controller": True}]
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"metadata": {"ownerReferences": references}})
    async with place.operator() as operator:
        await place.condition("OperatorAccessReady", "OperatorAccessNotReady", "False")
        await place.set_plane_status("demo", operatorAccessReady=True)
        await place.condition("ProvisionerKeyReady", "KeyReady", "True")
        found = await place.ready(operator)
        await eventually(lambda: len(place.keys) == 1)
    assert found.status.provisioner_key_name == ("build" if fits else "build-0001")
    assert place.keys[found.status.provisioner_key_name].tags == {"env": "gpu"}
    assert (await place.stored() == secret) is fits


async def test_unlabelled_secret(place: ProvisionerNamespace) -> None:
    """A removed label does not cause a rotation."""
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        await place.client.merge(
            SECRET,
            Key(place.namespace, SECRET_NAME),
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
        )
        await eventually(lambda: labelled(place))
        await operator.wait_idle()
    assert (await place.get()).status.provisioner_key_id == before.status.provisioner_key_id
    assert set(place.keys) == {"build"}


async def labelled(place: ProvisionerNamespace) -> bool:
    found = await place.find(SECRET, SECRET_NAME)
    return "app.kubernetes.io/managed-by" in found.metadata.labels


async def test_interval_is_kept(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make(key={"rotation": {"interval": "1h"}})
        await place.ready(operator)
        created = (await place.get()).status.key_created
        assert created is not None
        place.clock.time = created + timedelta(seconds=3599)
        await operator.reconcile(place.key)
        assert set(place.keys) == {"build"}
        assert 0 < (operator.requeue_after() or 0) <= 1
        place.clock.advance(seconds=1)
        await operator.reconcile(place.key)
        assert "build-0002" in place.keys
