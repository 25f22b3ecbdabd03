"""How often each source is read, and how it is recorded.

The record stays when the operator is upgraded: another format of names or digests would restart all pods.
"""

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from coder_k8s.controllers.controlplane.sources import Environment, Source, Sources
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.client import Client
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import ObjectMeta, PartialObject
from tests.support.api import Api, Responder, refuse, reply

from .planes import plane

SALT = "1234"
"""The uid of the control plane."""


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def whole(**values: str | bytes) -> str:
    """The digest of all keys of a source."""
    return digest(SALT + " ".join(f"{name}={digest(value)}" for name, value in sorted(values.items())))


def secret(version: str = "1", **data: str) -> Responder:
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    return reply({"kind": "Secret", "metadata": {"name": "it", "resourceVersion": version}, "data": encoded})


def config_map(**parts: Any) -> Responder:
    return reply({"kind": "ConfigMap", "metadata": {"name": "it", "resourceVersion": "1"}, **parts})


class Reader(NamedTuple):
    """Sources on a scripted API server, and the metadata in the caches."""

    sources: Sources
    secrets: Cache[PartialObject]
    config_maps: Cache[PartialObject]
    api: Api

    async def read(self, **spec: Any) -> Environment:
        return await self.sources.environment(plane(**spec))


def partial(version: str = "1") -> PartialObject:
    return PartialObject(metadata=ObjectMeta(name="it", namespace="golden", resource_version=version))


@asynccontextmanager
async def reader(*responders: Responder) -> AsyncIterator[Reader]:
    secrets, config_maps = Cache[PartialObject](), Cache[PartialObject]()
    async with Api(*responders) as api, Http(api.config, "test", Metrics()) as http:
        yield Reader(Sources(Client(http, "test"), secrets, config_maps), secrets, config_maps, api)


IN_SECRET = {"envFrom": [{"secretRef": {"name": "it"}}]}
IN_MAP = {"envFrom": [{"configMapRef": {"name": "it"}}]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (Source("Secret", "a"), "Secret/a"),
        (Source("ConfigMap", "a", "k"), "ConfigMap/a/k"),
        (Source("Secret", "a b", "k=v", "PREFIX_", True), "Secret/a%20b/k%3Dv"),
    ],
)
def test_name_in_the_record(source: Source, expected: str) -> None:
    assert str(source) == expected


def one_key(kind: str, key: str, *, optional: bool = False) -> dict[str, Any]:
    reference = {"name": "it", "key": key, "optional": optional}
    return {"extraEnv": [{"name": "X", "valueFrom": {f"{kind}KeyRef": reference}}]}


@pytest.mark.parametrize(
    ("responder", "spec", "expected"),
    [
        pytest.param(
            secret(B="2", A="1"), IN_SECRET, Environment({"Secret/it": whole(A="1", B="2")}), id="a whole Secret"
        ),
        pytest.param(
            config_map(data={"A": "1"}, binaryData={"B": base64.b64encode(b"\xff").decode()}),
            IN_MAP,
            Environment({"ConfigMap/it": whole(A="1", B=b"\xff")}),
            id="a whole ConfigMap",
        ),
        pytest.param(config_map(), IN_MAP, Environment({"ConfigMap/it": digest(SALT)}), id="an empty ConfigMap"),
        pytest.param(
            secret(A="1", B="2"),
            one_key("secret", "A"),
            Environment({"Secret/it/A": digest(SALT + digest("1"))}),
            id="one key",
        ),
        pytest.param(
            secret(B="2"),
            one_key("secret", "A"),
            Environment({"Secret/it/A": ""}, ("Secret it has no key A",)),
            id="a key that is not there",
        ),
        pytest.param(
            secret(B="2"),
            one_key("secret", "A", optional=True),
            Environment({"Secret/it/A": ""}),
            id="an optional key that is not there",
        ),
        pytest.param(
            secret(CODER_ACCESS_URL="u"),
            IN_SECRET,
            Environment({"Secret/it": whole(CODER_ACCESS_URL="u")}, (), True),
            id="an access URL",
        ),
        pytest.param(
            secret(ACCESS_URL="u"),
            {"envFrom": [{"secretRef": {"name": "it"}, "prefix": "CODER_"}]},
            Environment({"Secret/it": whole(ACCESS_URL="u")}, (), True),
            id="an access URL by its prefix",
        ),
        pytest.param(
            secret(CODER_ACCESS_URL="u"),
            one_key("secret", "CODER_ACCESS_URL"),
            Environment({"Secret/it/CODER_ACCESS_URL": digest(SALT + digest("u"))}),
            id="one key goes by the name of its variable",
        ),
        pytest.param(
            refuse(404),
            IN_SECRET,
            Environment({"Secret/it": ""}, ("Secret it does not exist",), may_define_access_url=True),
            id="deleted meanwhile",
        ),
    ],
)
async def test_environment(responder: Responder, spec: dict[str, Any], expected: Environment) -> None:
    async with reader(responder) as there:
        there.secrets.update("", partial())
        there.config_maps.update("", partial())
        assert await there.read(**spec) == expected
        [request] = there.api.requests
        kind = "configmaps" if "ConfigMap" in next(iter(expected.digests)) else "secrets"
        assert (request.method, request.path) == ("GET", f"/api/v1/namespaces/golden/{kind}/it")


