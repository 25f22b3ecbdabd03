"""The lifecycle of a provisioner: its children, and its cleanup."""

import base64
import logging
from dataclasses import replace
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.dev.coderd_server import User
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Kind, Unstructured
from tests.support import eventually
from tests.support.history import recording
from tests.support.kstatus import kstatus
from tests.support.provisioners import ProvisionerNamespace

QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", Unstructured)

FINALIZER = "coder.com/provisioner-key-cleanup"
SECRET_NAME = "build-provisioner-key"


async def test_create(place: ProvisionerNamespace) -> None:
    """With all defaults."""
    async with place.operator() as operator:
        await place.make()
        await place.condition("DeploymentReady", "NoReplicasReady", "False")
        await place.condition("Reconciling", "NoReplicasReady", "True")
        assert (await place.get()).status.phase == "Pending"
        found = await place.ready(operator)
    key = place.keys["build"]
    status = found.status
    assert found.metadata.finalizers == [FINALIZER]
    assert await place.stored() == key.secret
    assert (status.provisioner_key_name, status.provisioner_key_id) == ("build", key.id)
    assert (status.organization_name, status.organization_id) == ("default", key.organization)
    assert (status.control_plane_ref_name, status.tags_hash) == ("demo", "811c9dc5")
    assert status.control_plane_url == f"http://demo.{place.namespace}.svc.cluster.local:80"
    assert status.secret_ref is not None
    assert (status.secret_ref.name, status.secret_ref.key) == (SECRET_NAME, "key")
    assert (status.phase, status.replicas, status.ready_replicas) == ("Ready", 1, 1)
    assert status.key_created == key.created_at
    assert status.daemons is not None
    assert (status.daemons.connected, status.daemons.versions) == (1, ["v2.36.1"])
    assert await place.conditions() == {
        "Ready": ("True", "AllReady"),
        "Reconciling": ("False", "UpToDate"),
        "Stalled": ("False", "UpToDate"),
        "ControlPlaneReady": ("True", "ControlPlaneAvailable"),
        "OperatorAccessReady": ("True", "OperatorAccessReady"),
        "ExternalProvisionersEntitled": ("True", "Entitled"),
        "ProvisionerKeyReady": ("True", "KeyReady"),
        "ProvisionerKeySecretReady": ("True", "SecretReady"),
        "DeploymentReady": ("True", "MinimumReplicasReady"),
        "DaemonsConnected": ("True", "DaemonsConnected"),
        "WorkspaceRBACReady": ("True", "Applied"),
    }
    reasons = [event["reason"] for event in await place.events()]
    assert reasons == ["ProvisionerKeyCreated", "Ready"]


async def test_children(place: ProvisionerNamespace) -> None:
    async with place.operator():
        await place.make(
            replicas=2, tags={"env": "gpu"}, extraArgs=["--verbose"], extraEnv=[{"name": "A", "value": "b"}]
        )
        await place.condition("ProvisionerKeyReady", "KeyReady")
    spec = (await place.deployment()).manifest["spec"]
    own = {
        "app.kubernetes.io/name": "coder-provisioner",
        "app.kubernetes.io/instance": "build",
        "app.kubernetes.io/managed-by": "coder-k8s",
    }
    template = spec["template"]
    [container] = template["spec"]["containers"]
    assert (spec["replicas"], spec["selector"]["matchLabels"], template["metadata"]["labels"]) == (2, own, own)
    assert template["metadata"]["annotations"] == {"checksum/provisioner-key": fnv1a32((await place.stored()).encode())}
    assert template["spec"]["serviceAccountName"] == "build-provisioner"
    assert template["spec"]["terminationGracePeriodSeconds"] == 600
    assert (container["name"], container["image"]) == ("provisioner", "coder:v2.36.1")
    assert (container["command"], container["args"]) == (["coder"], ["provisioner", "start", "--verbose"])
    assert container["env"] == [
        {"name": "CODER_URL", "value": f"http://demo.{place.namespace}.svc.cluster.local:80"},
        {
            "name": "CODER_PROVISIONER_DAEMON_KEY",
            "valueFrom": {"secretKeyRef": {"name": SECRET_NAME, "key": "key"}},
        },
        {"name": "A", "value": "b"},
    ]
    assert place.keys["build"].tags == {"env": "gpu"}
    role = (await place.find(ROLE, "provisioner-build")).manifest
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": verbs}]
    binding = (await place.find(ROLE_BINDING, "provisioner-build")).manifest
    assert binding["subjects"][0]["name"] == "build-provisioner"
    for kind, name in (
        (SERVICE_ACCOUNT, "build-provisioner"),
        (SECRET, SECRET_NAME),
        (DEPLOYMENT, "provisioner-build"),
    ):
        child = await place.find(kind, name)
        assert (child.controller.kind, child.controller.name) == ("CoderProvisioner", "build")
        assert own.items() <= child.metadata.labels.items()


