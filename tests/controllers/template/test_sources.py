"""Files and variables come from the spec, ConfigMaps, Flux artifacts and Secrets; errors name what to change."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from coder_k8s.api.template import TEMPLATE, CoderTemplate
from coder_k8s.coderd.connections import Connections, Endpoint
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.template.archive import archive, content_digest
from coder_k8s.controllers.template.references import references
from coder_k8s.controllers.template.sources import Source, SourceError, SourceReader, digest
from coder_k8s.kube.client import Client
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.http import Http
from coder_k8s.kube.kinds import CONFIG_MAP_METADATA
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Manifest, ObjectMeta, PartialObject
from tests.support.api import Api, reply, status

from .flux_artifacts import artifact, bomb, sha256

FILES = {"main.tf": "terraform {}\n", "modules/a.tf": "# a\n"}
BYTES = {name: content.encode() for name, content in FILES.items()}
FLUX_HOST = "source-controller.flux-system.svc.cluster.local."
SECRET_VALUE = "value-that-nobody-may-see"
SERVICE_PATH = "/api/v1/namespaces/flux-system/services/source-controller"
FLUX_PATH = "/apis/source.toolkit.fluxcd.io/v1/namespaces/team/gitrepositories/repo"


class Reader(SourceReader):
    """A reader with the servers that it uses: `objects` of the API server by path, and the responses of Flux."""

    objects: dict[str, Manifest]
    api: Api
    flux: Api
    runtime: Runtime


@asynccontextmanager
async def running(*flux: Any) -> AsyncIterator[Reader]:
    objects: dict[str, Manifest] = {SERVICE_PATH: service()}

    async def respond(request: web.Request) -> web.StreamResponse:
        if found := objects.get(request.path):
            return web.json_response(found, status=found.get("code", 200))
        if "fluxcd" in request.path and "fluxcd" not in "".join(objects):
            return web.Response(status=404, body=b"404 page not found")
        return web.json_response(status(404, "NotFound", f"{request.path} not found"), status=404)

    metrics = Metrics()
    async with Api(respond) as api, Api(*(flux or [reply()])) as server, Http(api.config, "test", metrics) as http:
        client = Client(http, "test")
        async with Connections({Endpoint(FLUX_HOST, 80): Endpoint("127.0.0.1", server.port)}) as connections:
            recorder = Recorder(client, "test", "test", metrics)
            runtime = Runtime(client=client, coderd=connections, recorder=recorder, metrics=metrics)
            reader = Reader(Context(runtime, TEMPLATE, ()))
            reader.objects, reader.api, reader.flux, reader.runtime = objects, api, server, runtime
            yield reader


def template(source: Manifest, **spec: Any) -> CoderTemplate:
    manifest = {
        "metadata": {"name": "go", "namespace": "team", "uid": "1", "generation": 3},
        "spec": {"controlPlaneRef": {"name": "coder"}, "source": source, **spec},
    }
    return msgspec.convert(manifest, CoderTemplate)


def of_flux(path: str = "", **spec: Any) -> CoderTemplate:
    return template({"fluxRef": {"kind": "GitRepository", "name": "repo", "path": path}}, **spec)


def service(**spec: Any) -> Manifest:
    return {"kind": "Service", "metadata": {"name": "source-controller", "namespace": "flux-system"}, "spec": spec}


def config_map(**fields: Any) -> Manifest:
    return {"kind": "ConfigMap", "metadata": {"name": "files", "namespace": "team", "resourceVersion": "7"}, **fields}


def secret(**data: bytes) -> Manifest:
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return {"kind": "Secret", "metadata": {"name": "cloud", "namespace": "team"}, "data": encoded}


def git_repository(data: bytes, **changes: Any) -> Manifest:
    url = f"http://{FLUX_HOST}/gitrepository/team/repo/latest.tar.gz"
    found = {"url": url, "digest": sha256(data), "revision": "main@sha1:abc", "size": len(data), **changes}
    return {"kind": "GitRepository", "metadata": {"name": "repo", "namespace": "team"}, "status": {"artifact": found}}


async def error_of(reader: Reader, wanted: CoderTemplate) -> SourceError:
    with pytest.raises(SourceError) as raised:
        await reader.read(wanted)
    return raised.value


async def test_inline_files() -> None:
    async with running() as reader:
        source = await reader.read(template({"inline": {"files": FILES}}))
        assert (source.revision, source.files) == ("generation 3", BYTES)
        assert source.digest == content_digest(archive(BYTES))
        assert not reader.api.requests


async def test_a_config_map_with_binary_files() -> None:
    async with running() as reader:
        data = {"main.tf": FILES["main.tf"], "modules__a.tf": FILES["modules/a.tf"]}
        binary = {"icons__x.png": base64.b64encode(b"\x89PNG\xff").decode()}
        reader.objects["/api/v1/namespaces/team/configmaps/files"] = config_map(data=data, binaryData=binary)
        source = await reader.read(template({"configMapRef": {"name": "files"}}))
        assert (source.revision, source.files) == ("resourceVersion 7", {**BYTES, "icons/x.png": b"\x89PNG\xff"})


async def test_a_flux_artifact() -> None:
    data = artifact({f"templates/go/{name}": content for name, content in BYTES.items()})
    async with running(reply(data)) as reader:
        reader.objects[FLUX_PATH] = git_repository(data)
        source = await reader.read(of_flux("./templates/go"))
        assert (source.revision, source.files) == ("main@sha1:abc", BYTES)
        [request] = reader.flux.requests
        assert request.path == "/gitrepository/team/repo/latest.tar.gz"
        assert "Coder-Session-Token" not in request.headers
        assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"configMapRef": {"name": "files"}},
            "ConfigMap files does not exist; create it, or correct source.configMapRef.name",
        ),
        (
            {"fluxRef": {"kind": "Bucket", "name": "files"}},
            "Bucket files cannot exist: the cluster has no Bucket of Flux; install Flux 2.6 or newer",
        ),
    ],
)
async def test_missing_sources(source: Manifest, message: str) -> None:
    async with running() as reader:
        error = await error_of(reader, template(source))
        assert (error.reason, error.message) == ("SourceMissing", message)


async def test_a_missing_flux_source() -> None:
    async with running() as reader:
        reader.objects[f"{FLUX_PATH}-2"] = git_repository(b"")
        error = await error_of(reader, of_flux())
        assert error.reason == "SourceMissing"
        assert error.message == "GitRepository repo does not exist; create it, or correct source.fluxRef"
        reader.objects[FLUX_PATH] = {"metadata": {"name": "repo", "namespace": "team"}, "status": {}}
        error = await error_of(reader, of_flux())
        assert error.reason == "SourceNotReady"
        assert error.message == "GitRepository repo has no artifact yet; see its condition Ready"


GOOD = artifact(BYTES)


@pytest.mark.parametrize(
    ("response", "changes", "reason", "message"),
    [
        (reply(GOOD, 404), {}, "SourceNotReady", "The artifact of GitRepository repo cannot be fetched: HTTP 404"),
        (
            reply(b"", 302, {"Location": "http://169.254.169.254/"}),
            {},
            "SourceInvalid",
            "GitRepository repo: The response for the artifact is a redirect, which is not followed",
        ),
        (
            reply(artifact({"main.tf": b"other"})),
            {},
            "SourceInvalid",
            "GitRepository repo: The content of the artifact does not match its digest; it is not used",
        ),
        (
            reply(GOOD),
            {"size": 11 * 1024 * 1024},
            "SourceInvalid",
            "GitRepository repo: The artifact is too large, at most 10 MiB are allowed;"
            " exclude files with spec.ignore of the source",
        ),
        (
            reply(GOOD),
            {"url": "http://example.com/x.tar.gz"},
            "SourceInvalid",
            "GitRepository repo: The artifact is at host 'example.com', which is not a Service of this cluster"
            " (*.svc or *.svc.cluster.local); it is not fetched",
        ),
    ],
)
async def test_artifacts_that_are_not_used(response: Any, changes: Any, reason: str, message: str) -> None:
    async with running(response) as reader:
        reader.objects[FLUX_PATH] = git_repository(GOOD, **changes)
        error = await error_of(reader, of_flux())
        assert (error.reason, error.message) == (reason, message)
        assert len(reader.flux.requests) == (0 if changes else 1)


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (
            service(type="ExternalName", externalName="metadata.example.com"),
            "SourceInvalid",
            "GitRepository repo: The artifact is at Service source-controller of namespace flux-system, which is an"
            " alias of a host outside the cluster (ExternalName); it is not fetched",
        ),
        (
            None,
            "SourceNotReady",
            "GitRepository repo: The artifact is at Service source-controller of namespace flux-system, which does not"
            " exist; it is not fetched",
        ),
    ],
)
async def test_an_artifact_outside_the_cluster(found: Manifest | None, reason: str, message: str) -> None:
    async with running(reply(GOOD)) as reader:
        reader.objects[FLUX_PATH] = git_repository(GOOD)
        del reader.objects[SERVICE_PATH]
        if found is not None:
            reader.objects[SERVICE_PATH] = found
        error = await error_of(reader, of_flux())
        assert (error.reason, error.message) == (reason, message)
        assert error.retry, "a Service is not watched"
        assert not reader.flux.requests


async def test_a_service_that_the_operator_cannot_read() -> None:
    """An operator with Roles for some namespaces reads no Services of Flux."""
    async with running(reply(GOOD)) as reader:
        reader.objects[FLUX_PATH] = git_repository(GOOD)
        reader.objects[SERVICE_PATH] = status(403, "Forbidden", "services is forbidden")
        assert (await reader.read(of_flux())).revision == "main@sha1:abc"


async def test_an_artifact_beyond_the_limits() -> None:
    """One that is larger than its status says, and one that expands too much."""
    async with running(reply(bytes(11 * 1024 * 1024))) as reader:
        reader.objects[FLUX_PATH] = git_repository(GOOD)
        error = await error_of(reader, of_flux())
        assert error.reason == "SourceNotReady"
        assert "larger than 10485760 bytes" in error.message
    data = bomb(101 * 1024 * 1024)
    async with running(reply(data)) as reader:
        reader.objects[FLUX_PATH] = git_repository(data)
        error = await error_of(reader, of_flux("templates"))
        assert error.message == "GitRepository repo: The artifact expands to more than 100 MiB; it is not used"


async def test_an_unreachable_source_controller() -> None:
    async with running() as reader:
        await reader.flux.__aexit__()
        reader.objects[FLUX_PATH] = git_repository(GOOD)
        error = await error_of(reader, of_flux())
        assert error.reason == "SourceNotReady"
        assert error.message.startswith(
            f"The artifact of GitRepository repo cannot be fetched: {FLUX_HOST}: cannot connect"
        )
        assert error.retry


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../x.tf", "Inline files: File name '../x.tf' contains '..'; use a path inside the template"),
        ("/x.tf", "Inline files: File name '/x.tf' is an absolute path; use a path relative to the template"),
    ],
)
async def test_invalid_files(name: str, message: str) -> None:
    async with running() as reader:
        error = await error_of(reader, template({"inline": {"files": {**FILES, name: ""}}}))
        assert (error.reason, error.message) == ("SourceInvalid", message)


async def test_invalid_keys_of_a_config_map() -> None:
    async with running() as reader:
        reader.objects["/api/v1/namespaces/team/configmaps/files"] = config_map(data={"__etc__passwd": "", "x.tf": ""})
        error = await error_of(reader, template({"configMapRef": {"name": "files"}}))
        assert error.message == (
            "ConfigMap files: File name '/etc/passwd' is an absolute path; use a path relative to the template"
        )


VARIABLES = [
    {"name": "region", "value": "eu"},
    {"name": "key", "valueFrom": {"secretKeyRef": {"name": "cloud", "key": "key"}}},
]


async def test_variables_keep_their_white_space() -> None:
    async with running() as reader:
        reader.objects["/api/v1/namespaces/team/secrets/cloud"] = secret(key=SECRET_VALUE.encode() + b"\n")
        source = await reader.read(template({"inline": {"files": FILES}}, variables=VARIABLES))
        assert source.variables == {"region": "eu", "key": f"{SECRET_VALUE}\n"}
        assert SECRET_VALUE not in repr(source)
        assert SECRET_VALUE not in source.digest


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (None, "SecretMissing", "Secret cloud of variable key does not exist; create it with key key"),
        (secret(other=SECRET_VALUE.encode()), "SecretMissing", "Secret cloud of variable key has no key key; add it"),
        (
            secret(key=SECRET_VALUE.encode() + b"\xff"),
            "SourceInvalid",
            "Secret cloud of variable key has a value for key key that is not UTF-8 text; correct it",
        ),
    ],
)
async def test_missing_variables(found: Manifest | None, reason: str, message: str) -> None:
    async with running() as reader:
        if found:
            reader.objects["/api/v1/namespaces/team/secrets/cloud"] = found
        error = await error_of(reader, template({"inline": {"files": FILES}}, variables=VARIABLES))
        assert (error.reason, error.message) == (reason, message)


def test_everything_that_makes_a_version_changes_the_digest() -> None:
    digests = [
        digest("abc", {}, {}),
        digest("abd", {}, {}),
        digest("abc", {"a": "1"}, {}),
        digest("abc", {"a": "2"}, {}),
        digest("abd", {"a": "1"}, {}),
        digest("abc", {}, {"a": "1"}),
        digest("abc", {"a": "1", "b": ""}, {}),
    ]
    assert len(set(digests)) == len(digests)
    assert digest("abc", {"a": "1", "b": "2"}, {}) == digest("abc", {"b": "2", "a": "1"}, {})


async def test_a_summary_reads_again_only_after_a_change() -> None:
    data, other = artifact(BYTES), artifact({"main.tf": b"other"})
    async with running(reply(data), reply(data), reply(other)) as reader:
        reader.objects[FLUX_PATH] = git_repository(data)
        wanted = of_flux()
        first = await reader.summary(wanted)
        assert first == await reader.summary(wanted) == ("main@sha1:abc", (await reader.read(wanted)).digest)
        assert len(reader.flux.requests) == 2  # one for each, and none for the second summary
        reader.objects[FLUX_PATH] = git_repository(other)
        assert (await reader.summary(wanted)).digest != first.digest


async def test_an_invalid_artifact_is_downloaded_once() -> None:
    data = artifact({"README.md": b""})
    async with running(reply(data)) as reader:
        reader.objects[FLUX_PATH] = git_repository(data)
        for _ in range(3):
            with pytest.raises(
                SourceError, match=r"GitRepository repo: There is no \.tf file at the top of the source"
            ):
                await reader.summary(of_flux())
        assert len(reader.flux.requests) == 1


async def test_a_summary_of_a_config_map_follows_its_version() -> None:
    async with running() as reader:
        path = "/api/v1/namespaces/team/configmaps/files"
        reader.objects[path] = config_map(data={"main.tf": "a"})
        cache = reader.runtime.informer(CONFIG_MAP_METADATA)
        for version, requests in (("7", 1), ("7", 1), ("8", 2)):
            metadata = ObjectMeta(name="files", namespace="team", resource_version=version)
            cache.update("", PartialObject(metadata=metadata))
            await reader.summary(template({"configMapRef": {"name": "files"}}))
            assert len(reader.api.requests) == requests


def test_references() -> None:
    wanted = template({"configMapRef": {"name": "files"}}, variables=VARIABLES)
    assert list(references(wanted)) == [("ConfigMap", Key("team", "files")), ("Secret", Key("team", "cloud"))]
    assert list(references(of_flux())) == [("GitRepository", Key("team", "repo"))]
    assert not list(references(template({"inline": {"files": FILES}})))


def test_a_source_does_not_show_its_content() -> None:
    source = Source("r", {"main.tf": SECRET_VALUE.encode()}, {"a": SECRET_VALUE}, {})
    assert SECRET_VALUE not in repr(source)
