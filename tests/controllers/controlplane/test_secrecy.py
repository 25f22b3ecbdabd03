"""No token, license or password is in a log, event, condition, metric or child."""

import json
import logging

import pytest

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane.wiring import CHILDREN
from coder_k8s.dev.coderd_server import make_license
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Unstructured
from tests.support.controlplanes import PlaneNamespace
from tests.support.databases import CoderdDatabase
from tests.support.operators import Operator

PASSWORD = "correct-horse-battery"
WRONG_PASSWORD = "staple-of-the-horse"
GARBAGE = "not-a-license-but-secret"
REJECTED = "AAAAAAAAAA-BBBBBBBBBBBBBBBBBBBBBB"


async def visible_text(demo: PlaneNamespace, operator: Operator, caplog: pytest.LogCaptureFixture) -> str:
    """Everything that a user who may not read Secrets can see."""
    await operator.wait_idle()
    formatter = logging.Formatter("%(name)s %(message)s %(args)s")
    seen = [formatter.format(record) + repr(record.__dict__) for record in caplog.records]
    seen.append(json.dumps(await demo.client.get_manifest(CONTROL_PLANE, demo.key)))
    seen += [json.dumps(event) for event in await demo.events()]
    seen.append(operator.metrics())
    for kind in CHILDREN:
        try:
            pages = demo.client.list(kind, demo.namespace)
            children = [Unstructured.decode(item).manifest async for page in pages for item in page.items]
        except errors.NotFound:
            continue
        for child in children:
            if kind is SECRET:
                child.pop("data", None)
            seen.append(json.dumps(child))
    return "\n".join(seen)


def assert_hidden(seen: str, *secrets: str) -> None:
    for secret in secrets:
        assert secret not in seen
        for part in (part for part in secret.split(".") + secret.split("-") if len(part) > 15):
            assert part not in seen


async def test_no_secret_is_visible_without_errors(
    demo: PlaneNamespace, database: CoderdDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    jwt = make_license(demo.clock())
    await demo.put_secret("license", license=jwt)
    await demo.put_secret("database", url=database.server.url(database.name, "admin", PASSWORD))
    reference = {"secretKeyRef": {"name": "database", "key": "url"}}
    async with demo.operator() as operator:
        await demo.make(
            extraEnv=[{"name": "CODER_PG_CONNECTION_URL", "valueFrom": reference}],
            licenseSecretRef={"name": "license"},
        )
        await demo.roll_out()
        await demo.condition("Ready", "AllReady", "True")
        first = await demo.token()
        await operator.later(days=340)
        second = await demo.token()
        assert second != first
        await demo.event("LicenseApplied")
        seen = await visible_text(demo, operator, caplog)
        assert "LicenseApplied" in seen
        assert "coder_k8s_license_tier" in seen
        assert_hidden(seen, PASSWORD, jwt, first, second)


async def test_no_secret_is_visible_with_errors(
    demo: PlaneNamespace, database: CoderdDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = database.server.url(database.name, "coder", WRONG_PASSWORD)
    await demo.put_secret("database", url=url)
    await demo.put_secret("license", license=GARBAGE)
    await demo.put_secret("given", token=REJECTED)
    reference = {"secretKeyRef": {"name": "database", "key": "url"}}
    async with demo.operator() as operator:
        await demo.make(
            extraEnv=[{"name": "CODER_PG_CONNECTION_URL", "valueFrom": reference}],
            licenseSecretRef={"name": "license"},
        )
        await demo.roll_out()
        await demo.condition("OperatorAccessReady", "DatabaseUnreachable", "False")
        await demo.put_secret("database", url=f"mysql://{WRONG_PASSWORD}@nowhere")
        await operator.later(seconds=31)
        await demo.condition("OperatorAccessReady", "DatabaseUnreachable", "False")
        await demo.change(operatorAccess={"tokenSecretRef": {"name": "given"}})
        await demo.condition("OperatorAccessReady", "TokenRejected", "False")
        await demo.put_secret("given", token=demo.coderd.state.token)
        await demo.condition("LicenseApplied", "LicenseInvalid", "False")
        for failure in ("failing", "cut", "rate_limited", "database_down"):
            demo.coderd.state.set(**{failure: True})
            await operator.later(minutes=3)
            demo.coderd.state.set(**{failure: False})
        await demo.event("LicenseInvalid")
        seen = await visible_text(demo, operator, caplog)
        assert "OperatorAccessFailed" in seen
        assert_hidden(seen, WRONG_PASSWORD, GARBAGE, REJECTED, demo.coderd.state.token)
