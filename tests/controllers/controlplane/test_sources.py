"""Secrets and ConfigMaps that the environment of the pods comes from."""

import base64
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane.sources import Environment, Source, judge, sources
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.events import EVENT
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support.kstatus import condition

from .planes import plane
from .recorded_plane import RecordedPlane, checksum, recorded_plane


def test_finds_every_source() -> None:
    found = sources(
        plane(
            envFrom=[
                {"secretRef": {"name": "a"}, "prefix": "X_"},
                {"configMapRef": {"name": "b", "optional": True}},
                {"prefix": "Y_"},
            ],
            extraEnv=[
                {"name": "PLAIN", "value": "1"},
                {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}},
                {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "d", "key": "k", "optional": True}}},
            ],
        )
    )
    assert list(found) == [
        Source("Secret", "a", prefix="X_"),
        Source("ConfigMap", "b", optional=True),
        Source("Secret", "c", "k"),
        Source("ConfigMap", "d", "k", optional=True),
    ]


@pytest.mark.parametrize(
    ("previous", "now", "rolls", "recorded"),
    [
        pytest.param("", {}, False, "", id="no sources"),
        pytest.param("", {"Secret/a": "1"}, False, "Secret/a=1", id="first sight"),
        pytest.param("", {"Secret/a": ""}, False, "Secret/a=", id="first sight of nothing"),
        pytest.param("Secret/a=", {"Secret/a": "1"}, False, "Secret/a=1", id="appears"),
        pytest.param("Secret/a=1", {"Secret/a": "1"}, False, "Secret/a=1", id="stays"),
        pytest.param("Secret/a=1", {"Secret/a": "2"}, True, "Secret/a=2", id="changes"),
        pytest.param("Secret/a=1", {"Secret/a": ""}, False, "Secret/a=1", id="vanishes"),
        pytest.param("Secret/a=1", {}, False, "", id="no longer named"),
        pytest.param("Secret/my secret/k= junk", {"Secret/a": "1"}, False, "Secret/a=1", id="a record that is none"),
        pytest.param("Secret/a=1", {"Secret/a": "1", "Secret/b": "2"}, False, "Secret/a=1 Secret/b=2", id="one more"),
        pytest.param("Secret/a=1", {"Secret/a": "3", "Secret/b": "2"}, True, "Secret/a=3 Secret/b=2", id="both"),
        pytest.param("Secret/a/k=1", {"Secret/a": "2"}, False, "Secret/a=2", id="whole instead of a key"),
        pytest.param("ConfigMap/a=1 Secret/a=1", {"Secret/a": "1"}, False, "Secret/a=1", id="one less"),
    ],
)
def test_checksum(previous: str, now: dict[str, str], rolls: bool, recorded: str) -> None:
    verdict = judge(previous, Environment(now), "present")
    assert verdict.recorded == recorded
    assert (verdict.annotation != "present") == rolls


def test_record_of_a_name_with_spaces_can_be_parsed() -> None:
    source = Source("Secret", "my secret", "k=v")
    recorded = judge("", Environment({str(source): "1"}), "").recorded
    assert judge(recorded, Environment({str(source): "2"}), "").annotation


def test_checksum_depends_only_on_the_content() -> None:
    """Otherwise a reconcile that fails before the status write would roll the pods twice."""
    first = judge("Secret/a=1", Environment({"Secret/a": "2"}), "")
    again = judge("Secret/a=1", Environment({"Secret/a": "2"}), first.annotation)
    later = judge(first.recorded, Environment({"Secret/a": "2"}), first.annotation)
    assert first.annotation
    assert first.annotation == again.annotation == later.annotation


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[RecordedPlane]:
    async with recorded_plane(cluster.kubeconfig, operator_kubeconfig, namespace) as demo:
        yield demo


WAYS = [
    pytest.param(SECRET, {"envFrom": [{"secretRef": {"name": "it"}}]}, id="Secret in envFrom"),
    pytest.param(CONFIG_MAP, {"envFrom": [{"configMapRef": {"name": "it"}}]}, id="ConfigMap in envFrom"),
    pytest.param(
        SECRET,
        {"extraEnv": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "it", "key": "K"}}}]},
        id="Secret in extraEnv",
    ),
    pytest.param(
        CONFIG_MAP,
        {"extraEnv": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "it", "key": "K"}}}]},
        id="ConfigMap in extraEnv",
    ),
]


@pytest.mark.parametrize(("kind", "spec"), WAYS)
async def test_changed_source_rolls_the_pods(demo: RecordedPlane, kind: Kind[Unstructured], spec: Manifest) -> None:
    await demo.put(kind, "it", K="one")
    async with demo.running():
        assert checksum(await demo.deploy(**spec)) == ""
        await demo.put(kind, "it", K="two")
        first = await demo.rolled(2)
        await demo.put(kind, "it", K="three")
        second = await demo.rolled(3)
    assert "" != first != second != ""


@pytest.mark.parametrize(("kind", "spec"), WAYS)
async def test_unchanged_content_rolls_nothing(demo: RecordedPlane, kind: Kind[Unstructured], spec: Manifest) -> None:
    """A source is created, labelled, deleted, created again unchanged, and created again with a change."""
    async with demo.running() as operator:
        await demo.deploy(**spec)
        async with operator.one_more_reconcile():
            await demo.put(kind, "it", K="one")
        async with operator.one_more_reconcile():
            await demo.client.merge(kind, Key(demo.namespace, "it"), {"metadata": {"labels": {"a": "b"}}})
        async with operator.one_more_reconcile():
            await demo.delete(kind, "it")
        async with operator.one_more_reconcile():
            await demo.put(kind, "it", K="one")
        assert await demo.generation() == 1
        async with operator.one_more_reconcile():
            await demo.delete(kind, "it")
        async with operator.one_more_reconcile():
            await demo.put(kind, "it", K="two")
        assert await demo.generation() == 2
        assert checksum((await demo.deployment()).manifest) != ""


