"""Other clients of the API server, admission policies and nodes disturb updates."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coder_k8s.api.updates import Step
from coder_k8s.kube.kinds import DEPLOYMENT, POD
from coder_k8s.kube.objects import Kind, Manifest, Unstructured
from tests.support import eventually
from tests.support.simulated_pods import SCHEMAS, VERSIONS

from .site import UpdateSite
from .test_waiting import start_build

NEW = "coder:v3"
MIRROR = "mirror.example.com/"
GROUP = "admissionregistration.k8s.io"
POLICY = Kind(GROUP, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", Unstructured, namespaced=False)
BINDING = Kind(
    GROUP, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", Unstructured, namespaced=False
)


def image(spec: Manifest) -> str:
    return str(spec["template"]["spec"]["containers"][0]["image"])


async def test_deployment_that_another_client_unlabels_and_deletes_is_created_again(site: UpdateSite) -> None:
    demo = site.demo
    async with demo.operator() as operator:
        await site.deploy(operator)
        site.pods.verdict = "exec /bin/sh: exec format error"
        await demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.REFUSED
        await demo.client.merge(DEPLOYMENT, demo.key, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
        await site.settle(operator)
        await demo.change(replicas=3)  # which the operator writes while the update is refused
        await site.settle(operator)
        before = await demo.client.get(DEPLOYMENT, demo.key)
        assert before.manifest["spec"]["replicas"] == 3
        await demo.client.delete(DEPLOYMENT, before, unchanged=False)
        await demo.change(imagePullSecrets=[{"name": "x"}])
        await site.settle(operator)
        assert (await demo.client.get(DEPLOYMENT, demo.key)).metadata.uid != before.metadata.uid


async def test_evicted_pod_does_not_block_the_update(site: UpdateSite) -> None:
    """Kubernetes keeps such a pod, and counts it no more."""
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        labels = (await site.pods.pods())[0].metadata.labels
        metadata = {"name": "evicted", "namespace": site.demo.namespace, "labels": labels}
        spec = {"nodeName": "n", "serviceAccountName": "demo", "containers": [{"name": "coder", "image": "coder:v1"}]}
        evicted = await site.demo.client.create(POD, {"metadata": metadata, "spec": spec})
        await site.demo.client.merge(POD, evicted.key, {"status": {"phase": "Failed", "reason": "Evicted"}}, "status")
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE
        assert await site.pods.serving() == [NEW] * 2


async def test_deleted_deployment_starts_no_refused_image(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        site.pods.verdict = "exec /bin/sh: exec format error"
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.REFUSED
        await site.demo.delete(DEPLOYMENT, "demo")
        await site.demo.deployment()
        assert image(await site.deployment()) == "coder:v1"
        await site.settle(operator)
        assert (await site.update()).step == Step.REFUSED
        assert await site.pods.serving() == ["coder:v1"] * 2


async def test_deployment_that_the_api_server_rejects(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        await site.demo.change(image=NEW, resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
        await site.settle(operator)
        found = await site.demo.condition("Stalled", "PreflightFailed", "True")
        assert found.message.startswith(f"The Deployment with image {NEW} is rejected: ")
        assert await site.pods.serving() == ["coder:v1"] * 2
        await site.demo.change(resources={"limits": {"cpu": "2"}})
        await site.settle(operator)
        assert (await site.update()).step == Step.COMPLETE


async def test_spec_that_becomes_invalid_while_builds_run(site: UpdateSite) -> None:
    async with site.demo.operator() as operator:
        await site.deploy(operator)
        job = start_build(site)
        await site.demo.change(image=NEW)
        await site.settle(operator)
        assert (await site.update()).step == Step.DRAIN
        await site.demo.change(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
        site.demo.coderd.state.queue.finish_job(job)
        await site.settle(operator)
        assert (await site.update()).step == Step.REFUSED
        assert await site.pods.serving() == ["coder:v1"] * 2


@asynccontextmanager
async def mirrored(site: UpdateSite) -> AsyncIterator[None]:
    """Replace the images of Deployments, like a policy that uses a mirror."""
    name, first = f"mirror-{site.demo.namespace}", "object.spec.template.spec.containers[0].image"
    replaced = (
        f'[JSONPatch{{op: "replace", path: "/spec/template/spec/containers/0/image", value: "{MIRROR}" + {first}}}]'
    )
    here = f"object.metadata.namespace == '{site.demo.namespace}' && !{first}.startsWith('{MIRROR}')"
    deployments = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    rule = {**deployments, "operations": ["CREATE", "UPDATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "here", "expression": here}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": replaced}}],
    }
    client = site.demo.client
    policy = await client.create(POLICY, {"metadata": {"name": name}, "spec": spec})
    binding = await client.create(BINDING, {"metadata": {"name": name}, "spec": {"policyName": name}})
    try:
        await eventually(lambda: _replaces(site))
        yield
    finally:
        await client.delete(BINDING, binding)
        await client.delete(POLICY, policy)


async def _replaces(site: UpdateSite) -> bool:
    labels = {"app": "probe"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "probe"}]}}
    metadata = {"name": "probe", "namespace": site.demo.namespace}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return image(
        (await site.demo.client.dry_run(DEPLOYMENT, {"metadata": metadata, "spec": spec})).manifest["spec"]
    ) != ("probe")


@pytest.fixture
def mirrored_images(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in list(SCHEMAS):
        monkeypatch.setitem(SCHEMAS, MIRROR + each, SCHEMAS[each])
        monkeypatch.setitem(VERSIONS, MIRROR + each, VERSIONS[each])


@pytest.mark.usefixtures("mirrored_images")
async def test_restart_while_a_replaced_image_waits(site: UpdateSite) -> None:
    """The pods are still known to be those of the last rollout."""
    async with mirrored(site):
        async with site.demo.operator() as operator:
            await site.deploy(operator, update={"windows": [{"schedule": "0 22 * * 6", "duration": "4h"}]})
            await site.demo.change(image=NEW)
            await site.settle(operator)
            assert (await site.update()).step == Step.WINDOW
        async with site.demo.operator() as operator:
            await site.demo.change(replicas=3)
            await eventually(lambda: _has_replicas(site, 3))
            await site.settle(operator)
            assert (await site.update()).step == Step.WINDOW
            assert await site.pods.serving() == [f"{MIRROR}coder:v1"] * 3
            assert (await site.demo.get()).status.image == "coder:v1"  # provisioners follow it


async def _has_replicas(site: UpdateSite, number: int) -> bool:
    return bool((await site.deployment())["replicas"] == number)


@pytest.mark.usefixtures("mirrored_images")
async def test_image_that_a_policy_replaces(site: UpdateSite) -> None:
    """The image of the spec is updated when it changes, and not because it is stored under another name."""
    async with mirrored(site):
        async with site.demo.operator() as operator:
            await site.deploy(operator)
            assert image(await site.deployment()) == f"{MIRROR}coder:v1"
            plane = await site.demo.get()
            assert (plane.status.update, plane.status.image) == (None, "coder:v1")
        async with site.demo.operator() as operator:
            before = [pod.metadata.uid for pod in await site.pods.pods()]
            await site.settle(operator)
            assert (await site.demo.get()).status.update is None
            assert [pod.metadata.uid for pod in await site.pods.pods()] == before
            await site.demo.change(image=NEW)
            await site.settle(operator)
            assert (await site.update()).step == Step.COMPLETE
            plane = await site.demo.get()
            assert (plane.status.image, image(await site.deployment())) == (NEW, f"{MIRROR}{NEW}")
            assert await site.pods.serving() == [f"{MIRROR}{NEW}"] * 2
