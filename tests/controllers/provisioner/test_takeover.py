"""Provisioners of the Go operator are adopted unchanged: no key is rotated and no pod restarts."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.controllers.cleanup import PROVISIONER_FINALIZER as FINALIZER
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server.records import StoredKey
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind, Manifest, key_of
from tests.support import eventually
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace
from tests.support.takeover import recorded, set_by

RECORDED = recorded(Path(__file__).with_name("takeover.json"))
KINDS: dict[str, Kind[Any]] = {
    kind.name: kind for kind in (CONTROL_PLANE, PROVISIONER, DEPLOYMENT, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT)
}
LONG = "a-provisioner-with-a-name-that-is-long-enough-to-be-cut-short-by-all-limits"
TOKEN = "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB"


@pytest.fixture
async def taken(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProvisionerNamespace]:
    """The recorded objects and their coderd."""
    async with (
        provisioner_namespace(
            cluster.kubeconfig, operator_kubeconfig, namespace, planes=["prov"], version="2.30.0"
        ) as place,
        Http(load(cluster.kubeconfig), "test", Metrics()) as http,
    ):
        await load_record(place, Client(http, "coder-k8s"))
        yield place


async def load_record(place: ProvisionerNamespace, operator: Client) -> None:
    """Write the recorded objects to this namespace with the recorded field manager."""
    state = place.plane.coderd.state
    state.add_token(state.owner, TOKEN)
    [state.organization_id] = {
        item["status"]["organizationID"] for item in RECORDED if item["kind"] == PROVISIONER.name
    }
    state.organizations = {"coder": state.organization_id}
    text = json.dumps(RECORDED).replace('"golden"', f'"{place.namespace}"').replace(".golden.", f".{place.namespace}.")
    owners = [item for item in RECORDED if item["kind"].startswith("Coder")]
    for number, owner in enumerate(owners):
        item = json.loads(text)[number]
        metadata = {name: item["metadata"][name] for name in ("name", "namespace", "finalizers")}
        made = await place.client.create(KINDS[item["kind"]], {"metadata": metadata, "spec": item["spec"]})
        await operator.merge(KINDS[item["kind"]], made.key, {"status": item["status"]}, "status")
        text = text.replace(owner["metadata"]["uid"], made.metadata.uid)
        if item["kind"] == "CoderProvisioner":
            remember_key(place, item)
    for item in json.loads(text)[len(owners) :]:
        given = set_by("coder-k8s", item)
        key = key_of(item)
        named = {**given["metadata"], "name": key.name, "namespace": key.namespace}
        await operator.create(KINDS[item["kind"]], {**given, "metadata": named})


def remember_key(place: ProvisionerNamespace, provisioner: Manifest) -> None:
    """Create the key of the status in coderd."""
    state, status = place.plane.coderd.state, provisioner["status"]
    secret = next(item for item in RECORDED if item["metadata"]["name"] == status["secretRef"]["name"])
    plain = base64.b64decode(secret["data"][status["secretRef"]["key"]]).decode()
    name, tags = status["provisionerKeyName"], provisioner["spec"].get("tags", {})
    state.keys[name] = StoredKey(status["provisionerKeyID"], name, state.organization_id, tags, plain, place.clock())


async def children(place: ProvisionerNamespace) -> dict[tuple[str, str], Manifest]:
    found = {}
    for item in RECORDED:
        if not item["kind"].startswith("Coder"):
            name = item["metadata"]["name"]
            found[item["kind"], name] = (await place.find(KINDS[item["kind"]], name)).manifest
    return found


def content(manifest: Manifest) -> Manifest:
    """The content that must not change: all but our metadata, `minReadySeconds`, and a verb that the Role lacks."""
    spec = {name: value for name, value in manifest.get("spec", {}).items() if name != "minReadySeconds"}
    others = {name: manifest.get(name) for name in ("data", "roleRef", "subjects")}
    rules = [{**rule, "verbs": set(rule["verbs"]) - {"deletecollection"}} for rule in manifest.get("rules", [])]
    return {"uid": manifest["metadata"]["uid"], "spec": spec, "rules": rules, **others}


async def is_steady(place: ProvisionerNamespace) -> bool:
    return all([await has_reconciled(place, name) for name in ("build", LONG)])


async def has_reconciled(place: ProvisionerNamespace, name: str) -> bool:
    """The Go operator reports neither `Ready` nor daemons."""
    return {"Ready", "DaemonsConnected"} <= (await place.conditions(name)).keys()


async def test_takeover(taken: ProvisionerNamespace) -> None:
    before, keys = await children(taken), dict(taken.keys)
    status = {name: (await taken.get(name)).status for name in ("build", LONG)}
    async with taken.operator() as operator:
        await eventually(lambda: is_steady(taken))
        await operator.wait_idle()
        after = await children(taken)
        assert {name: content(child) for name, child in after.items()} == {
            name: content(child) for name, child in before.items()
        }
        assert taken.keys == keys
        assert taken.plane.request_count("POST") == taken.plane.request_count("DELETE") == 0
        for name, old in status.items():
            new = (await taken.get(name)).status
            assert new.provisioner_key_id == old.provisioner_key_id
            assert new.secret_ref == old.secret_ref
            assert new.retiring_keys == []
            assert (await taken.get(name)).metadata.finalizers == [FINALIZER]
            await taken.condition("WorkspaceRBACReady", "Applied", "True", name=name)
    async with taken.operator() as again:
        await again.wait_idle()
        assert again.writes() == 0


async def test_adopted_objects_follow_the_spec(taken: ProvisionerNamespace) -> None:
    """Fields that the Go operator set are removed when the spec no longer has them."""
    name = "provisioner-a-provisioner-with-a-name-that-is-long-eno-be886d0e"
    async with taken.operator():
        await eventually(lambda: is_steady(taken))
        await taken.change(
            LONG, extraArgs=None, extraEnv=None, imagePullSecrets=None, resources=None, image="coder:latest"
        )

        async def follows() -> bool:
            pod = (await taken.deployment(name)).manifest["spec"]["template"]["spec"]
            [container] = pod["containers"]
            assert container["image"] == "coder:latest"
            assert container["imagePullPolicy"] == "Always"
            assert container["args"] == ["provisioner", "start"]
            assert [entry["name"] for entry in container["env"]] == ["CODER_URL", "CODER_PROVISIONER_DAEMON_KEY"]
            assert not container["resources"]
            assert "imagePullSecrets" not in pod
            return True

        await eventually(follows)
    assert set(taken.keys) == {"build", "my-key"}


async def test_rotation_after_takeover(taken: ProvisionerNamespace) -> None:
    """A key of the Go operator belongs to the object: it retires when a new one exists."""
    async with taken.operator():
        await eventually(lambda: is_steady(taken))
        await taken.change("build", tags={"env": "cpu"})
        await eventually(lambda: "build-0002" in taken.keys)
        await taken.condition("ProvisionerKeyReady", "KeyReady", name="build")
        secret = await taken.client.get(SECRET, Key(taken.namespace, "build-provisioner-key"))
    assert base64.b64decode(secret.manifest["data"]["key"]).decode() == taken.keys["build-0002"].secret
