"""The connection URL of a control plane's database, from the environment of its pods."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.controllers.controlplane.database import VARIABLE, URLMissing, connection_url
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import CONFIG_MAP
from tests.support.controlplanes import PlaneNamespace, plane_namespace


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        yield place


PLAIN = {"name": VARIABLE, "value": "plain"}
FROM_SECRET = {"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "one", "key": "url"}}}
FROM_CONFIG_MAP = {"name": VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "two", "key": "url"}}}
FROM_FIELD = {"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"extraEnv": [{"name": "A", "value": "a"}, PLAIN]}, "plain"),
        ({"extraEnv": [FROM_SECRET]}, "of one"),
        ({"extraEnv": [FROM_CONFIG_MAP]}, "of two"),
        ({"envFrom": [{"secretRef": {"name": "all"}}]}, "of all"),
        ({"envFrom": [{"configMapRef": {"name": "short"}, "prefix": "CODER_"}]}, "of short"),
        ({"envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "short"}}]}, "of all"),
        (
            {"envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "short"}, "prefix": "CODER_"}]},
            "of short",
        ),
        ({"extraEnv": [PLAIN], "envFrom": [{"secretRef": {"name": "all"}}]}, "plain"),
        ({}, "neither"),
        ({"envFrom": [{"secretRef": {"name": "missing", "optional": True}}]}, "neither"),
        ({"extraEnv": [PLAIN, FROM_SECRET]}, "more than once"),
        ({"extraEnv": [{"name": VARIABLE, "value": ""}]}, "has no value"),
        ({"extraEnv": [{"name": VARIABLE, "value": "postgres://$(USER)@db"}]}, "contains other variables"),
        ({"extraEnv": [FROM_FIELD]}, "has no value"),
        (
            {"extraEnv": [{"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "one", "key": "absent"}}}]},
            "Secret one has no key absent",
        ),
        (
            {"extraEnv": [{"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "absent", "key": "url"}}}]},
            "Secret absent does not exist",
        ),
    ],
)
async def test_connection_url(demo: PlaneNamespace, spec: dict[str, Any], found: str) -> None:
    namespace = demo.namespace
    await demo.put_secret("one", url="of one")
    await demo.put_secret("all", **{VARIABLE: "of all", "OTHER": "x"})
    for name, data in (("two", {"url": "of two"}), ("short", {"PG_CONNECTION_URL": "of short"})):
        await demo.client.create(CONFIG_MAP, {"metadata": {"namespace": namespace, "name": name}, "data": data})
    await demo.make(**spec)
    try:
        answer = await connection_url(demo.client, await demo.get())
    except URLMissing as missing:
        answer = str(missing)
    assert found in answer
    assert (found in ("plain", "of one", "of two", "of all", "of short")) == (answer == found)
