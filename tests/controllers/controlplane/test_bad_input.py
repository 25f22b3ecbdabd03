"""Input that the schema cannot reject: reported once with the error of the API server, and not retried."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.controlplane.wiring import CHILDREN
from coder_k8s.controllers.labels import MANAGED
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.conditions import find
from coder_k8s.kube.kinds import DEPLOYMENT, HTTP_ROUTE, SERVICE
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.campaign import slice_of
from tests.support.objects import EVENT
from tests.support.operators import Operator

from .administrator import Administrator, administrator

QUIET_SECONDS = 30.0

Spec = dict[str, Any]
VOLUME = {"name": "data", "emptyDir": {}}
MOUNT = {"name": "data", "mountPath": "/data"}
EXPRESSION = {"key": "zone", "operator": "Sometimes"}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}

REJECTED_BY_THE_SERVER: dict[str, tuple[Spec, str]] = {
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
    "bad-annotation": (
        {"service": {"annotations": {"bad key!": "x"}}, "expose": {"ingress": {"host": "coder.example.com"}}},
        "bad key!",
    ),
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

REJECTED_AT_ADMISSION: dict[str, tuple[Spec, str]] = {
    "replicas as text": ({"replicas": "two"}, "spec.replicas"),
    "negative replicas": ({"replicas": -1}, "greater than or equal to 0"),
    "image as a number": ({"image": 7}, "spec.image"),
    "port 0": ({"service": {"port": 0}}, "spec.service.port"),
    "type ExternalName": ({"service": {"type": "ExternalName"}}, '"ClusterIP", "NodePort", "LoadBalancer"'),
    "host with a scheme": ({"expose": {"ingress": {"host": "https://coder"}}}, "without scheme or port"),
    "empty host": ({"expose": {"ingress": {"host": ""}}}, "spec.expose.ingress.host"),
    "both ways in": (
        {"expose": {"ingress": {"host": "a.example"}, "gateway": {"host": "a.example", "parentRefs": [{"name": "g"}]}}},
        "remove one of them",
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
    async with administrator(cluster.kubeconfig) as admin:
        yield admin


@pytest.mark.parametrize(("spec", "error"), REJECTED_AT_ADMISSION.values(), ids=REJECTED_AT_ADMISSION)
async def test_rejected_at_admission(admin: Administrator, namespace: str, spec: Spec, error: str) -> None:
    with pytest.raises(errors.Invalid) as rejection:
        await admin.make(namespace, **spec)
    assert error in rejection.value.message


@pytest.mark.parametrize("name", ["a" * 300, "größe", "Upper", "", "a.b"])
async def test_name_rejected_at_admission(admin: Administrator, namespace: str, name: str) -> None:
    with pytest.raises(errors.Invalid, match=r"name|resourceName"):
        await admin.make(namespace, name)


class Case(NamedTuple):
    """A control plane with a child that the API server rejects, and a part of the error."""

    name: str
    bad: Spec
    error: str
    valid_at_first: bool = False


CASES = [
    *(Case(name, bad, error) for name, (bad, error) in REJECTED_BY_THE_SERVER.items()),
    *(Case(f"{name}-by-a-change", bad, error, True) for name, (bad, error) in REJECTED_BY_THE_SERVER.items()),
    *(Case("a" * length, {}, "must be no more than 63") for length in (64, 253)),
]
ONE_PER_CHILD = ("empty-image", "bad-annotation", "bad-account-label", "bad-ingress-annotation", "rule-without-verbs")
SOME_CASES = [case for case in CASES if case.name.removesuffix("-by-a-change") in ONE_PER_CHILD or not case.bad]


@pytest.mark.parametrize("cases", slice_of([SOME_CASES, CASES], 0), ids=["some", "all"])
async def test_rejected_by_the_server(
    admin: Administrator, operator_kubeconfig: Path, namespace: str, cases: list[Case]
) -> None:
    async with Operator(operator_kubeconfig, [namespace], wiring.build) as operator:
        for case in cases:
            await admin.make(namespace, case.name, **({} if case.valid_at_first else case.bad))
        for case in cases:
            if case.valid_at_first:
                await admin.not_stalled(Key(namespace, case.name))
                await admin.change(Key(namespace, case.name), **case.bad)
        for case in cases:
            await stalled(admin, Key(namespace, case.name), case.error)
        await quiet(operator, admin, namespace)
        await has_one_event(admin, namespace, cases)

        correctable = [case for case in cases if case.bad]
        for case in correctable:
            restored = dict.fromkeys(case.bad) | ({"image": "coder:restored"} if "image" in case.bad else {})
            await admin.change(Key(namespace, case.name), **restored)
        for case in correctable:
            await admin.not_stalled(Key(namespace, case.name))
            assert await admin.find(DEPLOYMENT, Key(namespace, case.name))
            assert await admin.find(SERVICE, Key(namespace, case.name))
        for case in cases:
            await admin.delete(CONTROL_PLANE, Key(namespace, case.name))
            await admin.gone(CONTROL_PLANE, Key(namespace, case.name))


async def stalled(admin: Administrator, key: Key, error: str) -> None:
    """Wait for the condition `Stalled`, and check that `Ready` has the same message."""
    condition = await admin.condition(key, "Stalled", "SpecInvalid", within=60)
    assert condition.status == "True"
    assert error in condition.message
    plane = await admin.plane(key)
    ready = find(plane.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == ("False", "SpecInvalid", condition.message)


async def quiet(operator: Operator, admin: Administrator, namespace: str) -> None:
    """Check that rejected writes are not repeated."""
    await operator.wait_idle()
    await eventually(lambda: caught_up(operator, admin, namespace))
    await operator.wait_idle()
    before = operator.write_requests(), operator.reconciles()
    await asyncio.sleep(QUIET_SECONDS)
    assert (operator.write_requests(), operator.reconciles()) == before


async def caught_up(operator: Operator, admin: Administrator, namespace: str) -> bool:
    """Whether the operator's cache has every change of a child, also its own writes."""
    for kind in set(CHILDREN) - {HTTP_ROUTE}:
        for child in await admin.all(kind, namespace, MANAGED):
            known = operator.informers[kind].get(child.key)
            if known is None or known.metadata.resource_version != child.metadata.resource_version:
                return False
    return True


