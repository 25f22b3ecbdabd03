"""Secrets and ConfigMaps that the environment of the pods comes from."""

import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import setup
from coder_k8s.controllers.controlplane.sources import Environment, Source, judge, sources
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.events import EVENT
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP, DEPLOYMENT, SECRET
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Child, Key, Kind, Manifest
from tests.support.controllers import running
from tests.support.history import History, recording
from tests.support.idle import idle, one_more_pass
from tests.support.kstatus import condition

from .planes import manifest, plane, writes

CHECKSUM = "coder.com/config-checksum"


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
        pytest.param("Secret/a=1", {"Secret/a": "1", "Secret/b": "2"}, False, "Secret/a=1 Secret/b=2", id="one more"),
        pytest.param("Secret/a=1", {"Secret/a": "3", "Secret/b": "2"}, True, "Secret/a=3 Secret/b=2", id="both"),
        pytest.param("Secret/a/k=1", {"Secret/a": "2"}, False, "Secret/a=2", id="whole instead of a key"),
        pytest.param("ConfigMap/a=1 Secret/a=1", {"Secret/a": "1"}, False, "Secret/a=1", id="one less"),
    ],
)
def test_judges_whether_pods_must_roll(previous: str, now: dict[str, str], rolls: bool, recorded: str) -> None:
    verdict = judge(previous, Environment(now), "present")
    assert verdict.recorded == recorded
    assert (verdict.annotation != "present") == rolls


def test_verdict_follows_from_the_content_alone() -> None:
    """Else a pass that is cut off before it is recorded would roll the pods twice."""
    first = judge("Secret/a=1", Environment({"Secret/a": "2"}), "")
    again = judge("Secret/a=1", Environment({"Secret/a": "2"}), first.annotation)
    later = judge(first.recorded, Environment({"Secret/a": "2"}), first.annotation)
    assert first.annotation
    assert first.annotation == again.annotation == later.annotation


@dataclass
class World:
    """A namespace in which a user changes sources, and what becomes of the one control plane there."""

    client: Client
    operator: Path
    namespace: str
    planes: History
    deployments: History

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Runtime]:
        async with running(self.operator, [self.namespace], setup.build) as runtime:
            await idle(runtime)
            yield runtime

    async def make(self, **spec: Any) -> Manifest:
        """A control plane; its Deployment, once the status tells of it."""
        await self.client.create(CONTROL_PLANE, manifest(self.namespace, **spec))
        await self.planes.until("demo", lambda plane: "status" in plane)
        return await self.deployments.until("demo", lambda _: True)

    async def put(self, kind: Kind[Child], name: str, **data: str) -> None:
        """Write a source with exactly this content."""
        content = {
            key: base64.b64encode(value.encode()).decode() if kind is SECRET else value for key, value in data.items()
        }
        written = {"metadata": {"namespace": self.namespace, "name": name}, "data": content}
        try:
            await self.client.create(kind, written)
        except errors.AlreadyExists:
            await self.client.replace(kind, written)

    async def drop(self, kind: Kind[Child], name: str) -> None:
        await self.client.delete(kind, await self.client.get(kind, Key(self.namespace, name)))

    async def rolled(self, generation: int) -> str:
        """The checksum of the pods, once the Deployment has this generation."""
        live = await self.deployments.until("demo", lambda live: live["metadata"]["generation"] >= generation)
        assert live["metadata"]["generation"] == generation
        return checksum(live)

    async def recorded(self) -> str:
        """What the status remembers, once it tells of a source."""
        state = await self.planes.until("demo", lambda plane: "configChecksum" in plane.get("status", {}))
        return str(state["status"]["configChecksum"])

    async def waits(self, message: str) -> None:
        """Wait until the status says what is waited for."""
        told = await self.planes.until("demo", lambda plane: condition(plane, "Available").get("message") == message)
        assert condition(told, "Ready")["status"] == "False"
        assert condition(told, "Reconciling")["status"] == "True"

    @property
    def generation(self) -> int:
        return int(self.deployments.of("demo")[-1]["metadata"]["generation"])


def checksum(deployment: Manifest) -> str:
    annotations: dict[str, str] = deployment["spec"]["template"]["metadata"].get("annotations", {})
    return annotations.get(CHECKSUM, "")


def access_url(deployment: Manifest) -> str:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return next((entry["value"] for entry in container["env"] if entry["name"] == "CODER_ACCESS_URL"), "")