def variable(value: str = "", **source: dict[str, str]) -> dict[str, Any]:
    given = {"value": value} if value else {"valueFrom": source}
    return {"extraEnv": [{"name": "CODER_ACCESS_URL", **given}]}


URL = "https://coder.example.com"


@pytest.mark.parametrize(
    ("answer", "spec", "expected"),
    [
        pytest.param(config_map(data={"CODER_ACCESS_URL": URL}), IN_MAP, URL, id="all keys of a ConfigMap"),
        pytest.param(
            config_map(data={"ACCESS_URL": URL}),
            {"envFrom": [{"configMapRef": {"name": "it"}, "prefix": "CODER_"}]},
            URL,
            id="a prefix",
        ),
        pytest.param(secret(CODER_ACCESS_URL=URL), IN_SECRET, "", id="all keys of a Secret"),
        pytest.param(
            config_map(data={"k": URL}), variable(configMapKeyRef={"name": "it", "key": "k"}), URL, id="a ConfigMap"
        ),
        pytest.param(secret(k=URL), variable(secretKeyRef={"name": "it", "key": "k"}), "", id="a Secret"),
        pytest.param(
            config_map(data={"CODER_ACCESS_URL": URL}), IN_MAP | variable("https://x"), "https://x", id="both"
        ),
        pytest.param(config_map(), IN_MAP | variable("https://$(HOST)"), "", id="other variables"),
        pytest.param(config_map(), IN_MAP | variable("https://user:password@host"), "", id="credentials"),
        pytest.param(config_map(), IN_MAP | variable("coder"), "", id="no URL"),
    ],
)
async def test_access_url(answer: Responder, spec: dict[str, Any], expected: str) -> None:
    async with reader(answer) as there:
        there.secrets.update("", partial())
        there.config_maps.update("", partial())
        assert (await there.read(**spec)).access_url == expected


async def test_source_that_is_not_in_the_cache_is_missing_and_not_read() -> None:
    async with reader(refuse(500)) as there:
        spec = {"envFrom": [{"secretRef": {"name": "it"}}, {"configMapRef": {"name": "it", "optional": True}}]}
        found = await there.read(**spec)
        assert found == Environment(
            {"Secret/it": "", "ConfigMap/it": ""}, ("Secret it does not exist",), may_define_access_url=True
        )
        assert there.api.requests == []


async def test_each_version_is_read_once() -> None:
    async with reader(secret("1", A="1"), secret("2", A="2"), secret("2", A="3")) as there:
        there.secrets.update("", partial("1"))
        first = await there.read(**IN_SECRET)
        assert await there.read(**IN_SECRET) == first
        assert len(there.api.requests) == 1
        there.secrets.update("", partial("2"))
        second = await there.read(**IN_SECRET)
        assert (first.digests, second.digests) == ({"Secret/it": whole(A="1")}, {"Secret/it": whole(A="2")})
        assert len(there.api.requests) == 2
        there.secrets.delete("", partial("3"))
        assert (await there.read(**IN_SECRET)).missing == ("Secret it does not exist",)
        there.secrets.update("", partial("2"))
        assert (await there.read(**IN_SECRET)).digests == {"Secret/it": whole(A="3")}, "forgotten with its object"


async def test_sources_are_forgotten_with_their_control_plane() -> None:
    async with reader(secret("1", A="1"), secret("1", A="1")) as there:
        there.secrets.update("", partial("1"))
        await there.read(**IN_SECRET)
        there.sources.forget(plane().key)
        await there.read(**IN_SECRET)
        await there.read(**IN_SECRET)
        assert len(there.api.requests) == 2


async def test_several_sources() -> None:
    spec = {
        "envFrom": [{"secretRef": {"name": "it"}}, {"secretRef": {"name": "gone"}}, {"secretRef": {"name": "gone"}}],
        **one_key("configMap", "A"),
    }
    async with reader(secret(CODER_ACCESS_URL="u"), config_map(data={"A": "1"})) as there:
        there.secrets.update("", partial())
        there.config_maps.update("", partial())
        assert await there.read(**spec) == Environment(
            {
                "Secret/it": whole(CODER_ACCESS_URL="u"),
                "Secret/gone": "",
                "ConfigMap/it/A": digest(SALT + digest("1")),
            },
            ("Secret gone does not exist",),
            defines_access_url=True,
            may_define_access_url=True,
        )
