"""A real Coder without a license: entitlements, a rejected license, and kinds that need one."""

from typing import Any

import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.dev.coder_build import AGPL, LATEST
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET
from coder_k8s.kube.objects import Kind
from tests.support import objects
from tests.support.real_coder import RealPlane

from .versions import MOSTLY_LATEST

pytestmark = pytest.mark.timeout(400)

INVALID = (
    "rejects license b8b2779678cb of Secret license: Invalid license: license has multiple issues; contact support"
)
CASES = {
    LATEST: (
        ("LicenseInvalid", INVALID),
        ("Checked", "License tier none; external provisioners are not entitled"),
        ("NotEntitled", "does not cover external provisioners"),
        ("NotEntitled", "does not cover workspace proxies; add one that does: Workspace Proxy is a Premium feature"),
    ),
    AGPL: (
        ("NotSupported", "is a build of Coder without licenses"),
        ("NotSupported", "is a build of Coder without entitlements"),
        ("NotSupported", ""),
        ("NotSupported", ""),
    ),
}
"""The reason and a part of the message of the license, the entitlements, a provisioner and a proxy."""


@pytest.mark.parametrize("version", MOSTLY_LATEST)
async def test_what_needs_a_license_is_refused_and_nothing_is_created(real_coder: RealPlane, version: str) -> None:
    license, entitlements, provisioner, proxy = CASES[version]
    reference = {"controlPlaneRef": {"name": real_coder.name}}
    await real_coder.put_secret("license", license="not-a-license")
    async with real_coder.operator():
        await real_coder.make(version=version, replicas=1, licenseSecretRef={"name": "license"})
        await reports(real_coder, CONTROL_PLANE, real_coder.name, "LicenseApplied", *license)
        await reports(real_coder, CONTROL_PLANE, real_coder.name, "EntitlementsKnown", *entitlements)
        plane = await real_coder.get()
        assert (plane.status.license_tier, plane.status.version) == ("none", f"v{version}")

        await objects.create(real_coder.client, PROVISIONER, real_coder.key_of("build"), reference)
        await objects.create(real_coder.client, WORKSPACE_PROXY, real_coder.key_of("sydney"), reference)
        await reports(real_coder, PROVISIONER, "build", "ExternalProvisionersEntitled", *provisioner)
        await reports(real_coder, WORKSPACE_PROXY, "sydney", "Registered", *proxy)
        assert await names(real_coder, DEPLOYMENT) == {real_coder.name}
        assert await names(real_coder, SECRET) == {"license", f"{real_coder.name}-operator-token"}


async def reports(place: RealPlane, kind: Kind[Any], name: str, condition: str, reason: str, part: str) -> None:
    """Wait until a condition has this reason, and a message that contains this part."""
    found = await objects.condition(place.client, kind, place.key_of(name), condition, reason, "", place.timeout)
    assert part in found.message


async def names(place: RealPlane, kind: Kind[Any]) -> set[str]:
    return {each.metadata.name for each in await objects.list_all(place.client, kind, place.namespace)}