@pytest.fixture
async def world(cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str) -> AsyncIterator[World]:
    async with (
        Http(load(cluster.kubeconfig), "user", Metrics()) as http,
        recording(client := Client(http, "user"), namespace, CONTROL_PLANE, DEPLOYMENT) as (planes, deployments),
    ):
        yield World(client, operator_kubeconfig, namespace, planes, deployments)


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
async def test_changed_source_rolls_the_pods(world: World, kind: Kind[Child], spec: Manifest) -> None:
    await world.put(kind, "it", K="one")
    async with world.running():
        assert checksum(await world.make(**spec)) == ""
        await world.put(kind, "it", K="two")
        first = await world.rolled(2)
        await world.put(kind, "it", K="three")
        second = await world.rolled(3)
    assert "" != first != second != ""


@pytest.mark.parametrize(("kind", "spec"), WAYS)
async def test_what_is_no_change_of_content_rolls_nothing(world: World, kind: Kind[Child], spec: Manifest) -> None:
    """A source appears, gets a label, goes and comes back as it was; and comes back as another."""
    async with world.running() as runtime:
        await world.make(**spec)
        async with one_more_pass(runtime):
            await world.put(kind, "it", K="one")
        async with one_more_pass(runtime):
            await world.client.merge(kind, Key(world.namespace, "it"), {"metadata": {"labels": {"a": "b"}}})
        async with one_more_pass(runtime):
            await world.drop(kind, "it")
        async with one_more_pass(runtime):
            await world.put(kind, "it", K="one")
        assert world.generation == 1
        async with one_more_pass(runtime):
            await world.drop(kind, "it")
        async with one_more_pass(runtime):
            await world.put(kind, "it", K="two")
        assert world.generation == 2
        assert checksum(world.deployments.of("demo")[-1]) != ""


async def test_another_key_of_the_same_secret_rolls_nothing(world: World) -> None:
    await world.put(SECRET, "it", K="one", L="one")
    async with world.running() as runtime:
        await world.make(extraEnv=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "it", "key": "K"}}}])
        async with one_more_pass(runtime):
            await world.put(SECRET, "it", K="one", L="two")
        assert world.generation == 1


async def test_change_while_the_operator_was_down_rolls_once(world: World) -> None:
    await world.put(SECRET, "it", K="one")
    async with world.running():
        await world.make(envFrom=[{"secretRef": {"name": "it"}}])
        await world.recorded()
    await world.put(SECRET, "it", K="two")
    async with world.running():
        first = await world.rolled(2)
    async with world.running() as runtime:
        assert writes(runtime) == 0
        await world.put(SECRET, "it", K="three")
        assert await world.rolled(3) != first
    assert world.generation == 3


async def test_gone_and_back_while_the_operator_was_down_rolls_nothing(world: World) -> None:
    await world.put(SECRET, "it", K="one")
    async with world.running():
        await world.make(envFrom=[{"secretRef": {"name": "it"}}])
        baseline = await world.recorded()
    await world.drop(SECRET, "it")
    async with world.running():
        await world.waits("pods wait for Secret/it")
        assert await world.recorded() == baseline
    await world.put(SECRET, "it", K="one")
    async with world.running():
        assert await world.recorded() == baseline
    assert world.generation == 1


async def test_takeover_of_a_running_deployment_only_records(world: World) -> None:
    """As an operator left it that knew no checksum: the Deployment is there, the status is not."""
    await world.put(SECRET, "it", K="one")
    async with world.running():
        await world.make(envFrom=[{"secretRef": {"name": "it"}}])
    await world.client.merge(CONTROL_PLANE, Key(world.namespace, "demo"), {"status": None}, "status")
    await world.planes.until("demo", lambda plane: not plane.get("status"))
    await world.put(SECRET, "it", K="two")
    async with world.running():
        await world.recorded()
        assert world.generation == 1
        await world.put(SECRET, "it", K="three")
        assert await world.rolled(2)


async def test_annotation_stays(world: World) -> None:
    """Also when the spec changes, when no source is left, and when the Deployment loses the label it is found by."""
    await world.put(SECRET, "it", K="one")
    async with world.running() as runtime:
        await world.make(envFrom=[{"secretRef": {"name": "it"}}])
        await world.put(SECRET, "it", K="two")
        annotation = await world.rolled(2)
        await idle(runtime)
        labels = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
        await world.client.merge(DEPLOYMENT, Key(world.namespace, "demo"), labels)
        managed = "app.kubernetes.io/managed-by"
        await world.deployments.until("demo", lambda live: managed in live["metadata"]["labels"])
        assert world.generation == 2
        await world.client.merge(CONTROL_PLANE, Key(world.namespace, "demo"), {"spec": {"envFrom": None}})
        assert await world.rolled(3) == annotation


