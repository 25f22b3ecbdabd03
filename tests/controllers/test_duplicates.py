"""Duplicates in lists, which Kubernetes accepts and server-side apply rejects, do not block later changes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.objects import Unstructured
from tests.support import eventually
from tests.support.provisioners import ProvisionerNamespace, provisioner_namespace
from tests.support.workspaceproxies import ProxyNamespace, proxy_namespace

TWICE: dict[str, Any] = {
    "imagePullSecrets": [{"name": "pull"}, {"name": "pull"}],
    "extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
}


@pytest.fixture
async def place(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProvisionerNamespace]:
    async with provisioner_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        await made.make_plane("demo")
        yield made


@pytest.fixture
async def proxies(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[ProxyNamespace]:
    async with proxy_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as made:
        yield made


def image(deployment: Unstructured) -> str:
    return str(deployment.manifest["spec"]["template"]["spec"]["containers"][0]["image"])


def assert_once(deployment: Unstructured) -> None:
    pod = deployment.manifest["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert [entry["value"] for entry in pod["containers"][0]["env"] if entry["name"] == "A"] == ["2"]


async def test_provisioner(place: ProvisionerNamespace) -> None:
    async with place.operator() as operator:
        await place.make(**TWICE)
        await place.ready(operator)
        assert_once(await place.deployment())
        await place.change(image="coder:next")

        async def changed() -> bool:
            return image(await place.deployment()) == "coder:next"

        await eventually(changed)
        await place.ready(operator)
        assert_once(await place.deployment())
        before = operator.write_requests()
        await operator.reconcile(place.key)
        assert operator.write_requests() == before


async def test_workspace_proxy(proxies: ProxyNamespace) -> None:
    async with proxies.operator() as operator:
        await proxies.make(bootstrap=proxies.bootstrap, **TWICE)
        await proxies.ready(operator)
        assert_once(await proxies.deployment())
        await proxies.change(image="coder:next")

        async def changed() -> bool:
            return image(await proxies.deployment()) == "coder:next"

        await eventually(changed)
        await proxies.ready(operator)
        assert_once(await proxies.deployment())
        before = operator.write_requests()
        await operator.later(seconds=1)
        assert operator.write_requests() == before
