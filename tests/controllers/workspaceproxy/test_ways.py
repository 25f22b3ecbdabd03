"""The three sources of a token, and changes between them."""

from collections.abc import Iterator

import pytest

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.controllers.names import fnv1a32
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.kube.kinds import DEPLOYMENT, SECRET, SERVICE
from coder_k8s.kube.objects import Kind, Unstructured
from tests.support import eventually
from tests.support.workspaceproxies import (
    CREDENTIALS,
    FINALIZER,
    NAME,
    PLANE,
    SECRET_NAME,
    ProxyNamespace,
    container,
    environment,
    leaked_tokens,
)

CHECKSUM = "checksum/proxy-token"
PRIMARY = "https://coder.example.com"


@pytest.fixture(autouse=True)
def no_leaked_tokens(place: ProxyNamespace) -> Iterator[None]:
    """No coderd receives a token of another one."""
    yield
    assert not leaked_tokens(place.coderd)


def checksum(deployment: Unstructured) -> str | None:
    annotations: dict[str, str] = deployment.manifest["spec"]["template"]["metadata"].get("annotations", {})
    return annotations.get(CHECKSUM)


async def rolled(place: ProxyNamespace, token: str) -> None:
    """Wait until the pod template has this token."""

    async def check() -> bool:
        return checksum(await place.deployment()) == fnv1a32(token.encode())

    await eventually(check)


async def test_given_token(place: ProxyNamespace) -> None:
    """Nothing is registered, coderd is not queried, and a new token restarts the pods."""
    async with place.operator() as operator:
        await place.make(primaryAccessURL=PRIMARY, proxySessionTokenSecretRef={"name": "given", "key": "t"})
        await place.condition("TokenSecretReady", "SecretMissing", "False")
        await place.condition("Stalled", "SecretMissing", "True")
        await place.put_secret("given", t="id:first\n")
        await place.condition("TokenSecretReady", "SecretReady", "True")
        await place.roll_out()
        await place.condition("Ready", "AllReady", "True")
        deployment = await place.deployment()
        assert environment(deployment) == {
            "CODER_PRIMARY_ACCESS_URL": PRIMARY,
            "CODER_PROXY_SESSION_TOKEN": {"secretKeyRef": {"name": "given", "key": "t"}},
        }
        assert checksum(deployment) is None  # its pods waited for the Secret, which restarts nothing
        proxy = await place.get()
        assert (proxy.status.registered, proxy.metadata.finalizers) == (False, [])
        assert proxy.status.proxy_token_secret_ref is not None
        assert proxy.status.proxy_token_secret_ref.name == "given"
        assert (await place.conditions())["Registered"] == ("Unknown", "NotManaged")
        await operator.wait_idle()
        before = operator.write_requests()
        await operator.later(hours=1)
        assert operator.write_requests() == before
        await place.put_secret("given", t="id:second")
        await rolled(place, "id:second")
    assert place.coderd.state.requests.total() == 0


async def test_registration_with_given_credentials(place: ProxyNamespace) -> None:
    bootstrap = {**place.bootstrap, "displayName": "Sydney", "icon": "/emojis/1f1e6.png"}
    async with place.operator() as operator:
        await place.make(bootstrap=bootstrap, replicas=2, image="coder:v1", derpOnly=True, extraArgs=["--verbose"])
        await place.condition("DeploymentReady", "NoReplicasReady", "False")
        await place.roll_out(ready=2)
        registered = place.proxies[NAME]
        await place.condition("ProxyHealthy", "ProxyUnregistered", "False")
        place.coderd.state.set_proxy(NAME, "ok")
        await operator.later(seconds=11)
        await place.condition("Ready", "AllReady", "True")
        assert (registered.display_name, registered.icon) == ("Sydney", "/emojis/1f1e6.png")
        assert await place.token() == registered.token
        found = container(deployment := await place.deployment())
        assert found["command"] == ["/opt/coder"]
        assert found["args"] == ["wsproxy", "server", "--http-address=0.0.0.0:3001", "--derp-only", "--verbose"]
        for probe in ("readinessProbe", "livenessProbe"):
            assert found[probe]["httpGet"] == {"path": "/healthz", "port": "http", "scheme": "HTTP"}
        assert environment(deployment)["CODER_PRIMARY_ACCESS_URL"] == place.coderd.url
        assert checksum(deployment) == fnv1a32(registered.token.encode())
        service = await place.find(SERVICE, f"wsproxy-{NAME}")
        assert [(port["port"], port["targetPort"]) for port in service.manifest["spec"]["ports"]] == [(80, 3001)]
        proxy = await place.get()
        assert (proxy.status.registered, proxy.status.proxy_id) == (True, registered.id)
        assert (proxy.status.phase, proxy.status.ready_replicas) == ("Ready", 2)
        assert proxy.metadata.finalizers == [FINALIZER]
        assert (
            await place.note("WorkspaceProxyRegistered") == f"Registered workspace proxy {NAME} at {place.coderd.url}"
        )
        await operator.wait_idle()
        before = operator.write_requests()
        await operator.later(seconds=61)
        assert operator.write_requests() == before
    assert (place.registrations(), place.changes()) == (1, 0)