async def test_permissions_follow_the_spec(place: ProvisionerNamespace) -> None:
    async with place.operator():
        await place.make(enableDeployments=True)
        await place.condition("ProvisionerKeyReady", "KeyReady")
        rules = (await place.find(ROLE, "provisioner-build")).manifest["rules"]
        assert [rule["resources"] for rule in rules] == [["pods", "persistentvolumeclaims"], ["deployments"]]
        await place.change(workspacePermissions=False)
        await eventually(lambda: gone(place, ROLE, "provisioner-build"))
        await eventually(lambda: gone(place, ROLE_BINDING, "provisioner-build"))
        await place.change(workspacePermissions=True)
        await eventually(lambda: place.find(ROLE_BINDING, "provisioner-build"))


async def gone(place: ProvisionerNamespace, kind: Any, name: str) -> bool:
    return await place.find(kind, name) is None


async def test_long_names(place: ProvisionerNamespace) -> None:
    """The longest names that Kubernetes and coderd allow."""
    name = "p" * 253
    async with place.operator():
        await place.make(name, key={"name": "k" * 64})
        await place.condition("ProvisionerKeyReady", "KeyReady", name=name)
        assert set(place.keys) == {"k" * 64}
        await place.change(name, tags={"env": "gpu"})
        await eventually(lambda: len(place.keys) == 2)
        await place.condition("ProvisionerKeyReady", "KeyReady", name=name)
        await place.make("q" * 253)
        await place.condition("ProvisionerKeyReady", "KeyReady", name="q" * 253)
    assert all(len(key) <= 64 for key in place.keys)
    status = (await place.get(name)).status
    assert status.provisioner_key_name.endswith("-0002")
    for kind, namer, limit in (
        (DEPLOYMENT, "provisioner-{}", 63),
        (SERVICE_ACCOUNT, "{}-provisioner", 63),
        (SECRET, "{}-provisioner-key", 253),
    ):
        derived = namer.format("p" * (limit - len(namer) + 2 - 9) + "-" + fnv1a32(name.encode()))
        assert await place.find(kind, derived) is not None


async def test_intermediate_status_is_not_ready(place: ProvisionerNamespace) -> None:
    """Tools that wait for the object see no intermediate status as ready."""
    async with recording(place.client, place.namespace, PROVISIONER) as [history], place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await history.until("build", lambda state: kstatus(state) == "Current")
    states = [state for state in history.of("build") if "status" in state]
    assert [kstatus(state) for state in states[:-1]] == ["InProgress"] * (len(states) - 1)


async def test_existing_secret_of_another_owner(place: ProvisionerNamespace) -> None:
    """It is neither read nor written, and no key is created."""
    await place.put_secret(SECRET_NAME, key="theirs")
    async with place.operator() as operator:
        await place.make()
        condition = await place.condition("ProvisionerKeySecretReady", "NameTaken", "False")
        assert SECRET_NAME in condition.message
        await place.condition("Stalled", "NameTaken", "True")
        assert await place.stored() == "theirs"
        assert not place.keys
        await operator.wait_idle()
        assert (operator.requeue_after() or 999) <= 60
        await place.delete(SECRET, SECRET_NAME)
        await eventually(lambda: not operator.informers[SECRET].get(Key(place.namespace, SECRET_NAME)))
        await operator.reconcile(place.key)
        await place.condition("ProvisionerKeySecretReady", "SecretReady", "True")
    assert await place.stored() == place.keys["build"].secret


