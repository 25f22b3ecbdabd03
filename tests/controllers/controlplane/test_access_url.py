"""`CODER_ACCESS_URL`: injected, unless a source of the environment defines it. `status.accessURL` shows it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.controllers.controlplane.reconcile import user_url
from coder_k8s.controllers.controlplane.sources import Environment
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import CONFIG_MAP, SECRET

from .planes import plane
from .recorded_plane import RecordedPlane, access_url, recorded_plane


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[RecordedPlane]:
    async with recorded_plane(cluster.kubeconfig, operator_kubeconfig, namespace) as demo:
        yield demo


async def test_access_url_is_injected_while_no_source_defines_it(demo: RecordedPlane) -> None:
    """Sources start and stop to define it, also with a prefix."""
    own = f"http://demo.{demo.namespace}.svc.cluster.local"
    sources = [
        {"configMapRef": {"name": "plain", "optional": True}},
        {"secretRef": {"name": "prefixed", "optional": True}, "prefix": "CODER_"},
        {"secretRef": {"name": "misled", "optional": True}, "prefix": "NOT_"},
    ]
    async with demo.running():
        await demo.put(SECRET, "misled", CODER_ACCESS_URL="http://elsewhere")
        assert access_url(await demo.deploy(envFrom=sources)) == own

        async def follows(expected: str) -> None:
            await demo.deployments.until("demo", lambda live: access_url(live) == expected)

        await demo.put(CONFIG_MAP, "plain", CODER_ACCESS_URL="https://coder.example.com")
        await follows("")
        await demo.put(CONFIG_MAP, "plain", OTHER="1")
        await follows(own)
        await demo.put(SECRET, "prefixed", ACCESS_URL="https://coder.example.com")
        await follows("")
        await demo.delete(SECRET, "prefixed")
        await follows(own)


async def test_access_url_of_a_source_that_exists_from_the_start(demo: RecordedPlane) -> None:
    await demo.put(SECRET, "it", CODER_ACCESS_URL="https://coder.example.com")
    async with demo.running():
        assert access_url(await demo.deploy(envFrom=[{"secretRef": {"name": "it"}}])) == ""


@pytest.mark.parametrize(("content", "injected", "generation"), [("OTHER", True, 1), ("CODER_ACCESS_URL", False, 2)])
async def test_access_url_while_a_source_is_missing(
    demo: RecordedPlane, content: str, injected: bool, generation: int
) -> None:
    """A source that appears rolls no pods, unless it defines the access URL."""
    async with demo.running() as operator:
        assert access_url(await demo.deploy(envFrom=[{"secretRef": {"name": "it"}}])) != ""
        async with operator.one_more_reconcile():
            await demo.put(SECRET, "it", **{content: "https://coder.example.com"})
        assert bool(access_url((await demo.deployment()).manifest)) == injected
        assert await demo.generation() == generation


async def test_access_url_of_one_source_counts_while_another_is_missing(demo: RecordedPlane) -> None:
    await demo.put(CONFIG_MAP, "there", OTHER="1")
    async with demo.running():
        await demo.deploy(envFrom=[{"secretRef": {"name": "absent"}}, {"configMapRef": {"name": "there"}}])
        await demo.put(CONFIG_MAP, "there", CODER_ACCESS_URL="https://coder.example.com")
        await demo.deployments.until("demo", lambda live: access_url(live) == "")


INGRESS = {"ingress": {"host": "coder.example.com"}}
TLS = {"ingress": {"host": "coder.example.com", "tls": {"secretName": "tls"}}}
GATEWAY = {"gateway": {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}}
OWN = "http://demo.golden.svc.cluster.local"
IN_SECRET = Environment(defines_access_url=True)


@pytest.mark.parametrize(
    ("spec", "environment", "expected"),
    [
        pytest.param({}, Environment(), OWN, id="in the cluster"),
        pytest.param({"tls": {"secretNames": ["tls"]}}, Environment(), OWN.replace("http", "https"), id="with TLS"),
        pytest.param({"expose": INGRESS}, Environment(), "http://coder.example.com", id="Ingress"),
        pytest.param({"expose": TLS}, Environment(), "https://coder.example.com", id="Ingress with TLS"),
        pytest.param({"expose": GATEWAY}, Environment(), "https://coder.example.com", id="Gateway"),
        pytest.param({"expose": GATEWAY}, Environment(access_url="https://a.example"), "https://a.example", id="set"),
        pytest.param({"expose": GATEWAY}, IN_SECRET, "https://coder.example.com", id="in a Secret, and exposed"),
        pytest.param({}, IN_SECRET, "", id="in a Secret"),
        pytest.param({"envUseClusterAccessURL": False}, Environment(), "", id="a tunnel of Coder"),
    ],
)
def test_url_for_users(spec: dict[str, Any], environment: Environment, expected: str) -> None:
    assert user_url(plane(**spec), environment) == expected


@pytest.mark.parametrize("expose", [{}, {"expose": INGRESS}], ids=["", "exposed"])
def test_last_known_url_while_its_source_is_missing(expose: dict[str, Any]) -> None:
    missing = Environment(missing=("ConfigMap it does not exist",), may_define_access_url=True)
    known = replace(plane(**expose), status=ControlPlaneStatus(access_url="https://a.example"))
    assert user_url(known, missing) == "https://a.example"
    assert user_url(known, Environment(missing=missing.missing)) != "https://a.example"


@pytest.mark.parametrize(
    "source",
    [
        {"envFrom": [{"configMapRef": {"name": "it"}}]},
        {
            "extraEnv": [
                {
                    "name": "CODER_ACCESS_URL",
                    "valueFrom": {"configMapKeyRef": {"name": "it", "key": "CODER_ACCESS_URL"}},
                }
            ]
        },
    ],
    ids=["envFrom", "extraEnv"],
)
async def test_access_url_in_the_status_while_its_config_map_is_missing(
    demo: RecordedPlane, source: dict[str, Any]
) -> None:
    url = "https://coder.example.com"
    async with demo.running() as operator:
        await demo.put(CONFIG_MAP, "it", CODER_ACCESS_URL=url)
        await demo.deploy(**source)
        await demo.wait_until(lambda live: live["status"].get("accessURL") == url)
        async with operator.one_more_reconcile():
            await demo.delete(CONFIG_MAP, "it")
        live = await demo.wait_until(lambda live: "does not exist" in str(live["status"]["conditions"]))
        assert live["status"]["accessURL"] == url


@pytest.mark.parametrize("value", ["https://a.example\n", "https://", "https://:80", "https://[::1", "https://a b"])
async def test_a_value_that_is_no_url_is_not_shown(demo: RecordedPlane, value: str) -> None:
    async with demo.running():
        await demo.deploy(extraEnv=[{"name": "CODER_ACCESS_URL", "value": value}])
        live = await demo.wait_until(lambda live: bool(live["status"].get("conditions")))
        assert "accessURL" not in live["status"]


async def test_access_url_in_the_status(demo: RecordedPlane) -> None:
    async with demo.running():
        await demo.put(CONFIG_MAP, "plain", CODER_ACCESS_URL="https://coder.example.com")
        await demo.deploy(envFrom=[{"configMapRef": {"name": "plain", "optional": True}}])
        await demo.wait_until(lambda live: live["status"].get("accessURL") == "https://coder.example.com")
        await demo.change(extraEnv=[{"name": "CODER_ACCESS_URL", "value": "https://other.example.com"}])
        await demo.wait_until(lambda live: live["status"].get("accessURL") == "https://other.example.com")