async def test_registration_at_a_control_plane(place: ProxyNamespace) -> None:
    """URL, image and credentials come from the control plane, as soon as it has them."""
    async with place.operator() as operator:
        await place.make(controlPlaneRef={"name": PLANE})
        await place.condition("Registered", "ControlPlaneMissing", "False")
        await place.condition("Stalled", "ControlPlaneMissing", "True")
        await place.make_plane(operatorAccessReady=False)
        await place.condition("Registered", "OperatorAccessNotReady", "False")
        await place.condition("Stalled", "Progressing", "False")
        assert place.coderd.state.requests.total() == 0
        await place.set_plane_status(operatorAccessReady=True)
        proxy = await place.ready(operator)
        deployment = await place.deployment()
    assert container(deployment)["image"] == "coder:v2.36.1"
    assert environment(deployment)["CODER_PRIMARY_ACCESS_URL"] == f"http://{PLANE}.{place.namespace}.svc.cluster.local"
    assert (proxy.status.proxy_id, proxy.status.control_plane_ref_name) == (place.proxies[NAME].id, PLANE)
    made = place.proxies[NAME]
    assert (made.display_name, made.icon) == (NAME, "/emojis/1f5fa.png")


@pytest.mark.parametrize("way", ["given", "plane"])
async def test_change_from_given_credentials(place: ProxyNamespace, way: str) -> None:
    """The control plane is the same coderd: the proxy is kept. With the token of another proxy it retires."""
    await place.make_plane()
    async with place.operator() as operator:
        await place.make()
        before = (await place.ready(operator)).status.proxy_id
        if way == "plane":
            await place.change(bootstrap=None, controlPlaneRef={"name": PLANE})
            proxy = await place.ready(operator)
            assert (proxy.status.proxy_id, proxy.status.control_plane_ref_name) == (before, PLANE)
            assert proxy.status.credentials_secret_ref is None
            assert (place.registrations(), place.changes()) == (1, 0)
            return
        await place.put_secret("given", token="other:token")
        await place.change(bootstrap=None, proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL=PRIMARY)
        await place.condition("Registered", "NotManaged")
        await operator.wait_idle()
        assert NAME in place.proxies  # its pods still run
        assert await place.token()
        await place.roll_out()
        await place.condition("Ready", "AllReady", "True")
        await place.gone(SECRET, SECRET_NAME)
        assert place.proxies == {}
        await operator.wait_idle()  # the finalizer is removed after the status is written
        proxy = await place.get()
        assert (proxy.metadata.finalizers, proxy.status.retiring_proxies) == ([], [])
        assert (proxy.status.registered, proxy.status.proxy_id) == (False, "")