async def test_secret_moves_without_rotation(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        before = await place.ready(operator)
        secret = await place.stored()
        await place.change(key={"secretName": "elsewhere"})
        await place.condition("ProvisionerKeySecretReady", "SecretReady")
        await eventually(lambda: holds(place, secret, "elsewhere", "key"))
        assert await place.stored() == secret  # pods still run with it
        await place.ready(operator)
        await eventually(lambda: gone(place, SECRET, SECRET_NAME))
        await place.change(key={"secretKey": "other"})
        await eventually(lambda: holds(place, secret, "elsewhere", "other"))
        after = await place.ready(operator)
    assert after.status.provisioner_key_id == before.status.provisioner_key_id
    assert after.status.secret_ref is not None
    assert (after.status.secret_ref.name, after.status.secret_ref.key) == ("elsewhere", "other")
    assert set(place.keys) == {"build"}
    [container] = (await place.deployment()).manifest["spec"]["template"]["spec"]["containers"]
    assert container["env"][1]["valueFrom"]["secretKeyRef"] == {"name": "elsewhere", "key": "other"}


async def test_no_key_is_created_that_cannot_be_stored(place: ProvisionerNamespace) -> None:
    """With an exhausted quota of Secrets, the dry run fails before a key is created in coderd."""
    quota = await fill_quota(place)
    async with place.operator() as operator:
        await place.make()
        refused = await place.condition("ProvisionerKeySecretReady", "Forbidden", "False")
        assert "exceeded quota" in refused.message
        for _ in range(3):
            await operator.reconcile(place.key)
        assert 30 < (operator.requeue_after() or 0) <= 60
        assert place.plane.request_count("POST") == place.plane.request_count("DELETE") == 0
        assert (await place.get()).status.provisioner_key_name == ""
        await place.client.delete(QUOTA, quota, unchanged=False)
        await operator.reconcile(place.key)
        await place.ready(operator)
    assert await place.stored() == place.keys["build"].secret


async def test_old_key_stays_while_a_new_one_cannot_be_stored(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        quota = await fill_quota(place)
        await place.delete(SECRET, SECRET_NAME)
        await place.condition("ProvisionerKeySecretReady", "Forbidden", "False")
        await operator.wait_idle()
        assert set(place.keys) == {"build"}
        assert place.plane.request_count("POST") == 1
        assert (await place.get()).status.provisioner_key_name == "build"
        assert 30 < (operator.requeue_after() or 0) <= 60
        await place.client.delete(QUOTA, quota, unchanged=False)
        await operator.reconcile(place.key)
        await place.ready(operator)
        await eventually(lambda: len(place.keys) == 1)
    [key] = place.keys.values()
    assert key.name.startswith("build-")
    assert await place.stored() == key.secret


async def fill_quota(place: ProvisionerNamespace) -> Unstructured:
    """Allow no further Secret in the namespace."""
    full = {"count/secrets": "0"}
    metadata = {"namespace": place.namespace, "name": "none"}
    quota = await place.client.create(QUOTA, {"metadata": metadata, "spec": {"hard": full}})
    return await place.client.merge(QUOTA, quota.key, {"status": {"hard": full, "used": full}}, "status")


async def holds(place: ProvisionerNamespace, secret: str, name: str, field: str) -> bool:
    return await place.stored(name, field) == secret


async def test_secret_moves_to_a_taken_name(place: ProvisionerNamespace) -> None:
    """The Secret that pods use stays until there is another one."""
    await place.put_secret("theirs", key="theirs")
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        secret, template = await place.stored(), (await place.deployment()).manifest["spec"]["template"]
        await place.change(key={"secretName": "theirs"})
        await place.condition("ProvisionerKeySecretReady", "NameTaken")
        await operator.reconcile(place.key)
        assert await place.stored() == secret
        assert (await place.deployment()).manifest["spec"]["template"] == template
        await place.change(key={"secretName": None})
        await place.condition("Ready", "AllReady")


async def test_lost_status_is_filled_in(place: ProvisionerNamespace) -> None:
    """The working key is found in coderd and kept."""
    async with place.operator() as operator:
        await place.make(tags={"env": "gpu", "empty": ""})
        before = await place.ready(operator)
    names = [name for name in msgspec_names(before) if name != "conditions"]
    await place.client.merge(PROVISIONER, place.key, {"status": dict.fromkeys(names)}, "status")
    assert (await place.get()).status.provisioner_key_id == ""
    generation = (await place.deployment()).metadata.generation
    async with place.operator() as operator:
        await operator.wait_idle()
        after = await place.get()
    assert after.status.provisioner_key_id == before.status.provisioner_key_id
    assert after.status.tags_hash == before.status.tags_hash
    assert set(place.keys) == {"build"}
    assert (await place.deployment()).metadata.generation == generation
    assert not await place.events("ProvisionerKeyRotated")


def msgspec_names(found: Any) -> list[str]:
    return list(found.status.__struct_encode_fields__)


async def test_restart_changes_nothing(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
    asked = place.plane.request_count()
    async with place.operator() as operator:
        await operator.wait_idle()
        await operator.reconcile(place.key)
        assert operator.writes() == 0
    assert place.plane.request_count() - asked <= 2


async def test_delete(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: gone(place, PROVISIONER, "build"))
        assert not place.keys
        await eventually(lambda: 'name="build"' not in operator.metrics())
    assert not await place.events("ProvisionerKeyLeaked")


async def test_delete_a_key_of_any_name(place: ProvisionerNamespace) -> None:
    """The path is encoded as Go does it; otherwise coderd does not find the key."""
    async with place.operator() as operator:
        await place.make(key={"name": "Env=Prod:a+b@c&d,e;f$g ü%3D"})
        await place.condition("ProvisionerKeyReady", "KeyReady")
        await operator.wait_idle()
        assert set(place.keys) == {"env=prod:a+b@c&d,e;f$g ü%3d"}
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: gone(place, PROVISIONER, "build"))
    assert not place.keys


async def test_hidden_key_is_not_deleted(place: ProvisionerNamespace) -> None:
    """coderd returns 404 to a user who lost the permission to read keys."""
    state = place.plane.coderd.state
    user = User("builder", ("owner",))
    token = state.add_token(user)
    await place.put_secret("mine", token=token)
    async with place.operator() as operator:
        await place.make(bootstrap={"credentialsSecretRef": {"name": "mine"}})
        await place.ready(operator)
        state.add_token(replace(user, roles=()), token)
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: deleting(place))
        await operator.reconcile(place.key)
        assert await place.find(PROVISIONER, "build") is not None
        place.clock.advance(minutes=6)
        await operator.reconcile(place.key)
        await eventually(lambda: gone(place, PROVISIONER, "build"))
        [event] = await eventually(lambda: place.events("ProvisionerKeyLeaked"))
    assert "key build in organization default" in event["note"]
    assert set(place.keys) == {"build"}


async def test_deletion_follows_the_status(place: ProvisionerNamespace) -> None:
    """Not the spec: also the retiring key, in its own organization."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.change(organizationName="acme")
        await eventually(lambda: "build" in place.plane.acme.state.keys)
        await place.condition("ProvisionerKeyReady", "KeyReady")
    await place.change(organizationName="nowhere", key={"name": "other"})
    await place.delete(PROVISIONER, "build")
    async with place.operator():
        await eventually(lambda: gone(place, PROVISIONER, "build"))
    assert not place.keys
    assert not place.plane.acme.state.keys


async def test_delete_without_control_plane(place: ProvisionerNamespace) -> None:
    """Nothing is attempted, and an event names the leaked key."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.delete(CONTROL_PLANE, "demo")
        await place.condition("ControlPlaneReady", "ControlPlaneMissing", "False")
        await operator.wait_idle()
        asked = place.plane.request_count()
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: gone(place, PROVISIONER, "build"))
        await operator.wait_idle()
    assert place.plane.request_count() == asked
    [leaked] = await place.events("ProvisionerKeyLeaked")
    assert "build" in leaked["note"]