async def test_another_key_of_the_same_secret_rolls_nothing(demo: RecordedPlane) -> None:
    await demo.put(SECRET, "it", K="one", L="one")
    async with demo.running() as operator:
        await demo.deploy(extraEnv=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "it", "key": "K"}}}])
        async with operator.one_more_reconcile():
            await demo.put(SECRET, "it", K="one", L="two")
        assert await demo.generation() == 1


async def test_change_while_the_operator_was_down_rolls_once(demo: RecordedPlane) -> None:
    await demo.put(SECRET, "it", K="one")
    async with demo.running():
        await demo.deploy(envFrom=[{"secretRef": {"name": "it"}}])
        await demo.checksum_in_status()
    await demo.put(SECRET, "it", K="two")
    async with demo.running():
        first = await demo.rolled(2)
    async with demo.running() as operator:
        assert operator.writes() == 0
        await demo.put(SECRET, "it", K="three")
        assert await demo.rolled(3) != first
    assert await demo.generation() == 3


async def test_deleted_and_created_while_the_operator_was_down_rolls_nothing(demo: RecordedPlane) -> None:
    await demo.put(SECRET, "it", K="one")
    async with demo.running():
        await demo.deploy(envFrom=[{"secretRef": {"name": "it"}}])
        baseline = await demo.checksum_in_status()
    await demo.delete(SECRET, "it")
    async with demo.running():
        await demo.waits("Pods cannot start: Secret it does not exist")
        assert await demo.checksum_in_status() == baseline
    await demo.put(SECRET, "it", K="one")
    async with demo.running():
        assert await demo.checksum_in_status() == baseline
    assert await demo.generation() == 1


async def test_adopted_deployment_is_only_recorded(demo: RecordedPlane) -> None:
    """An earlier operator without checksums created the Deployment; the status is empty."""
    await demo.put(SECRET, "it", K="one")
    async with demo.running():
        await demo.deploy(envFrom=[{"secretRef": {"name": "it"}}])
    await demo.client.merge(CONTROL_PLANE, demo.key, {"status": None}, "status")
    await demo.wait_until(lambda plane: not plane.get("status"))
    await demo.put(SECRET, "it", K="two")
    async with demo.running():
        await demo.checksum_in_status()
        assert await demo.generation() == 1
        await demo.put(SECRET, "it", K="three")
        assert await demo.rolled(2)


async def test_annotation_stays(demo: RecordedPlane) -> None:
    """Also if the spec changes, if no source is left, and if the Deployment loses its labels."""
    await demo.put(SECRET, "it", K="one")
    async with demo.running() as operator:
        await demo.deploy(envFrom=[{"secretRef": {"name": "it"}}])
        await demo.put(SECRET, "it", K="two")
        annotation = await demo.rolled(2)
        await operator.wait_idle()
        labels = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
        await demo.client.merge(DEPLOYMENT, demo.key, labels)
        managed = "app.kubernetes.io/managed-by"
        await demo.deployments.until("demo", lambda live: managed in live["metadata"]["labels"])
        assert await demo.generation() == 2
        await demo.change(envFrom=None)
        assert await demo.rolled(3) == annotation


async def test_rejected_deployment_does_not_lose_a_change(demo: RecordedPlane) -> None:
    await demo.put(SECRET, "it", K="one")
    async with demo.running() as operator:
        await demo.deploy(envFrom=[{"secretRef": {"name": "it"}}])
        await demo.client.merge(CONTROL_PLANE, demo.key, {"spec": {"nodeSelector": {"a": "no label!"}}})
        await demo.wait_until(lambda plane: condition(plane, "Stalled").get("status") == "True")
        async with operator.one_more_reconcile():
            await demo.put(SECRET, "it", K="two")
        await demo.change(nodeSelector=None)
        assert await demo.rolled(2)


async def test_missing_sources_are_reported(demo: RecordedPlane) -> None:
    async with demo.running():
        await demo.deploy(
            envFrom=[{"secretRef": {"name": "a"}}, {"configMapRef": {"name": "free", "optional": True}}],
            extraEnv=[
                {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "K"}}},
                {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "free", "key": "K", "optional": True}}},
            ],
        )
        await demo.waits("Pods cannot start: Secret a does not exist, ConfigMap b does not exist")
        await demo.put(SECRET, "a", K="one")
        await demo.waits("Pods cannot start: ConfigMap b does not exist")
        await demo.put(CONFIG_MAP, "b", K="one")
        await demo.waits("0 of 1 updated pods are ready")
        await demo.put(CONFIG_MAP, "b", L="one")
        await demo.waits("Pods cannot start: ConfigMap b has no key K")
        await demo.put(CONFIG_MAP, "b", K="one")
        await demo.waits("0 of 1 updated pods are ready")
        assert await demo.generation() == 1


async def test_no_value_is_visible(demo: RecordedPlane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    values = ["correct-horse-battery", "staple-staple-staple"]
    await demo.put(SECRET, "it", K=values[0])
    async with demo.running() as operator:
        await demo.deploy(
            envFrom=[{"secretRef": {"name": "it"}}],
            extraEnv=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "it", "key": "K"}}}],
        )
        async with operator.one_more_reconcile():
            await demo.put(SECRET, "it", K=values[1])
        assert await demo.generation() == 2
    events = [str(item) async for page in demo.client.list(EVENT, demo.namespace) for item in page.items]
    written = json.dumps([*demo.planes.states, *demo.deployments.states, *events])
    for value in values:
        for form in (value, base64.b64encode(value.encode()).decode()):
            assert form not in written
            assert form not in caplog.text
