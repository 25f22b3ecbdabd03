"""Truncated names: those of the Go operator, and those that an earlier version derived differently."""

import json
from pathlib import Path

import msgspec
import pytest

from coder_k8s.api import PROVISIONER, CoderControlPlane, CoderProvisioner
from coder_k8s.controllers.names import hashed
from coder_k8s.controllers.provisioner import objects
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Manifest
from tests.support import eventually
from tests.support.provisioners import ProvisionerNamespace
from tests.support.takeover import recorded

RECORDED = json.dumps(recorded(Path(__file__).with_name("takeover.json")))
LONG = "a-provisioner-with-a-name-that-is-long-enough-to-be-cut-short-by-all-limits"
DASHES = f"{LONG[:41]}-{LONG[42:53]}-{LONG[54:]}"
"""The same, with a dash wherever a name is truncated."""


def renamed(name: str) -> list[Manifest]:
    """The record of the long name, converted to another name of the same length."""
    text = RECORDED
    for old, new in ((LONG, name), (LONG[:54], name[:54]), (LONG[:42], name[:42]), ("be886d0e", hashed(name))):
        assert old in text
        text = text.replace(old, new)
    found: list[Manifest] = json.loads(text)
    return found


def names_by_kind(provisioner: CoderProvisioner) -> dict[str, str]:
    name = objects.deployment_name(provisioner)
    return {
        "Deployment": name,
        "Role": name,
        "RoleBinding": name,
        "Secret": objects.secret_name(provisioner),
        "ServiceAccount": objects.service_account_name(provisioner),
    }


@pytest.mark.parametrize("name", [LONG, DASHES])
def test_names_of_the_go_operator(name: str) -> None:
    items = renamed(name)
    theirs = {
        item["kind"]: item["metadata"]["name"]
        for item in items
        if any(owner["name"] == name for owner in item["metadata"].get("ownerReferences", []))
    }
    [written] = [item for item in items if (item["kind"], item["metadata"]["name"]) == (PROVISIONER.name, name)]
    provisioner = msgspec.convert(written, CoderProvisioner)
    assert names_by_kind(provisioner) == theirs
    [live] = [
        item for item in items if item["kind"] == "Deployment" and item["metadata"]["name"] == theirs["Deployment"]
    ]
    plane = msgspec.convert({"metadata": {"name": "prov", "namespace": "golden"}}, CoderControlPlane)
    made = objects.deployment(provisioner, plane, "key", "coder", 1)
    assert made["spec"]["selector"] == live["spec"]["selector"]
    assert made["spec"]["template"]["metadata"]["labels"] == live["spec"]["template"]["metadata"]["labels"]


async def test_children_of_an_earlier_version_are_replaced(place: ProvisionerNamespace) -> None:
    """They were truncated to 63 characters, without a dash at the end."""
    key, digest = Key(place.namespace, DASHES), hashed(DASHES)
    old_secret = f"{DASHES[:38]}-{digest}-provisioner-key"
    async with place.operator() as operator:
        await place.make(DASHES, key={"name": "long", "secretName": old_secret})
        await place.ready(operator, DASHES)
        secret, keys = await place.stored(old_secret), dict(place.keys)
    owner = msgspec.to_builtins(PROVISIONER.reference(await place.get(DASHES)))
    made = await place.client.get(DEPLOYMENT, Key(place.namespace, f"provisioner-{DASHES[:42]}-{digest}"))
    metadata = {"namespace": place.namespace, "labels": made.metadata.labels, "ownerReferences": [owner]}
    earlier = {
        DEPLOYMENT: f"provisioner-{DASHES[:41]}-{digest}",
        SERVICE_ACCOUNT: f"{DASHES[:41]}-{digest}-provisioner",
    }
    for kind, name in earlier.items():
        spec = {"spec": made.manifest["spec"]} if kind is DEPLOYMENT else {}
        await place.client.create(kind, {"metadata": {**metadata, "name": name}, **spec})
    await place.change(DASHES, key={"secretName": None})

    async with place.operator() as operator:
        new_secret = f"{DASHES}-provisioner-key"
        await eventually(lambda: place.find(SECRET, new_secret))
        await operator.wait_idle()
        assert await place.find(DEPLOYMENT, earlier[DEPLOYMENT]), "pods run until others do"
        await place.ready(operator, DASHES)
        await operator.reconcile(key)
        assert await place.stored(new_secret) == secret
        assert place.keys == keys
        for kind, name in (*earlier.items(), (SECRET, old_secret)):
            assert await place.find(kind, name) is None, name
