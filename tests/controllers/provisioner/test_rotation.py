"""Keys are replaced for every cause, without a gap; what is not ours is left alone."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Manifest
from tests.support import eventually
from tests.support.provisioners import Operator, Yard

SECRET_NAME = "build-provisioner-key"
CHECKSUM = "checksum/provisioner-key"


async def lose_secret(place: Yard) -> None:
    await place.delete(SECRET, SECRET_NAME)


async def empty_secret(place: Yard) -> None:
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"data": {"key": ""}})


async def spoil_secret(place: Yard) -> None:
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"data": {"key": "Z2FyYmFnZQ=="}})


async def change_url(place: Yard) -> None:
    await place.client.merge(CONTROL_PLANE, Key(place.namespace, "demo"), {"spec": {"service": {"port": 8080}}})
    await place.say("demo", url=f"http://demo.{place.namespace}.svc.cluster.local:8080")


async def ask(place: Yard) -> None:
    await place.annotate(rotate_key="once")


async def delete_key(place: Yard) -> None:
    place.plane.coderd.state.delete_key("build")
    place.clock.advance(minutes=2)


async def wait(place: Yard) -> None:
    place.clock.advance(hours=24)
    await place.say("demo", **place.fresh("entitled"))


async def change_tags(place: Yard) -> None:
    await place.change(tags={"env": "gpu"})


async def change_name(place: Yard) -> None:
    await place.change(key={"name": "Other"})


CAUSES: dict[str, tuple[Callable[[Yard], Awaitable[None]], str, str]] = {
    "secret lost": (lose_secret, "SecretLost", "build-2"),
    "secret emptied": (empty_secret, "SecretLost", "build-2"),
    "secret spoiled": (spoil_secret, "SecretLost", "build-2"),
    "tags": (change_tags, "TagsChanged", "build-2"),
    "name": (change_name, "NameChanged", "other"),
    "URL": (change_url, "ControlPlaneChanged", "build-2"),
    "asked": (ask, "Requested", "build-2"),
    "interval": (wait, "IntervalElapsed", "build-2"),
    "deleted in coderd": (delete_key, "KeyDeleted", "build-2"),
}


@pytest.mark.parametrize("why", CAUSES)
async def test_rotation(place: Yard, why: str) -> None:
    """The new key is there and in the Secret while daemons still use the old one; then that one goes."""
    happen, cause, name = CAUSES[why]
    async with place.operator() as operator:
        await place.make(key={"rotation": {"interval": "24h"}})
        before = await place.ready(operator)
        secret = await place.stored()
        await happen(place)
        await operator.look(place.key())
        await eventually(lambda: place.keys.get(name))
        await place.told("ProvisionerKeyReady", "KeyReady", "True")
        await operator.settle()
        old = {"build"} if why != "deleted in coderd" else set()
        assert set(place.keys) == {*old, name}
        assert await place.stored() == place.keys[name].secret != secret
        during = await place.get()
        assert [key.name for key in during.status.retiring_keys] == [*old]
        assert during.status.provisioner_key_name == name
        template = (await place.deployment()).manifest["spec"]["template"]
        assert template["metadata"]["annotations"][CHECKSUM] == fnv1a32(place.keys[name].secret.encode())

        after = await place.ready(operator)
        await eventually(lambda: set(place.keys) == {name})
        [event] = await eventually(lambda: place.events("ProvisionerKeyRotated"))
        assert event["note"].startswith(f"{cause}: key {name} ")
        assert f'cause="{cause}"' in operator.metrics()
        await operator.look(place.key())
        assert set(place.keys) == {name}
    assert after.status.provisioner_key_id == place.keys[name].id != before.status.provisioner_key_id
    assert (await place.get()).status.retiring_keys == []
    assert len(await place.events("ProvisionerKeyRetired")) == len(old)


async def test_key_keeps_alternating(place: Yard) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        for turn, name in enumerate(("build-2", "build", "build-2")):
            await place.annotate(rotate_key=str(turn))
            await eventually(lambda: place.keys.get(name))  # noqa: B023 - awaited at once
            await place.told("ProvisionerKeyReady", "KeyReady")
            await place.ready(operator)
            await eventually(lambda: set(place.keys) == {name})  # noqa: B023 - awaited at once
        for _ in range(3):
            await operator.look(place.key())
    assert set(place.keys) == {"build-2"}


async def test_organization(place: Yard) -> None:
    """The namesake in the other organization is another key."""
    acme = place.plane.acme.state
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.change(organizationName="acme")
        await eventually(lambda: acme.keys.get("build"))
        await place.told("ProvisionerKeyReady", "KeyReady")
        await operator.settle()
        assert await place.stored() == acme.keys["build"].secret
        assert set(place.keys) == {"build"}
        await place.roll_out(ready=0)
        acme.connect_daemon("build-0", "build")
        place.clock.advance(seconds=11)
        await place.change(replicas=0)
        await place.told("ProvisionerKeyReady", "KeyReady")
        await place.roll_out(ready=0)
        await eventually(lambda: not place.keys)
    status = (await place.get()).status
    assert (status.organization_name, status.organization_id) == ("acme", acme.keys["build"].organization)
    [event] = await place.events("ProvisionerKeyRotated")
    assert event["note"].startswith("OrganizationChanged")


async def test_another_name_of_the_organization(place: Yard) -> None:
    """The default organization is called coder: nothing changes."""
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        await place.change(organizationName="coder")
        await place.told("Ready", "AllPartsReady")
        await operator.settle()
    assert set(place.keys) == {"build"}
    assert (await place.get()).status.provisioner_key_id == before.status.provisioner_key_id


async def test_missing_organization(place: Yard) -> None:
    async with place.operator():
        await place.make(organizationName="nowhere")
        await place.told("ProvisionerKeyReady", "Failed", "False")
        await place.told("Stalled", "Failed", "True")
        await place.change(organizationName="default")
        await place.told("ProvisionerKeyReady", "KeyReady", "True")


async def rotate(place: Yard, operator: Operator) -> None:
    """A rotation whose new pods are ready while a daemon of the old ones still works."""
    await place.make(terminationGracePeriodSeconds=3600)
    await place.ready(operator)
    await place.annotate(rotate_key="now")
    await eventually(lambda: place.keys.get("build-2"))
    await place.told("ProvisionerKeyReady", "KeyReady")
    await operator.settle()
    await place.roll_out()
    place.plane.coderd.state.connect_daemon("build-old", "build", "busy")


async def test_old_key_waits_for_its_last_daemon(place: Yard) -> None:
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await rotate(place, operator)
        for _ in range(3):
            place.clock.advance(minutes=5)
            await operator.look(place.key())
            assert set(place.keys) == {"build", "build-2"}
            assert (operator.look_again(place.key()) or 0) <= 10
        [old] = [daemon for daemon in state.daemons.values() if daemon.name == "build-old"]
        state.set_daemon(old.id, "offline")
        place.clock.advance(seconds=10)
        await operator.look(place.key())
        assert set(place.keys) == {"build-2"}
        await operator.look(place.key())
        assert (operator.look_again(place.key()) or 0) > 60


def pod(place: Yard, name: str, checksum: str) -> Manifest:
    """A pod as the Deployment's controller makes it."""
    labels = {
        "app.kubernetes.io/name": "coder-provisioner",
        "app.kubernetes.io/instance": "build",
        "app.kubernetes.io/managed-by": "coder-k8s",
    }
    metadata = {"namespace": place.namespace, "name": name, "labels": labels, "annotations": {CHECKSUM: checksum}}
    spec = {"containers": [{"name": "provisioner", "image": "coder"}], "automountServiceAccountToken": False}
    return {"metadata": metadata, "spec": spec}