async def test_refused_deployment_does_not_swallow_a_change(world: World) -> None:
    await world.put(SECRET, "it", K="one")
    async with world.running() as runtime:
        await world.make(envFrom=[{"secretRef": {"name": "it"}}])
        await world.client.merge(
            CONTROL_PLANE, Key(world.namespace, "demo"), {"spec": {"nodeSelector": {"a": "no label!"}}}
        )
        await world.planes.until("demo", lambda plane: condition(plane, "Stalled").get("status") == "True")
        async with one_more_pass(runtime):
            await world.put(SECRET, "it", K="two")
        await world.client.merge(CONTROL_PLANE, Key(world.namespace, "demo"), {"spec": {"nodeSelector": None}})
        assert await world.rolled(2)


async def test_missing_sources_are_waited_for_and_named(world: World) -> None:
    async with world.running():
        await world.make(
            envFrom=[{"secretRef": {"name": "a"}}, {"configMapRef": {"name": "free", "optional": True}}],
            extraEnv=[
                {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "K"}}},
                {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "free", "key": "K", "optional": True}}},
            ],
        )
        await world.waits("pods wait for Secret/a, ConfigMap/b/K")
        await world.put(SECRET, "a", K="one")
        await world.waits("pods wait for ConfigMap/b/K")
        await world.put(CONFIG_MAP, "b", K="one")
        await world.waits("0 of 1 pods are ready")
        await world.put(CONFIG_MAP, "b", L="one")
        await world.waits("pods wait for ConfigMap/b/K")
        await world.put(CONFIG_MAP, "b", K="one")
        await world.waits("0 of 1 pods are ready")
        assert world.generation == 1


URL = "http://demo.{}.svc.cluster.local"


async def test_access_url_is_injected_while_no_source_defines_it(world: World) -> None:
    """Through every way in which a source can come to define it, and stop to."""
    own = URL.format(world.namespace)
    sources = [
        {"configMapRef": {"name": "plain", "optional": True}},
        {"secretRef": {"name": "prefixed", "optional": True}, "prefix": "CODER_"},
        {"secretRef": {"name": "misled", "optional": True}, "prefix": "NOT_"},
    ]
    async with world.running():
        await world.put(SECRET, "misled", CODER_ACCESS_URL="http://elsewhere")
        assert access_url(await world.make(envFrom=sources)) == own

        async def follows(expected: str) -> None:
            await world.deployments.until("demo", lambda live: access_url(live) == expected)

        await world.put(CONFIG_MAP, "plain", CODER_ACCESS_URL="https://coder.example.com")
        await follows("")
        await world.put(CONFIG_MAP, "plain", OTHER="1")
        await follows(own)
        await world.put(SECRET, "prefixed", ACCESS_URL="https://coder.example.com")
        await follows("")
        await world.drop(SECRET, "prefixed")
        await follows(own)


async def test_access_url_of_a_source_that_is_there_from_the_start(world: World) -> None:
    await world.put(SECRET, "it", CODER_ACCESS_URL="https://coder.example.com")
    async with world.running():
        assert access_url(await world.make(envFrom=[{"secretRef": {"name": "it"}}])) == ""


@pytest.mark.parametrize(("content", "injected", "generation"), [("OTHER", True, 1), ("CODER_ACCESS_URL", False, 2)])
async def test_access_url_while_a_source_is_missing(
    world: World, content: str, injected: bool, generation: int
) -> None:
    """A source that appears rolls nothing, unless it says that our guess was wrong."""
    async with world.running() as runtime:
        assert access_url(await world.make(envFrom=[{"secretRef": {"name": "it"}}])) != ""
        async with one_more_pass(runtime):
            await world.put(SECRET, "it", **{content: "https://coder.example.com"})
        assert bool(access_url(world.deployments.of("demo")[-1])) == injected
        assert world.generation == generation


async def test_access_url_of_one_source_counts_while_another_is_missing(world: World) -> None:
    await world.put(CONFIG_MAP, "there", OTHER="1")
    async with world.running():
        await world.make(envFrom=[{"secretRef": {"name": "absent"}}, {"configMapRef": {"name": "there"}}])
        await world.put(CONFIG_MAP, "there", CODER_ACCESS_URL="https://coder.example.com")
        await world.deployments.until("demo", lambda live: access_url(live) == "")


async def test_no_value_gets_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    values = ["correct-horse-battery", "staple-staple-staple"]
    await world.put(SECRET, "it", K=values[0])
    async with world.running() as runtime:
        await world.make(
            envFrom=[{"secretRef": {"name": "it"}}],
            extraEnv=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "it", "key": "K"}}}],
        )
        async with one_more_pass(runtime):
            await world.put(SECRET, "it", K=values[1])
        assert world.generation == 2
    events = [str(item) async for page in world.client.list(EVENT, world.namespace) for item in page.items]
    written = json.dumps([*world.planes.states, *world.deployments.states, *events])
    for value in values:
        for form in (value, base64.b64encode(value.encode()).decode()):
            assert form not in written
            assert form not in caplog.text
