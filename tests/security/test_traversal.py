"""A name in a spec cannot be a path into another namespace."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from coder_k8s.coderd import errors as coderd_errors
from coder_k8s.coderd.client import Client as Coderd
from coder_k8s.coderd.connections import Connections
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.postgres import Postgres
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Key
from tests.security.users import post
from tests.support.api import Api, reply
from tests.support.controlplanes import PlaneNamespace, operator_tokens, plane_namespace
from tests.support.databases import CoderdDatabase, create_database


@pytest.fixture
async def database(postgres: Postgres) -> CoderdDatabase:
    """The database of another tenant."""
    return await create_database(postgres, "2.36.1")


@pytest.fixture
def victim(cluster: ClusterAccess, namespace: str, database: CoderdDatabase) -> str:
    """The namespace of another tenant, with a Secret that contains the URL of that database."""
    name = f"{namespace}-victim"
    post(cluster, "/api/v1/namespaces", {"metadata": {"name": name}})
    secret = {
        "metadata": {"name": "database"},
        "stringData": {"url": database.url, "CODER_PG_CONNECTION_URL": database.url},
    }
    post(cluster, f"/api/v1/namespaces/{name}/secrets", secret)
    return name


@pytest.fixture
async def attacker(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str
) -> AsyncIterator[PlaneNamespace]:
    async with plane_namespace(cluster.kubeconfig, operator_kubeconfig, namespace) as place:
        yield place


@pytest.mark.parametrize("form", ["../../{}/secrets/database", "..%2F..%2F{}%2Fsecrets%2Fdatabase"])
@pytest.mark.parametrize("field", ["extraEnv", "envFrom"])
async def test_a_name_is_not_used_as_a_path(
    attacker: PlaneNamespace, victim: str, database: CoderdDatabase, field: str, form: str
) -> None:
    name = form.format(victim)
    entry = {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": name, "key": "url"}}}
    spec = {"extraEnv": [entry]} if field == "extraEnv" else {"envFrom": [{"secretRef": {"name": name}}]}
    async with attacker.operator() as operator:
        await attacker.make()  # without a Deployment, the operator would not create a token
        await attacker.roll_out()
        await attacker.change(**spec)
        await attacker.condition("OperatorAccessReady", "DatabaseURLMissing", "False", within=8)
        await operator.wait_idle()
    assert await operator_tokens(database) == []
    assert await attacker.token() == ""


PIECES = st.sampled_from(("..", ".", "/", "\\", "%", "%2e", "%2F", "?", "#", ";", "@", "\r\n", "\0", " ", "é", "name"))
NAMES = st.lists(PIECES, min_size=1, max_size=6).map("".join) | st.text(min_size=1, max_size=20)


@given(NAMES)
def test_the_path_of_any_name_stays_in_its_namespace(name: str) -> None:
    try:
        path = SECRET.path(Key("own", name))
    except errors.NotFound:
        return
    url = URL("https://kubernetes" + path)
    assert url.parts[:-1] == ("/", "api", "v1", "namespaces", "own", "secrets")
    assert (url.name, url.query_string, url.fragment) == (name, "", "")


@pytest.mark.parametrize("namespace", ["..", "a/../b", "a%2Fb"])
def test_a_namespace_is_not_used_as_a_path(namespace: str) -> None:
    with pytest.raises(errors.NotFound):
        SECRET.path(Key(namespace, "name"))


async def test_names_in_coderd_are_not_used_as_paths() -> None:
    async with Api(reply([])) as api, Connections() as connections:
        coderd = Coderd(connections, f"http://127.0.0.1:{api.port}", "token")
        for name in ("", ".", ".."):
            with pytest.raises(coderd_errors.Invalid):
                await coderd.delete_provisioner_key("default", name)
        assert api.requests == []
        await coderd.provisioner_keys("../../users/me?a=b#c")
        assert [seen.path for seen in api.requests] == ["/api/v2/organizations/../../users/me?a=b#c/provisionerkeys"]
