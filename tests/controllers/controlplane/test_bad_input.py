"""What the schema cannot know to be wrong: told in the API server's own words, once, and not tried again in vain."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import setup
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import DEPLOYMENT, SERVICE
from coder_k8s.kube.objects import Key
from tests.support.controllers import running
from tests.support.idle import idle

from .administrator import Administrator, administrator, passes
from .planes import writes

QUIET_SECONDS = 3.0

Spec = dict[str, Any]
VOLUME = {"name": "data", "emptyDir": {}}
MOUNT = {"name": "data", "mountPath": "/data"}
EXPRESSION = {"key": "zone", "operator": "Sometimes"}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}

REFUSED_BY_THE_SERVER: dict[str, tuple[Spec, str]] = {
    "empty-image": ({"image": ""}, "image: Required value"),
    "duplicate-volumes": ({"volumes": [VOLUME, VOLUME]}, "uplicate"),
    "duplicate-mounts": ({"volumes": [VOLUME], "volumeMounts": [MOUNT, MOUNT]}, "volumeMounts"),
    "unknown-volume": ({"volumeMounts": [MOUNT]}, 'Not found: "data"'),
    "duplicate-spread": ({"topologySpreadConstraints": [SPREAD, SPREAD]}, "topologySpreadConstraints"),
    "bad-selector": ({"nodeSelector": {"zone": "not valid!"}}, "not valid!"),
    "unicode-selector": ({"nodeSelector": {"zone": "zürich"}}, "zürich"),
    "long-selector": ({"nodeSelector": {"zone": "x" * 100_000}}, "nodeSelector"),
    "bad-affinity": (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}},
        '"Sometimes"',
    ),
    "bad-toleration": ({"tolerations": [{"key": "a", "operator": "Sometimes"}]}, '"Sometimes"'),
    "bad-source-name": ({"envFrom": [{"secretRef": {"name": "Not_A_Name"}}]}, '"Not_A_Name"'),
    "path-as-source-name": ({"envFrom": [{"configMapRef": {"name": "../secrets/x?y"}}]}, "envFrom"),
    "empty-source-name": ({"envFrom": [{"secretRef": {"name": ""}}]}, "secretRef.name: Required value"),
    "no-source": ({"envFrom": [{}]}, "must specify one of"),
    "empty-variable": ({"extraEnv": [{"name": "", "value": "x"}]}, "name: Required value"),
    "bad-variable": ({"extraEnv": [{"name": "a=b", "value": "x"}]}, '"a=b"'),
    "request-past-limit": ({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}, "cpu limit of 1"),
    "negative-user": ({"securityContext": {"runAsUser": -1}}, "runAsUser"),
    "big-annotations": ({"service": {"annotations": {"a": "x" * 300_000}}}, "Too long"),
    "bad-annotation": ({"service": {"annotations": {"bad key!": "x"}}}, "bad key!"),
    "bad-account-label": ({"serviceAccount": {"labels": {"team": "not valid!"}}}, "not valid!"),
    "bad-ingress-annotation": (
        {"expose": {"ingress": {"host": "coder.example.com", "annotations": {"bad key!": "x"}}}},
        "bad key!",
    ),
    "rule-without-verbs": (
        {"rbac": {"extraRules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}},
        "verbs",
    ),
}

REFUSED_AT_ADMISSION: dict[str, tuple[Spec, str]] = {
    "replicas as text": ({"replicas": "two"}, "spec.replicas"),
    "negative replicas": ({"replicas": -1}, "greater than or equal to 0"),
    "image as a number": ({"image": 7}, "spec.image"),
    "port 0": ({"service": {"port": 0}}, "spec.service.port"),
    "type ExternalName": ({"service": {"type": "ExternalName"}}, '"ClusterIP", "NodePort", "LoadBalancer"'),
    "host with a scheme": ({"expose": {"ingress": {"host": "https://coder"}}}, "without scheme or port"),
    "empty host": ({"expose": {"ingress": {"host": ""}}}, "spec.expose.ingress.host"),
    "both ways in": (
        {"expose": {"ingress": {"host": "a.example"}, "gateway": {"host": "a.example", "parentRefs": [{"name": "g"}]}}},
        "remove one of the two",
    ),
    "no parent": ({"expose": {"gateway": {"host": "a.example", "parentRefs": []}}}, "at least 1 items"),
    "unicode account": ({"serviceAccount": {"name": "größe"}}, "lower-case letters"),
    "unicode namespace": ({"rbac": {"workspaceNamespaces": ["größe"]}}, "lower-case letters"),
    "the same namespace twice": ({"rbac": {"workspaceNamespaces": ["a", "a"]}}, "Duplicate value"),
    "two sources in one": ({"envFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "a"}}]}, "one source"),
    "empty TLS Secret": ({"tls": {"secretNames": [""]}}, "spec.tls.secretNames"),
    "volume without a name": ({"volumes": [{"emptyDir": {}}]}, "name: Required value"),
}


@pytest.fixture
async def admin(cluster: ClusterAccess, crds: None) -> AsyncIterator[Administrator]:
    async with administrator(cluster.kubeconfig) as somebody:
        yield somebody


@pytest.mark.parametrize(("spec", "words"), REFUSED_AT_ADMISSION.values(), ids=REFUSED_AT_ADMISSION)
async def test_refused_at_admission(admin: Administrator, namespace: str, spec: Spec, words: str) -> None:
    with pytest.raises(errors.Invalid) as refusal:
        await admin.make(namespace, **spec)
    assert words in refusal.value.message


@pytest.mark.parametrize("name", ["a" * 300, "größe", "Upper", "", "a.b"])
async def test_name_refused_at_admission(admin: Administrator, namespace: str, name: str) -> None:
    with pytest.raises(errors.Invalid, match=r"name|resourceName"):
        await admin.make(namespace, name)


async def stalled(admin: Administrator, key: Key, words: str) -> None:
    """Wait for the verdict, and see that it is told in the same words everywhere, by one event."""
    verdict = await admin.told(key, "Stalled", "Invalid")
    assert verdict.status == "True"
    assert words in verdict.message
    plane = await admin.plane(key)
    ready = find(plane.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == ("False", "Invalid", verdict.message)


async def told_once(admin: Administrator, key: Key) -> None:
    events = await admin.events(key)
    assert [(event["type"], event["reason"], "series" in event) for event in events] == [("Warning", "Invalid", False)]


async def quiet(runtime: Runtime) -> None:
    """The operator does not come back to what it knows to be refused."""
    await idle(runtime)
    before = writes(runtime), passes(runtime)
    await asyncio.sleep(QUIET_SECONDS)
    assert (writes(runtime), passes(runtime)) == before


@pytest.mark.parametrize("born_good", [False, True], ids=["from the start", "by a change"])
async def test_refused_by_the_server(
    admin: Administrator, operator_kubeconfig: Path, namespace: str, born_good: bool
) -> None:
    async with running(operator_kubeconfig, [namespace], setup.build) as runtime:
        for name, (spec, _) in REFUSED_BY_THE_SERVER.items():
            key = await admin.make(namespace, name, **({} if born_good else spec))
            if born_good:
                await admin.not_stalled(key)
                await admin.change(key, **spec)
        for name, (_, words) in REFUSED_BY_THE_SERVER.items():
            await stalled(admin, Key(namespace, name), words)
        await quiet(runtime)
        for name in REFUSED_BY_THE_SERVER:
            await told_once(admin, Key(namespace, name))

        for name, (spec, _) in REFUSED_BY_THE_SERVER.items():
            mended = dict.fromkeys(spec) | ({"image": "coder:mended"} if "image" in spec else {})
            await admin.change(Key(namespace, name), **mended)
        for name in REFUSED_BY_THE_SERVER:
            await admin.not_stalled(Key(namespace, name))
            assert await admin.find(DEPLOYMENT, Key(namespace, name))
            assert await admin.find(SERVICE, Key(namespace, name))


@pytest.mark.parametrize("length", [64, 253])
async def test_name_that_no_service_can_have(
    admin: Administrator, operator_kubeconfig: Path, namespace: str, length: int
) -> None:
    async with running(operator_kubeconfig, [namespace], setup.build) as runtime:
        key = await admin.make(namespace, "a" * length)
        await stalled(admin, key, "must be no more than 63")
        await quiet(runtime)
        await told_once(admin, key)
        await admin.delete(CONTROL_PLANE, key)
        await admin.gone(CONTROL_PLANE, key)


async def test_what_kubernetes_takes_twice_stays_changeable(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    async with running(operator_kubeconfig, [namespace], setup.build):
        twice: Spec = {"imagePullSecrets": [{"name": "a"}, {"name": "a"}], "extraEnv": [{"name": "A"}, {"name": "A"}]}
        key = await admin.make(namespace, **twice)
        await admin.not_stalled(key)
        await admin.change(key, image="coder:next")
        await admin.not_stalled(key)
        pod = (await admin.client.get(DEPLOYMENT, key)).manifest["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == "coder:next"
        assert pod["imagePullSecrets"] == [{"name": "a"}]