async def test_delete_with_a_control_plane_that_is_being_deleted(place: ProvisionerNamespace) -> None:
    """The operator creates no new key there, and deletes the existing one."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        await place.client.merge(CONTROL_PLANE, Key(place.namespace, "demo"), hold)
        await place.delete(CONTROL_PLANE, "demo")
        await place.condition("ControlPlaneReady", "ControlPlaneMissing", "False")
        await place.annotate(rotate_key="now")
        await operator.wait_idle()
        assert len(place.keys) == 1
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: gone(place, PROVISIONER, "build"))
        await operator.wait_idle()
    assert not place.keys
    assert not await place.events("ProvisionerKeyLeaked")


async def test_deletion_is_bounded(place: ProvisionerNamespace) -> None:
    """While coderd is unavailable, the deletion waits for a limited time; then an event names the leaked key."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        place.plane.coderd.state.set(failing=True)
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: deleting(place))
        await operator.wait_idle()
        place.clock.advance(minutes=4, seconds=30)
        await operator.reconcile(place.key)
        assert await place.find(PROVISIONER, "build") is not None
        assert 0 < (operator.requeue_after() or 0) <= 5
        place.clock.advance(minutes=1)
        await operator.reconcile(place.key)
        await eventually(lambda: gone(place, PROVISIONER, "build"))
        [event] = await eventually(lambda: place.events("ProvisionerKeyLeaked"))
    assert "key build in organization default of CoderControlPlane demo" in event["note"]


