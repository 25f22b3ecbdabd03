"""Without an image in the spec, a proxy uses the image that its control plane runs, not the one that it rolls out."""

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.kube.kinds import DEPLOYMENT
from coder_k8s.kube.objects import Key, Unstructured
from tests.support import eventually
from tests.support.workspaceproxies import NAME, PLANE, ProxyNamespace


def image(deployment: Unstructured) -> str:
    [container] = deployment.manifest["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


async def rolled(place: ProxyNamespace, wanted: str) -> None:
    """Wait until the Deployment has an image."""

    async def check() -> bool:
        return image(await place.deployment()) == wanted

    await eventually(check)


async def test_image_follows_the_completed_rollout_of_the_control_plane(place: ProxyNamespace) -> None:
    await place.make_plane()
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        await place.ready(operator)
        before = await place.deployment()
        assert image(before) == "coder:v2.36.1"
        await place.client.merge(CONTROL_PLANE, Key(place.namespace, PLANE), {"spec": {"image": "coder:v2.37.0"}})
        await operator.later(seconds=61)
        assert (await place.deployment()).metadata.generation == before.metadata.generation
        await place.set_plane_status(image="coder:v2.37.0")
        await rolled(place, "coder:v2.37.0")
        await place.change(image="coder:own")
        await rolled(place, "coder:own")


async def test_pods_keep_their_image_while_the_control_plane_reports_none(place: ProxyNamespace) -> None:
    """As after an upgrade from a version that did not report it: no pod restarts."""
    await place.make_plane()
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        await place.ready(operator)
    before = await place.deployment()
    await place.set_plane_status(image=None)
    async with place.operator() as operator:
        await place.change(replicas=2)
        await place.condition("DeploymentReady", "MinimumReplicasReady", "True")
        await operator.wait_idle()
        after = await place.deployment()
        assert after.manifest["spec"]["replicas"] == 2
        assert after.manifest["spec"]["template"] == before.manifest["spec"]["template"]


async def test_no_pod_starts_before_an_image_is_known(place: ProxyNamespace) -> None:
    await place.make_plane(image="")
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        condition = await place.condition("DeploymentReady", "ImagePending", "False")
        assert PLANE in condition.message
        assert "status.image" in condition.message
        assert (await place.conditions())["Ready"][0] == "False"
        await place.condition("Stalled", "Progressing", "False")
        assert await place.find(DEPLOYMENT, f"wsproxy-{NAME}") is None
        await place.set_plane_status(image="coder:v2.36.1")
        await place.ready(operator)
        assert image(await place.deployment()) == "coder:v2.36.1"


async def test_messages_of_true_conditions(place: ProxyNamespace) -> None:
    async with place.operator() as operator:
        await place.make(bootstrap={**place.bootstrap, "proxyName": "oceania", "generatedTokenSecretName": "kept"})
        await place.ready(operator)
        said = {each.type: each.message for each in (await place.get()).status.conditions}
    assert said["Registered"] == f"Registered as oceania at {place.coderd.url}"
    assert said["TokenSecretReady"] == "Secret kept has the token of the proxy under key token"
    assert said["ProxyHealthy"] == "Coder reaches the proxy, which runs v2.36.1"
    assert "1 of 1 pods are ready" in said["DeploymentReady"]
