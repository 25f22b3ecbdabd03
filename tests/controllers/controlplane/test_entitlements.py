"""Entitlements of a control plane: status, events and metrics."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.api.controlplane import ControlPlaneStatus
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.coderd.types import Feature, License
from coder_k8s.controllers.controlplane.entitlements import (
    EXTERNAL_PROVISIONERS,
    NOTHING,
    EntitlementWatcher,
    entitlement,
    expiry,
    is_warning_due,
)
from coder_k8s.controllers.controlplane.metrics import LicenseMetrics
from coder_k8s.controllers.report import StatusReport
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import User
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from tests.support import eventually
from tests.support.api import Api, plain_config, reply
from tests.support.controlplanes import LICENSES, PlaneNamespace, plane_with_token, value_of

from .planes import plane

ENTITLEMENTS = "/api/v2/entitlements"
EXPIRY = "coder_k8s_license_expiry_timestamp_seconds"
TIER = "coder_k8s_license_tier"
FEATURE = "coder_k8s_license_entitlement"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
async def demo(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    """A control plane with a valid token, without `licenseSecretRef`."""
    async with plane_with_token(cluster.kubeconfig, operator_kubeconfig, namespace, health={"interval": "0s"}) as place:
        yield place


def queries(demo: PlaneNamespace) -> int:
    return demo.coderd.state.count("GET", ENTITLEMENTS)


@pytest.mark.parametrize(
    ("claims", "tier", "entitlement", "number"),
    [
        (None, "none", "not_entitled", 0),
        ({}, "premium", "entitled", 2),
        ({"feature_set": "enterprise"}, "enterprise", "entitled", 2),
        ({"trial": True}, "trial", "entitled", 2),
        ({"expires": timedelta(days=-1)}, "premium", "grace_period", 1),
        ({"expires": timedelta(days=-1), "feature_set": "enterprise"}, "enterprise", "grace_period", 1),
        ({"expires": timedelta(days=-40)}, "none", "not_entitled", 0),
    ],
)
async def test_each_tier(
    demo: PlaneNamespace, claims: dict[str, Any] | None, tier: str, entitlement: str, number: int
) -> None:
    if claims is not None:
        demo.coderd.state.install_license(**claims)
    async with demo.operator() as operator:
        await demo.condition("EntitlementsKnown", "Pending", "Unknown")
        status = (await demo.get()).status
        assert (status.license_tier, status.external_provisioner_daemons_entitlement) == ("unknown", "unknown")
        assert status.entitlements_last_checked is None
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
        await demo.condition("Ready", "AllReady", "True")
        assert (await demo.conditions())["LicenseApplied"] == ("Unknown", "NotConfigured")
        status = (await demo.get()).status
        assert (status.license_tier, status.external_provisioner_daemons_entitlement) == (tier, entitlement)
        assert (status.entitlements_last_checked, status.version) == (demo.clock(), "v2.36.1")
        has_license = tier != "none"
        ends = demo.clock() + (claims or {}).get("expires", timedelta(days=365))
        assert status.license_expires == (ends if has_license else None)
        metrics, who = operator.metrics(), {"namespace": demo.namespace, "name": demo.key.name}
        assert value_of(metrics, TIER, tier=tier, **who) == 1
        assert metrics.count(f"{TIER}{{") == 1
        assert value_of(metrics, FEATURE, feature="external_provisioner_daemons", **who) == number
        assert value_of(metrics, EXPIRY, **who) == (ends.timestamp() if has_license else None)


async def test_coderd_is_queried_and_status_written_at_most_every_two_minutes(demo: PlaneNamespace) -> None:
    demo.coderd.state.install_license()
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
        assert 110 < (operator.requeue_after() or 0) <= 120
        await eventually(lambda: demo.events("Ready"))
        first, before = sum(demo.coderd.state.requests.values()), operator.write_requests()
        checked = demo.clock()
        for _ in range(11):
            await operator.later(seconds=10)
        assert sum(demo.coderd.state.requests.values()) == first, "there is no query before the interval is over"
        assert operator.write_requests() == before
        assert (await demo.get()).status.entitlements_last_checked == checked
        for _ in range(49):
            await operator.later(seconds=10)
        assert operator.write_requests() - before == 5
        assert queries(demo) == 6
        assert (await demo.get()).status.entitlements_last_checked == demo.clock()


async def test_a_restart_writes_nothing(demo: PlaneNamespace) -> None:
    demo.coderd.state.install_license()
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await operator.wait_idle()
    demo.clock.advance(seconds=60)
    async with demo.operator() as operator:
        await operator.reconcile()
        assert queries(demo) == 2, "a new process needs values for its metrics"
        assert value_of(operator.metrics(), EXPIRY) is not None
        assert operator.writes() == 0


async def test_a_change_is_reported(demo: PlaneNamespace) -> None:
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
        demo.coderd.state.install_license()
        await operator.later(seconds=121)
        status = (await demo.get()).status
        assert (status.license_tier, status.external_provisioner_daemons_entitlement) == ("premium", "entitled")
        assert await demo.events("EntitlementLost") == []
        demo.coderd.state.remove_licenses()
        await operator.later(seconds=121)
        status = (await demo.get()).status
        assert (status.license_tier, status.license_expires) == ("none", None)
        event = await demo.event("EntitlementLost")
        assert event["type"] == "Warning"
        assert value_of(operator.metrics(), EXPIRY) is None
        await operator.later(seconds=121)
        assert len(await demo.events("EntitlementLost")) == 1


@pytest.mark.parametrize(
    ("value", "shown"), [("entitled", "entitled"), ("grace_period", "grace_period"), ("invented", "unknown")]
)
def test_an_entitlement_that_the_crd_does_not_know_is_unknown(value: str, shown: str) -> None:
    """The API server rejects a status with another value."""
    found = replace(NOTHING, features={"external_provisioner_daemons": Feature(value, enabled=True)})
    assert entitlement(found, "external_provisioner_daemons") == shown


async def test_the_grace_period_loses_no_entitlement(demo: PlaneNamespace) -> None:
    demo.coderd.state.install_license(expires=timedelta(days=1), grace=timedelta(days=2))
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
        await operator.later(days=2)
        assert (await demo.get()).status.external_provisioner_daemons_entitlement == "grace_period"
        assert await demo.events("EntitlementLost") == []
        await operator.later(days=2)
        assert (await demo.get()).status.external_provisioner_daemons_entitlement == "not_entitled"
        await demo.event("EntitlementLost")


async def test_an_expiring_license_has_three_events(demo: PlaneNamespace) -> None:
    demo.coderd.state.install_license(expires=timedelta(days=40))

    async def warned() -> int:
        return sum(event.get("series", {}).get("count", 1) for event in await demo.events("LicenseExpiring"))

    for start, warnings in ((0, 0), (9, 0), (11, 1), (25, 1), (27, 2), (36, 2), (38, 3), (39, 3)):
        demo.clock.time = datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(days=start)
        async with demo.operator() as operator:
            await demo.roll_out()
            await demo.condition("EntitlementsKnown", "Checked", "True")
            await operator.later(seconds=121)
            await operator.later(seconds=121)

            async def as_many(warnings: int = warnings) -> bool:
                return await warned() >= warnings

            await eventually(as_many)
        assert await warned() == warnings, f"after {start} days"


async def test_the_metrics_are_removed_with_the_control_plane(demo: PlaneNamespace) -> None:
    demo.coderd.state.install_license()
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
        await operator.wait_idle()
        assert demo.namespace in operator.metrics()
        await demo.delete(CONTROL_PLANE, demo.key.name)
        await eventually(lambda: demo.namespace not in operator.metrics())


async def test_entitlements_without_visible_licenses(demo: PlaneNamespace) -> None:
    demo.coderd.state.install_license()
    await demo.put_secret("given", token=demo.coderd.state.add_token(User("member")))
    async with demo.operator():
        await demo.roll_out()
        await demo.condition("EntitlementsKnown", "Checked", "True")
        status = (await demo.get()).status
    assert (status.license_tier, status.external_provisioner_daemons_entitlement) == ("premium", "entitled")
    assert status.license_expires is None


FEATURES = {name: {"entitlement": "entitled", "enabled": True} for name in ("custom_roles", EXTERNAL_PROVISIONERS)}
BUILD_INFO = {"version": "v2.36.1", "external_url": "", "deployment_id": ""}
ALLOWED = {
    "features": FEATURES,
    "has_license": True,
    "trial": False,
    "refreshed_at": "2026-03-01T00:00:00Z",
    "warnings": [],
    "errors": [],
}


async def test_entitlements_if_the_token_may_not_list_licenses() -> None:
    """Like a token with a narrow scope: coderd rejects the list, and only the expiry is unknown."""
    forbidden = reply({"message": "Forbidden."}, 403)
    async with (
        Api(reply(BUILD_INFO), reply(ALLOWED), forbidden) as api,
        Connections() as connections,
        Http(plain_config(api.port), "test", metrics := Metrics()) as http,
    ):
        recorder = Recorder(Client(http, "test"), "test", "test", metrics)
        watcher = EntitlementWatcher(recorder, LicenseMetrics(metrics.registry), lambda: NOW)
        report = StatusReport(ControlPlaneStatus())
        await watcher.check(plane(), Coderd(connections, f"http://127.0.0.1:{api.port}", "token"), True, report)
    assert [seen.path for seen in api.requests] == ["/api/v2/buildinfo", ENTITLEMENTS, LICENSES]
    assert [(found.type, found.status, found.reason) for found in report.findings] == [
        ("EntitlementsKnown", True, "Checked")
    ]
    assert (report.fields["license_tier"], report.fields["license_expires"]) == ("premium", None)
    assert report.fields["external_provisioner_daemons_entitlement"] == "entitled"


async def test_without_access_coderd_is_not_queried(demo: PlaneNamespace) -> None:
    await demo.change(operatorAccess={"tokenSecretRef": None, "disabled": True})
    async with demo.operator() as operator:
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        await demo.condition("EntitlementsKnown", "Pending", "Unknown")
        await operator.wait_idle()
    assert sum(demo.coderd.state.requests.values()) == 0


@pytest.mark.parametrize(
    ("left", "since_check", "due"),
    [
        (31, 1, False),
        (30, 1, True),
        (29.5, 1, True),
        (29, 1, False),
        (14, 1, True),
        (13.5, 1, True),
        (12, 1, False),
        (3, 1, True),
        (2.5, 1, True),
        (2, 1, False),
        (-1, 1, False),
        (2, 60, True),
        (20, None, True),
        (40, None, False),
    ],
)
def test_when_a_warning_is_due(left: float, since_check: float | None, due: bool) -> None:
    ends = NOW + timedelta(days=left)
    last = None if since_check is None else NOW - timedelta(days=since_check)
    before = ControlPlaneStatus(entitlements_last_checked=last, license_expires=ends)
    assert is_warning_due(before, ends, NOW) is due


def test_a_new_license_has_its_own_dates() -> None:
    before = ControlPlaneStatus(entitlements_last_checked=NOW, license_expires=NOW + timedelta(days=1))
    assert is_warning_due(before, NOW + timedelta(days=10), NOW)
    assert not is_warning_due(before, NOW + timedelta(days=300), NOW)


@pytest.mark.parametrize(
    ("claims", "ends"),
    [
        ([], None),
        ([{"license_expires": 10, "exp": 20}], 10),
        ([{"exp": 20}], 20),
        ([{"license_expires": 10}, {"license_expires": 30}, {}], 30),
        ([{"license_expires": "soon", "exp": 1e30}], None),
    ],
)
def test_expiry_of_several_licenses(claims: list[dict[str, Any]], ends: int | None) -> None:
    stored = [License(1, "", NOW, each) for each in claims]
    assert expiry(stored) == (None if ends is None else datetime.fromtimestamp(ends, UTC))