async def test_deletion_waits_for_credentials(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.set_plane_status("demo", operatorAccessReady=False)
        await place.delete(PROVISIONER, "build")
        await eventually(lambda: deleting(place))
        await operator.reconcile(place.key)
        assert "build" in place.keys
        await place.set_plane_status("demo", operatorAccessReady=True)
        await eventually(lambda: gone(place, PROVISIONER, "build"))
    assert not place.keys


async def deleting(place: ProvisionerNamespace) -> bool:
    return (await place.get()).deleting


async def test_pause(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        await place.annotate(paused="true")
        await place.condition("Ready", "Paused", "Unknown")
        await place.change(tags={"env": "gpu"}, replicas=3)
        await place.delete(SECRET, SECRET_NAME)
        await operator.wait_idle()
        writes = operator.write_requests()
        await operator.reconcile(place.key)
        assert operator.write_requests() == writes
        assert set(place.keys) == {"build"}
        await place.delete(PROVISIONER, "build")
        await operator.reconcile(place.key)
        assert set(place.keys) == {"build"}
        await place.annotate(paused=None)
        await eventually(lambda: gone(place, PROVISIONER, "build"))
    assert not place.keys


async def test_no_finalizer_without_a_key(place: ProvisionerNamespace) -> None:
    await place.set_plane_status("demo", **place.fresh("not_entitled"))
    async with place.operator():
        await place.make()
        await place.condition("ExternalProvisionersEntitled", "NotEntitled")
        assert (await place.get()).metadata.finalizers == []
        await place.delete(PROVISIONER, "build")
        assert await place.find(PROVISIONER, "build") is None


async def test_secrets_stay_secret(place: ProvisionerNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """Neither log nor event nor status nor any object but the Secret has a key or a token."""
    caplog.set_level(logging.DEBUG)
    state = place.plane.coderd.state
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        secrets = {await place.stored(), place.plane.token}
        await place.change(tags={"env": "gpu"})
        await place.condition("ProvisionerKeyReady", "KeyReady")
        secrets.add(await place.stored())
        for failure in ({"failing": True}, {"failing": False, "cut": True}, {"cut": False, "database_down": True}):
            state.set(**failure)
            await place.put_secret("some", key="thing")
            await place.client.merge(
                SECRET, Key(place.namespace, SECRET_NAME), {"data": {"key": encoded("garbage-canary")}}
            )
            place.clock.advance(minutes=3)
            await operator.reconcile(place.key)
        state.set(database_down=False)
        metrics = operator.metrics()
        deployment = (await place.deployment()).content.decode()
        events = str(await place.events())
    texts = [metrics, deployment, events, str((await place.get()).status), caplog.text]
    assert len(secrets) == 3
    for secret in (*secrets, "garbage-canary"):
        assert not any(secret in text or encoded(secret) in text for text in texts)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
