"""Objects of the Go operator are adopted unchanged.

Their pods never could start, for want of a command: that and the probes are all that changes in their template.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.labels import DIGEST
from coder_k8s.dev.coderd_server.records import Proxy
from coder_k8s.kube.client import Client
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SERVICE
from coder_k8s.kube.objects import Key, Manifest, key_of
from tests.support import eventually
from tests.support.takeover import recorded, set_by
from tests.support.workspaceproxies import FINALIZER, ProxyNamespace

RECORDED = recorded(Path(__file__).with_name("takeover.json"))
KINDS = {kind.name: kind for kind in (DEPLOYMENT, SERVICE, SECRET)}
ADDED = ("command", "readinessProbe", "livenessProbe")
ROUTE = Endpoint("prov.golden.svc.cluster.local", 80)
BOTH = ("direct", "registered")


async def load_record(place: ProxyNamespace) -> None:
    """Write the recorded objects with new owners and the recorded field manager."""
    operator = Client(place.client._http, "coder-k8s")
    text = json.dumps(RECORDED).replace('"golden"', f'"{place.namespace}"')
    for item in json.loads(text):
        if item["kind"] != "CoderWorkspaceProxy":
            continue
        metadata = {"name": item["metadata"]["name"], "namespace": place.namespace}
        made = await place.client.create(WORKSPACE_PROXY, {"metadata": metadata, "spec": item["spec"]})
        await operator.merge(WORKSPACE_PROXY, made.key, {"status": item["status"]}, "status")
        text = text.replace(item["metadata"]["uid"], made.metadata.uid)
    for item in json.loads(text):
        if (kind := KINDS.get(item["kind"])) is not None:
            given, key = set_by("coder-k8s", item), key_of(item)
            named = {**given["metadata"], "name": key.name, "namespace": key.namespace}
            await operator.create(kind, {**given, "metadata": named})
            assert set_by("coder-k8s", await operator.get_manifest(kind, key)) == given
    state = place.coderd.state
    state.proxies["registered"] = Proxy(
        "id", "registered", "Region One", "/emojis/1f1e9-1f1ea.png", "id:tok", "ok", state.now()
    )
    await place.put_secret("bootstrap-token", token=state.token)


async def snapshot(place: ProxyNamespace) -> dict[str, Manifest]:
    """The content that must not change, with UID and generation, without our annotations."""
    names = [(DEPLOYMENT, f"wsproxy-{name}") for name in BOTH] + [(SERVICE, f"wsproxy-{name}") for name in BOTH]
    found = {}
    for kind, name in [*names, (SECRET, "registered-proxy-token")]:
        manifest = (await place.client.get(kind, Key(place.namespace, name))).manifest
        manifest["metadata"].pop("resourceVersion")
        for words in ("labels", "annotations"):
            said = manifest["metadata"].pop(words, {})
            manifest["metadata"][words] = {key: value for key, value in said.items() if key != DIGEST}
        found[f"{kind.name} {name}"] = manifest
    return found


def with_allowed_changes(before: dict[str, Manifest], after: dict[str, Manifest]) -> dict[str, Manifest]:
    """The old objects with the allowed changes."""
    expected = copy.deepcopy(before)
    for name in BOTH:
        deployment = f"Deployment wsproxy-{name}"
        expected[deployment]["metadata"]["generation"] += 1
        for field in ADDED:
            container(expected[deployment])[field] = container(after[deployment])[field]
    return expected


def container(deployment: Manifest) -> dict[str, Any]:
    [found] = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("secret", [True, False], ids=["with its Secret", "without its Secret"])
async def test_takeover(place: ProxyNamespace, secret: bool) -> None:
    await load_record(place)
    if secret:
        await place.put_secret("proxy-token", token="theirs:token")
    before = await snapshot(place)
    route = {"connect_to": {ROUTE: Endpoint("127.0.0.1", place.coderd.port)}}
    async with place.operator(**route) as operator:
        await place.condition("Registered", "Registered", "True", name="registered")
        await place.condition("Registered", "NotManaged", name="direct")
        await operator.wait_idle()
        after = await snapshot(place)
        assert after == with_allowed_changes(before, after)
        for name in BOTH:
            assert container(after[f"Deployment wsproxy-{name}"])["command"] == ["/opt/coder"]
        proxy = await place.get("registered")
        assert (proxy.status.registered, proxy.status.proxy_id) == (True, "id")
        assert proxy.metadata.finalizers == [FINALIZER]
        assert (place.registrations(), place.changes()) == (0, 0)
    async with place.operator(**route) as operator:
        await operator.wait_idle()
        assert operator.writes() == 0
        await assert_adopted_objects_follow_the_spec(place)
        await place.delete(WORKSPACE_PROXY, "registered")
        await place.gone(WORKSPACE_PROXY, "registered")
    assert place.proxies == {}


async def assert_adopted_objects_follow_the_spec(place: ProxyNamespace) -> None:
    """Fields that the Go operator set are removed; values that the API server assigned stay."""
    address = (await place.find(SERVICE, "wsproxy-direct")).manifest["spec"]["clusterIP"]
    await place.change("direct", extraEnv=None, derpOnly=False, service={"annotations": None, "port": 81})

    async def follows() -> bool:
        deployment = await place.deployment("wsproxy-direct")
        assert [entry["name"] for entry in container(deployment.manifest)["env"]] == [
            "CODER_PRIMARY_ACCESS_URL",
            "CODER_PROXY_SESSION_TOKEN",
        ]
        assert "--derp-only" not in container(deployment.manifest)["args"]
        service = await place.find(SERVICE, "wsproxy-direct")
        assert "a" not in service.metadata.annotations
        assert [port["port"] for port in service.manifest["spec"]["ports"]] == [81]
        assert service.manifest["spec"]["clusterIP"] == address
        return True

    await eventually(follows)


async def test_changed_token_after_a_takeover_restarts_the_pods(place: ProxyNamespace) -> None:
    """From then on the pod template has a checksum of the token."""
    await load_record(place)
    await place.put_secret("proxy-token", token="theirs:token")
    async with place.operator(connect_to={ROUTE: Endpoint("127.0.0.1", place.coderd.port)}) as operator:
        await place.condition("TokenSecretReady", "SecretReady", name="direct")
        await operator.wait_idle()
        await place.put_secret("proxy-token", token="theirs:other")

        async def shows() -> bool:
            template = (await place.deployment("wsproxy-direct")).manifest["spec"]["template"]
            return "checksum/proxy-token" in template["metadata"].get("annotations", {})

        await eventually(shows)