async def has_one_event(admin: Administrator, namespace: str, cases: list[Case]) -> None:
    """Check that each control plane has one event without repeats."""
    events_by_plane: dict[str, list[tuple[str, str, int]]] = {case.name: [] for case in cases}
    for event in await admin.all(EVENT, namespace):
        manifest = event.manifest
        if manifest["regarding"]["kind"] != CONTROL_PLANE.name:  # the API server has its own events about Services
            continue
        entry = (manifest["type"], manifest["reason"], manifest.get("series", {}).get("count", 1))
        events_by_plane[manifest["regarding"]["name"]].append(entry)
    assert {
        name: entries for name, entries in events_by_plane.items() if entries != [("Warning", "SpecInvalid", 1)]
    } == {}


async def test_duplicates_that_kubernetes_accepts_can_be_changed(
    admin: Administrator, operator_kubeconfig: Path, namespace: str
) -> None:
    async with Operator(operator_kubeconfig, [namespace], wiring.build):
        twice: Spec = {"imagePullSecrets": [{"name": "a"}, {"name": "a"}], "extraEnv": [{"name": "A"}, {"name": "A"}]}
        key = await admin.make(namespace, **twice)
        await admin.not_stalled(key)
        await admin.change(key, image="coder:next")
        await admin.not_stalled(key)
        pod = (await admin.client.get(DEPLOYMENT, key)).manifest["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == "coder:next"
        assert pod["imagePullSecrets"] == [{"name": "a"}]