async def test_given_token_of_the_registered_proxy_keeps_it(place: ProxyNamespace) -> None:
    """A reference to the generated token keeps the proxy."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        token = await place.token()
        await place.change(
            bootstrap=None, proxySessionTokenSecretRef={"name": SECRET_NAME}, primaryAccessURL=place.coderd.url
        )
        await place.roll_out()
        await place.condition("Ready", "AllReady", "True")
        assert await place.token() == token
        assert place.proxies[NAME].token == token
        await place.change(bootstrap=place.bootstrap, proxySessionTokenSecretRef=None)
        proxy = await place.ready(operator)
        assert (proxy.status.registered, proxy.status.retiring_proxies) == (True, [])
        assert (place.registrations(), place.changes()) == (1, 0)
        await place.delete(WORKSPACE_PROXY, NAME)
        await place.gone(WORKSPACE_PROXY, NAME)
    assert place.proxies == {}


async def test_change_from_a_given_token_to_a_registration(place: ProxyNamespace) -> None:
    await place.put_secret("given", token="other:token")
    async with place.operator() as operator:
        await place.make(proxySessionTokenSecretRef={"name": "given"}, primaryAccessURL=PRIMARY)
        await place.roll_out()
        await place.condition("Ready", "AllReady", "True")
        await place.change(proxySessionTokenSecretRef=None, primaryAccessURL=None, bootstrap=place.bootstrap)
        await place.ready(operator)
        deployment = await place.deployment()
    assert environment(deployment)["CODER_PROXY_SESSION_TOKEN"]["secretKeyRef"]["name"] == SECRET_NAME
    assert environment(deployment)["CODER_PRIMARY_ACCESS_URL"] == place.coderd.url
    assert await place.token("given") == "other:token"


@pytest.mark.parametrize("secret", [CREDENTIALS, "other-session"], ids=["same Secret", "another Secret"])
async def test_change_to_another_coderd(place: ProxyNamespace, secret: str) -> None:
    """The old proxy is deregistered when no pod uses it. A token is sent only to its own coderd."""
    async with CoderdServer(now=place.clock) as other:
        other.state.install_license()
        async with place.operator() as operator:
            await place.make()
            await place.ready(operator)
        old, asked = await place.token(), place.coderd.state.requests.total()
        await place.put_secret(secret, token=other.state.token)
        await place.change(bootstrap={"coderURL": other.url, "credentialsSecretRef": {"name": secret}})
        async with place.operator() as operator:
            await place.condition("Registered", "Registered", "True")
            await operator.wait_idle()
            assert await place.token() == other.state.proxies[NAME].token != old
            assert NAME in place.proxies
            await place.roll_out()
            other.state.set_proxy(NAME, "ok")
            await operator.later(seconds=61)
            await place.condition("Ready", "AllReady", "True")
            assert (await place.get()).status.retiring_proxies == []
            if secret == CREDENTIALS:
                assert NAME in place.proxies
                assert place.coderd.url in await place.note("WorkspaceProxyLeaked")
                assert place.coderd.state.requests.total() == asked
            else:
                assert place.proxies == {}
                await place.note("WorkspaceProxyDeregistered")
        for state in (place.coderd.state, other.state):
            assert state.presented == {state.token}


@pytest.mark.parametrize("back", [False, True], ids=["to given credentials", "and back"])
async def test_change_from_a_control_plane(place: ProxyNamespace, back: bool) -> None:
    """The operator's token is sent only to the control plane, also for the proxy that retires there."""
    async with CoderdServer(now=place.clock) as other:
        other.state.install_license()
        await place.make_plane()
        await place.put_secret("other-session", token=other.state.token)
        given = {"coderURL": other.url, "credentialsSecretRef": {"name": "other-session"}}
        async with place.operator() as operator:
            await place.make(controlPlaneRef={"name": PLANE})
            await place.ready(operator)
            await place.change(controlPlaneRef=None, bootstrap=given)
            await place.condition("Registered", "Registered", "True")
            await operator.wait_idle()
            assert (set(place.proxies), set(other.state.proxies)) == ({NAME}, {NAME})
            await place.roll_out()
            await eventually(lambda: not place.proxies)
            if back:
                await place.change(controlPlaneRef={"name": PLANE}, bootstrap=None)
                await place.ready(operator)
                await eventually(lambda: not other.state.proxies)
            await place.delete(WORKSPACE_PROXY, NAME)
            await place.gone(WORKSPACE_PROXY, NAME)
        assert (place.proxies, other.state.proxies) == ({}, {})
        for state in (place.coderd.state, other.state):
            assert state.presented == {state.token}


async def test_another_url_of_the_same_coderd(place: ProxyNamespace) -> None:
    """Nothing changes in coderd."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        elsewhere = place.coderd.url.replace("127.0.0.1", "localhost")
        await place.change(bootstrap={**place.bootstrap, "coderURL": elsewhere})
        proxy = await place.ready(operator)
    assert proxy.status.coder_url == elsewhere
    assert (place.registrations(), place.changes()) == (1, 0)


async def test_another_secret_for_the_token(place: ProxyNamespace) -> None:
    """The token is copied, the proxy is kept, and the old Secret is deleted after the rollout."""
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        token = await place.token()
        await place.change(bootstrap={**place.bootstrap, "generatedTokenSecretName": "moved"})
        await place.condition("TokenSecretReady", "SecretReady")
        await operator.wait_idle()
        assert await place.token("moved") == await place.token() == token
        await place.ready(operator)
        await place.gone(SECRET, SECRET_NAME)
    assert (place.registrations(), place.changes()) == (1, 0)


@pytest.mark.parametrize("kind", [DEPLOYMENT, SERVICE], ids=str)
async def test_deleted_child_is_created_again(place: ProxyNamespace, kind: Kind[Unstructured]) -> None:
    async with place.operator() as operator:
        await place.make()
        await place.ready(operator)
        old = await place.find(kind, f"wsproxy-{NAME}")
        await place.delete(kind, f"wsproxy-{NAME}")

        async def is_back() -> bool:
            found = await place.find(kind, f"wsproxy-{NAME}")
            return found is not None and found.metadata.uid != old.metadata.uid

        await eventually(is_back)
    assert (place.registrations(), place.changes()) == (1, 0)
