"""An operator that watches some namespaces needs only Roles in them, for all its functions."""

from pathlib import Path

import pytest

from coder_k8s.api import PROVISIONER, WORKSPACE_PROXY
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import make_license
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Manifest
from tests.support import eventually
from tests.support.controlplanes import plane_namespace
from tests.support.installation import confined_kubeconfig
from tests.support.metrics import total
from tests.support.operators import Operator
from tests.support.provisioners import provisioner_namespace
from tests.support.workspaceproxies import NAME, PLANE, proxy_namespace


@pytest.fixture
def confined(cluster: ClusterAccess, crds: None, namespace: str, tmp_path: Path) -> Path:
    return confined_kubeconfig(cluster, namespace, tmp_path / "confined")


async def test_the_license_of_a_control_plane(cluster: ClusterAccess, confined: Path, namespace: str) -> None:
    async with plane_namespace(cluster.kubeconfig, confined, namespace) as place:
        await place.put_secret("given", token=place.coderd.state.token)
        await place.put_secret("license", license=make_license(place.clock()))
        async with place.operator() as operator:
            given: Manifest = {
                "operatorAccess": {"tokenSecretRef": {"name": "given"}},
                "licenseSecretRef": {"name": "license"},
            }
            await place.make(**given, expose={"ingress": {"host": "coder.example.com"}})
            await place.roll_out()
            await place.condition("LicenseApplied", "Applied", "True", within=30)
            await place.condition("Ready", "AllReady", "True", within=30)
            await operator.wait_idle()
            assert forbidden_requests(operator) == 0
    assert len(place.coderd.state.licenses) == 1


async def test_the_rotation_of_a_provisioner_key(cluster: ClusterAccess, confined: Path, namespace: str) -> None:
    async with provisioner_namespace(cluster.kubeconfig, confined, namespace) as place:
        await place.make_plane("demo")
        async with place.operator() as operator:
            await place.make()
            await place.ready(operator)
            first = set(place.keys)
            await place.annotate(rotate_key="once")
            await eventually(lambda: len(place.keys) == 2, 30)
            await place.ready(operator)
            await eventually(lambda: not first & set(place.keys), 30)
            await place.delete(PROVISIONER, "build")
            await eventually(lambda: not place.keys, 30)
            await operator.wait_idle()
            assert forbidden_requests(operator) == 0
        assert await place.find(PROVISIONER, "build") is None


async def test_the_lifecycle_of_a_workspace_proxy(cluster: ClusterAccess, confined: Path, namespace: str) -> None:
    async with proxy_namespace(cluster.kubeconfig, confined, namespace) as place:
        await place.make_plane()
        async with place.operator() as operator:
            await place.make()
            await place.ready(operator)
            await place.change(bootstrap={**place.bootstrap, "generatedTokenSecretName": "moved"})
            await place.condition("TokenSecretReady", "SecretReady")
            await place.ready(operator)
            await place.gone(SECRET, f"{NAME}-proxy-token", within=30)
            await place.change(bootstrap=None, controlPlaneRef={"name": PLANE})
            await place.ready(operator)
            await place.delete(WORKSPACE_PROXY, NAME)
            await place.gone(WORKSPACE_PROXY, NAME, within=30)
            await operator.wait_idle()
            assert forbidden_requests(operator) == 0
    assert place.proxies == {}


def forbidden_requests(operator: Operator) -> int:
    """The number of requests that the API server rejected as forbidden."""
    requests = operator.runtime.metrics.requests
    assert total(requests)
    return total(requests, "403")