async def put_pod(place: Yard, name: str, checksum: str) -> None:
    if await place.find(SERVICE_ACCOUNT, "default") is None:
        await place.client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": place.namespace, "name": "default"}})
    await place.client.create(POD, pod(place, name, checksum))


async def test_old_key_goes_when_its_pods_and_their_time_are_gone(place: Yard) -> None:
    """coderd may believe in a daemon that died without a word; an old pod that is still there is believed, too."""
    async with place.operator() as operator:
        await rotate(place, operator)
        await put_pod(place, "build-old", "an-older-key")
        await eventually(lambda: operator.runtime.informers[POD].get(place.key("build-old")))
        place.clock.advance(hours=2)
        await operator.look(place.key())
        assert set(place.keys) == {"build", "build-2"}
        await place.delete(POD, "build-old")
        await eventually(lambda: not operator.runtime.informers[POD].get(place.key("build-old")))
        await operator.look(place.key())
        assert set(place.keys) == {"build-2"}


async def test_old_key_waits_for_the_rollout(place: Yard) -> None:
    """However long it takes, and although coderd sees no daemon at all."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.annotate(rotate_key="now")
        await eventually(lambda: place.keys.get("build-2"))
        place.plane.coderd.state.daemons.clear()
        for _ in range(3):
            place.clock.advance(hours=1)
            await place.say("demo", **place.fresh("entitled"))
            await operator.look(place.key())
        assert set(place.keys) == {"build", "build-2"}


async def moved(place: Yard, secret: str) -> bool:
    return await place.stored("elsewhere", "key") == secret


async def test_next_rotation_waits_for_the_last(place: Yard) -> None:
    async with place.operator() as operator:
        await rotate(place, operator)
        await place.change(tags={"env": "gpu"}, image="coder:next")
        told = await place.told("ProvisionerKeyReady", "Rotating", "True")
        assert "TagsChanged" in told.message
        await place.told("Ready", "Rotating", "False")
        [container] = (await place.deployment()).manifest["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "coder:next"
        secret = await place.stored()
        await place.change(key={"secretName": "elsewhere"})  # new pods need it there, or the rollout never ends
        await eventually(lambda: moved(place, secret))
        await place.roll_out()
        live, seen = await place.deployment(), operator.runtime.informers[DEPLOYMENT]
        await eventually(lambda: seen.get(live.key) == live)  # this wakes a pass that may not have met the daemons yet
        await operator.settle()
        place.clock.advance(seconds=11)
        await operator.look(place.key())
        await eventually(lambda: "build" in place.keys)
        assert place.keys["build"].tags == {"env": "gpu"}
        await place.ready(operator)
        await eventually(lambda: set(place.keys) == {"build"})


@pytest.mark.parametrize(("again", "kept"), [("build", "build-2"), ("build-2", "build")])
async def test_secret_lost_while_the_last_key_retires(place: Yard, again: str, kept: str) -> None:
    """Without a Secret no pod starts, so nothing would ever retire. One key is made again, and those who could take a
    job with the other still can."""
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await rotate(place, operator)
        state.daemons.clear()
        state.connect_daemon("build-working", again, "busy")
        state.connect_daemon("build-waiting", kept)
        before = dict(place.keys)
        await place.delete(SECRET, SECRET_NAME)
        await eventually(lambda: again in place.keys and place.keys[again].id != before[again].id)
        await place.told("ProvisionerKeyReady", "KeyReady")
        await operator.settle()
        assert await place.stored() == place.keys[again].secret
        assert place.keys[kept] == before[kept]
        assert [key.name for key in (await place.get()).status.retiring_keys] == [kept]
        [event] = [each for each in await place.events("ProvisionerKeyRotated") if "SecretLost" in each["note"]]
        assert event["note"] == f"SecretLost: key {again} follows {kept}"
        await place.ready(operator)
        await eventually(lambda: set(place.keys) == {again})


async def test_foreign_key_of_our_name(place: Yard) -> None:
    """Nobody's key is touched; it is ours when it goes."""
    theirs = place.plane.coderd.state.add_key("build")
    async with place.operator() as operator:
        await place.make()
        told = await place.told("ProvisionerKeyReady", "NameTaken", "False")
        assert "build" in told.message
        await place.told("Stalled", "NameTaken", "True")
        await operator.look(place.key())
        assert place.keys["build"].secret == theirs
        assert await place.stored() == ""
        place.plane.coderd.state.delete_key("build")
        place.clock.advance(minutes=2)
        await operator.look(place.key())
        await place.told("ProvisionerKeyReady", "KeyReady", "True")


