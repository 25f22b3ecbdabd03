"""The operator reports sources that it cannot use, uploads nothing of them, and follows the ones that it can."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.coderd.connections import Endpoint
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.kinds import CONFIG_MAP, SERVICE
from coder_k8s.kube.objects import Manifest
from tests.conftest import one_worker_at_a_time
from tests.support import objects
from tests.support.api import Responder, reply
from tests.support.flux import HOST, FluxServer, flux_server, install_flux, put_source
from tests.support.templates import TemplateNamespace, inline

from .flux_artifacts import artifact, bomb, link, sha256

SECRET_VALUE = "value-of-a-secret-that-nobody-may-see"
GOOD = artifact({"go/main.tf": b"# one\n"})


@pytest.fixture
async def flux(cluster: ClusterAccess) -> AsyncIterator[FluxServer]:
    await asyncio.to_thread(install_once, cluster)
    async with flux_server() as server:
        yield server


def install_once(cluster: ClusterAccess) -> None:
    """Install the CRDs of Flux in the shared cluster, while no other worker does that."""
    with one_worker_at_a_time(cluster):
        install_flux(cluster)


class Case:
    """A template, what it refers to, and the condition `SourceReady` that it gets."""

    def __init__(self, reason: str, message: str, source: Manifest | None = None, **spec: Any) -> None:
        self.expected = reason, message
        self.spec = {"source": source or inline(), **spec}


def of_flux(name: str, kind: str = "GitRepository") -> Manifest:
    return {"fluxRef": {"kind": kind, "name": name, "path": "./go"}}


def variable(secret: str) -> list[Manifest]:
    return [{"name": "token", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}}]


CASES = {
    "traversal": Case(
        "SourceInvalid",
        "Inline files: File name '../../etc/x.tf' contains '..'; use a path inside the template",
        {"inline": {"files": {"main.tf": "", "../../etc/x.tf": ""}}},
    ),
    "absolute": Case(
        "SourceInvalid",
        "Inline files: File name '/etc/x.tf' is an absolute path; use a path relative to the template",
        {"inline": {"files": {"main.tf": "", "/etc/x.tf": ""}}},
    ),
    "no-terraform": Case(
        "SourceInvalid",
        "Inline files: There is no .tf file at the top of the source; add one, or correct the path of the source",
        {"inline": {"files": {"README.md": ""}}},
    ),
    "many-files": Case(
        "SourceInvalid",
        "ConfigMap many-files: The source has 1000 files, and at most 500 are allowed; remove some",
        {"configMapRef": {"name": "many-files"}},
    ),
    "empty": Case(
        "SourceInvalid",
        "ConfigMap empty: There is no .tf file at the top of the source; add one, or correct the path of the source",
        {"configMapRef": {"name": "empty"}},
    ),
    "no-config-map": Case(
        "SourceMissing",
        "ConfigMap absent does not exist; create it, or correct source.configMapRef.name",
        {"configMapRef": {"name": "absent"}},
    ),
    "no-repository": Case(
        "SourceMissing",
        "GitRepository absent does not exist; create it, or correct source.fluxRef",
        of_flux("absent"),
    ),
    "no-image": Case(
        "SourceMissing",
        "OCIRepository absent does not exist; create it, or correct source.fluxRef",
        of_flux("absent", "OCIRepository"),
    ),
    "no-bucket": Case(
        "SourceMissing",
        "Bucket absent does not exist; create it, or correct source.fluxRef",
        of_flux("absent", "Bucket"),
    ),
    "not-ready": Case(
        "SourceNotReady", "GitRepository not-ready has no artifact yet; see its condition Ready", of_flux("not-ready")
    ),
    "not-found": Case(
        "SourceNotReady",
        "The artifact of GitRepository not-found cannot be fetched: HTTP 404",
        of_flux("not-found"),
    ),
    "digest": Case(
        "SourceInvalid",
        "GitRepository digest: The content of the artifact does not match its digest; it is not used",
        of_flux("digest"),
    ),
    "outside": Case(
        "SourceInvalid",
        "GitRepository outside: The artifact is at host '169.254.169.254', which is not a Service of this cluster"
        " (*.svc or *.svc.cluster.local); it is not fetched",
        of_flux("outside"),
    ),
    "redirect": Case(
        "SourceInvalid",
        "GitRepository redirect: The response for the artifact is a redirect, which is not followed",
        of_flux("redirect"),
    ),
    "bomb": Case(
        "SourceInvalid",
        "GitRepository bomb: The artifact expands to more than 100 MiB; it is not used",
        of_flux("bomb"),
    ),
    "link": Case(
        "SourceInvalid",
        "GitRepository link: 'go/x.tf' in the artifact is a link or a device; replace it by a file",
        of_flux("link"),
    ),
    "no-secret": Case(
        "SecretMissing",
        "Secret absent of variable token does not exist; create it with key token",
        variables=variable("absent"),
    ),
    "no-key": Case(
        "SecretMissing", "Secret no-key of variable token has no key token; add it", variables=variable("no-key")
    ),
}
BOMB = bomb(101 * 1024 * 1024)
ARTIFACTS: dict[str, tuple[Responder, Manifest]] = {
    "not-found": (reply(b"", 404), {"digest": sha256(GOOD)}),
    "digest": (reply(artifact({"go/main.tf": b"# other\n"})), {"digest": sha256(GOOD)}),
    "redirect": (reply(b"", 302, {"Location": "http://169.254.169.254/"}), {"digest": sha256(GOOD)}),
    "outside": (reply(GOOD), {"digest": sha256(GOOD), "url": "http://169.254.169.254/x.tar.gz"}),
    "bomb": (reply(BOMB), {"digest": sha256(BOMB)}),
}


async def test_sources_that_cannot_be_used(place: TemplateNamespace, flux: FluxServer) -> None:
    linked = artifact({"go/main.tf": b""}, [link("go/x.tf")])
    served = {**ARTIFACTS, "link": (reply(linked), {"digest": sha256(linked)})}
    for name, (responder, fields) in served.items():
        url = flux.serve(name, responder)
        await put_source(place.client, "GitRepository", place.key_of(name), {"url": url, **fields})
    await put_source(place.client, "GitRepository", place.key_of("not-ready"), None)
    await objects.put_data(place.client, CONFIG_MAP, place.key_of("many-files"), {f"{n}.tf": "" for n in range(1000)})
    await objects.put_data(place.client, CONFIG_MAP, place.key_of("empty"), {})
    await place.put_secret("no-key", other=SECRET_VALUE)
    for name, case in CASES.items():
        await place.make(name, **case.spec)
    async with place.operator(connect_to={**place.routes, **flux.routes}) as operator:
        for name, case in CASES.items():
            reason, message = case.expected
            found = await place.condition("SourceReady", reason, "False", name=name, within=60)
            assert found.message == message
            ready = await place.condition("Ready", reason, "False", name=name, within=60)
            assert ready.message == message
        await operator.wait_idle()
    assert not place.versions
    assert not place.coderd.state.templates.files, "nothing is uploaded"


async def test_a_service_that_is_an_alias(place: TemplateNamespace, flux: FluxServer) -> None:
    """A Service of type ExternalName has the name of a Service of the cluster, and is any other host."""
    spec = {"type": "ExternalName", "externalName": "metadata.example.com"}
    await objects.create(place.client, SERVICE, place.key_of("alias"), spec)
    host = f"alias.{place.namespace}.svc"
    served: list[str] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        served.append(request.path)
        return web.Response(body=GOOD)

    flux.serve("x", respond)
    artifact_of_alias = {"url": f"http://{host}/x", "digest": sha256(GOOD)}
    await put_source(place.client, "GitRepository", place.key_of("alias"), artifact_of_alias)
    [server] = flux.routes.values()
    async with place.operator(connect_to={**place.routes, Endpoint(host, 80): server}):
        await place.make(source=of_flux("alias"))
        message = (
            f"GitRepository alias: The artifact is at Service alias of namespace {place.namespace}, which is an alias"
            " of a host outside the cluster (ExternalName); it is not fetched"
        )
        await place.message("SourceReady", "SourceInvalid", message)
    assert served == []


async def test_a_source_is_followed(place: TemplateNamespace, flux: FluxServer) -> None:
    """A changed artifact, ConfigMap or Secret is imported."""
    repository = place.key_of("repository")
    url = flux.serve("one.tar.gz", reply(GOOD))
    await put_source(place.client, "GitRepository", repository, {"url": url, "digest": sha256(GOOD)})
    await objects.put_data(place.client, CONFIG_MAP, place.key_of("files"), {"main.tf": "# one"})
    await place.put_secret("cloud", token=SECRET_VALUE)
    async with place.operator(connect_to={**place.routes, **flux.routes}):
        await place.make(source=of_flux("repository"))
        await place.make("second", source={"configMapRef": {"name": "files"}}, variables=variable("cloud"))
        await place.pending_version(2)
        ready = await place.condition("SourceReady", "SourceReady", "True")
        assert ready.message == "The source has revision main@sha1:abc"
        other = artifact({"go/main.tf": b"# two\n"})
        changed = {"url": flux.serve("two.tar.gz", reply(other)), "digest": sha256(other), "revision": "main@sha1:def"}
        await put_source(place.client, "GitRepository", repository, changed)
        await place.pending_version(3)
        assert any(each.message.endswith("revision main@sha1:def") for each in place.versions)
        await objects.put_data(place.client, CONFIG_MAP, place.key_of("files"), {"main.tf": "# two"})
        await place.pending_version(4)
        await place.put_secret("cloud", token=f"{SECRET_VALUE}-2")
        await place.pending_version(5)
        assert sum(f"{place.namespace}/second" in each.message for each in place.versions) == 3
        uploaded = place.coderd.state.templates.archives.values()
    assert HOST not in str(place.coderd.state.requests)
    assert not any(SECRET_VALUE.encode() in content for content in uploaded)
