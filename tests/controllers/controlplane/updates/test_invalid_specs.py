"""The API server rejects the Deployment in the middle of an update: Coder is not left without pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from coder_k8s.api.updates import Step
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Kind, Unstructured
from tests.support import eventually
from tests.support.simulated_pods import BROKEN

from .site import UpdateSite

NEW = "coder:v3"
INVALID: dict[str, Any] = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
VALID: dict[str, Any] = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
REJECTED = "spec.template.spec.containers[0].resources.requests: Invalid value"
GROUP = "admissionregistration.k8s.io"
POLICY = Kind(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", Unstructured, namespaced=False)
BINDING = Kind(
    GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", Unstructured, namespaced=False
)


@pytest.mark.parametrize("restarted", [False, True])
async def test_while_pods_stop(site: UpdateSite, restarted: bool) -> None:
    """The old image runs again, with the settings that it had, until the spec is fixed."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        template = (await site.deployment())["template"]
        site.pods.stops = False
        await site.demo.change(image=NEW, extraArgs=["--new"])
        await site.settle(operator)
        assert (await site.update()).step == Step.STOP
        await site.demo.change(**INVALID)
        if not restarted:
            await site.settle(operator)
    site.pods.stops = True
    async with site.demo.operator() as operator:
        await site.settle(operator)
        assert (await site.update()).step == Step.ROLLED_BACK
        assert await site.pods.serving() == ["coder:v1"] * 2
        assert (await site.deployment())["template"] == template
        found = await site.demo.condition("Stalled", "RolledBack", "True")
        assert found.message.startswith(f"The Deployment with image {NEW} is rejected: ")
        assert REJECTED in found.message
        assert found.message.endswith(". Image coder:v1 runs again")
        assert site.pods.migrated == []
        writes = operator.writes()
        await operator.reconcile()
        assert operator.writes() == writes + 1  # the API server rejects it again
        await site.demo.change(**VALID)
        await site.settle(operator)
        await assert_complete(site)


async def test_while_a_pod_migrates(site: UpdateSite) -> None:
    """The update is complete with the settings with which it began."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.starts = False
        await site.demo.change(image=NEW, extraArgs=["--new"])
        await site.settle(operator)
        assert (await site.update()).step == Step.MIGRATE
        await site.demo.change(**INVALID, replicas=3)
        await site.settle(operator)
        site.pods.starts = True
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert await site.pods.serving() == [NEW] * 3
        [container] = (await site.deployment())["template"]["spec"]["containers"]
        assert container["args"][-1] == "--new"
        assert len(site.pods.migrated) == 1
        found = await site.demo.condition("Stalled", "SpecInvalid", "True")
        assert REJECTED in found.message
        await site.demo.change(**VALID)
        await site.settle(operator)
        await assert_complete(site, 3)


async def test_while_pods_stop_and_the_image_is_reverted(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.stops = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.STOP
        await site.demo.change(image="coder:v1", **INVALID)
        site.pods.stops = True
        await site.settle(operator)
        assert (await site.demo.get()).status.update is None
        assert await site.pods.serving() == ["coder:v1"] * 2
        assert (await site.demo.conditions())["Stalled"] == ("True", "SpecInvalid")
        await site.demo.change(**VALID)
        await site.settle(operator)
        assert (await site.demo.conditions())["Ready"] == ("True", "AllReady")
        assert (await site.deployment())["strategy"]["type"] == "RollingUpdate"


async def test_before_a_broken_image_is_rolled_back(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.starts = False
        await site.demo.change(image=BROKEN)
        await site.settle(operator)
        assert (await site.update()).step == Step.MIGRATE
        await site.demo.change(**INVALID)
        site.pods.starts = True
        await site.settle(operator)
        assert (await site.update()).step == Step.REFUSED  # the spec has changed, so the image was checked again
        assert await site.pods.serving() == ["coder:v1"] * 2
        assert REJECTED in (await site.demo.condition("Stalled", "PreflightFailed", "True")).message
        await site.demo.change(image=NEW, **VALID)
        await site.settle(operator)
        await assert_complete(site)


async def test_policy_that_denies_the_new_image_while_pods_stop(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.stops = False
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.STOP
        async with denied(site, NEW):
            site.pods.stops = True
            await site.settle(operator)
            assert (await site.update()).step == Step.ROLLED_BACK
            assert await site.pods.serving() == ["coder:v1"] * 2
            assert "image is denied" in (await site.demo.condition("Stalled", "RolledBack", "True")).message


async def assert_complete(site: UpdateSite, replicas: int = 2) -> None:
    assert (await site.update()).step == Step.COMPLETE
    assert await site.pods.serving() == [NEW] * replicas
    assert (await site.demo.conditions())["Ready"] == ("True", "AllReady")
    assert (await site.deployment())["template"]["spec"]["containers"][0]["resources"] == VALID["resources"]


@asynccontextmanager
async def denied(site: UpdateSite, image: str) -> AsyncIterator[None]:
    """Reject Deployments with an image, like a policy that permits only some."""
    name = f"denied-{site.demo.namespace}"
    deployments = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**deployments, "operations": ["CREATE", "UPDATE"]}]},
        "matchConditions": [{"name": "here", "expression": f"object.metadata.namespace == '{site.demo.namespace}'"}],
        "validations": [
            {
                "expression": f"object.spec.template.spec.containers.all(each, each.image != '{image}')",
                "message": "this image is denied",
            }
        ],
    }
    client = site.demo.client
    policy = await client.create(POLICY, {"metadata": {"name": name}, "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    binding = await client.create(BINDING, {"metadata": {"name": name}, "spec": bound})
    try:
        await eventually(lambda: _is_denied(site, image))
        yield
    finally:
        await client.delete(BINDING, binding)
        await client.delete(POLICY, policy)


async def _is_denied(site: UpdateSite, image: str) -> bool:
    labels = {"app": "probe"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": image}]}}
    metadata = {"name": "probe", "namespace": site.demo.namespace}
    try:
        await site.demo.client.dry_run(
            DEPLOYMENT, {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        )
    except errors.ApiError as error:
        return "image is denied" in str(error)
    return False