async def test_foreign_key_of_the_other_name(place: Yard) -> None:
    """The daemons stay on the key that they have."""
    theirs = place.plane.coderd.state.add_key("build-2")
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        await place.annotate(rotate_key="now")
        await place.told("ProvisionerKeyReady", "NameTaken", "False")
        await operator.look(place.key())
        assert (await place.get()).status.provisioner_key_id == before.status.provisioner_key_id
        assert place.keys["build-2"].secret == theirs
        assert await place.stored() == place.keys["build"].secret


async def test_key_replaced_by_somebody(place: Yard) -> None:
    """A namesake that somebody made in place of ours is theirs: we take the other name and delete nothing."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.delete_key("build")
        theirs = place.plane.coderd.state.add_key("build")
        place.clock.advance(minutes=2)
        await operator.look(place.key())
        await place.ready(operator)
        assert set(place.keys) == {"build", "build-2"}
        await operator.look(place.key())
    assert place.keys["build"].secret == theirs


@pytest.mark.parametrize("fits", [True, False])
async def test_adoption(place: Yard, fits: bool) -> None:
    """A key whose secret our Secret holds is ours; it stays if it is what the spec asks for."""
    secret = place.plane.coderd.state.add_key("build", {"env": "gpu" if fits else "cpu"})
    await place.say("demo", operatorAccessReady=False)
    made = await place.make(tags={"env": "gpu"})
    owner: dict[str, Any] = {"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "build"}
    await place.put_secret(SECRET_NAME, key=secret)
    references = [{**owner, "uid": made.metadata.uid, "controller": True}]
    await place.client.merge(SECRET, Key(place.namespace, SECRET_NAME), {"metadata": {"ownerReferences": references}})
    async with place.operator() as operator:
        await place.told("OperatorAccessReady", "OperatorAccessNotReady", "False")
        await place.say("demo", operatorAccessReady=True)
        await place.told("ProvisionerKeyReady", "KeyReady", "True")
        found = await place.ready(operator)
        await eventually(lambda: len(place.keys) == 1)
    assert found.status.provisioner_key_name == ("build" if fits else "build-2")
    assert place.keys[found.status.provisioner_key_name].tags == {"env": "gpu"}
    assert (await place.stored() == secret) is fits


async def test_unlabelled_secret(place: Yard) -> None:
    """Who takes off a label takes away no key."""
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        await place.client.merge(
            SECRET,
            Key(place.namespace, SECRET_NAME),
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
        )
        await eventually(lambda: labelled(place))
        await operator.settle()
    assert (await place.get()).status.provisioner_key_id == before.status.provisioner_key_id
    assert set(place.keys) == {"build"}


async def labelled(place: Yard) -> bool:
    found = await place.find(SECRET, SECRET_NAME)
    return "app.kubernetes.io/managed-by" in found.metadata.labels


async def test_interval_is_kept(place: Yard) -> None:
    async with place.operator() as operator:
        await place.make(key={"rotation": {"interval": "90s"}})
        await place.ready(operator)
        created = (await place.get()).status.key_created
        assert created is not None
        place.clock.time = created + timedelta(seconds=89)
        await operator.look(place.key())
        assert set(place.keys) == {"build"}
        assert 0 < (operator.look_again(place.key()) or 0) <= 1
        place.clock.advance(seconds=1)
        await operator.look(place.key())
        assert "build-2" in place.keys
