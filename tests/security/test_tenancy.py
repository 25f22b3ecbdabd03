"""No object makes the operator read a Secret in another namespace."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, RESOURCES
from coder_k8s.coderd.connections import Endpoint
from coder_k8s.controllers.controlplane import wiring as controlplane
from coder_k8s.controllers.labels import PAUSED, paused
from coder_k8s.controllers.provisioner import wiring as provisioner
from coder_k8s.controllers.secrets import encoded
from coder_k8s.controllers.template import wiring as template
from coder_k8s.controllers.workspaceproxy import wiring as workspaceproxy
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Kind, Unstructured, timestamp
from tests.security.references import CODER, DATABASE_URL, NEARBY, references, schema
from tests.security.users import client_of, post
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.proxy import Proxy

pytestmark = pytest.mark.slow

CANARY = "canary-of-another-tenant"
BUILDERS = (controlplane.build, provisioner.build, workspaceproxy.build, template.build)
KINDS: dict[str, Kind[Any]] = {resource.kind.plural: resource.kind for resource in RESOURCES}
SCHEMAS = {plural: schema(plural) for plural in KINDS}
REFERENCES = [reference for plural, found in SCHEMAS.items() for reference in references(plural, found)]
FORMS = NAME, PATH = ("{name}", "../../{victim}/secrets/{name}")
OF_KUBERNETES = {"envFrom", "extraEnv", "imagePullSecrets", "volumes"}
"""Fields with a type of Kubernetes, which validates names only in pods."""
READ = {
    "codercontrolplanes:envFrom.[].secretRef.name",
    "codercontrolplanes:extraEnv.[].valueFrom.secretKeyRef.name",
    "codercontrolplanes:licenseSecretRef.name",
    "codercontrolplanes:operatorAccess.tokenSecretRef.name",
    "coderprovisioners:bootstrap.credentialsSecretRef.name",
    "coderworkspaceproxies:bootstrap.credentialsSecretRef.name",
    "coderworkspaceproxies:proxySessionTokenSecretRef.name",
    "codertemplates:variables.[].valueFrom.secretKeyRef.name",
}
"""References to Secrets that the operator reads."""
WRITTEN = {"coderprovisioners:key.secretName", "coderworkspaceproxies:bootstrap.generatedTokenSecretName"}
"""References to Secrets that the operator creates."""


class Tenant(NamedTuple):
    """A namespace, and the coderd of all its control planes."""

    namespace: str
    coderd: CoderdServer

    async def put_secret(self, admin: Client, name: str, token: str) -> None:
        metadata = {"namespace": self.namespace, "name": name}
        content = dict.fromkeys(("token", "license", "key", DATABASE_URL, NEARBY), encoded(token))
        await admin.create(SECRET, {"metadata": metadata, "data": content})

    async def make_plane(self, admin: Client, name: str) -> None:
        """Create a paused control plane that is ready and has an operator token."""
        await self.put_secret(admin, f"{name}-operator-token", self.coderd.state.token)
        metadata = {"namespace": self.namespace, "name": name, "annotations": {PAUSED: "true"}}
        made = await admin.create(CONTROL_PLANE, {"metadata": metadata, "spec": {"image": "coder:v2.36.1"}})
        status = {
            "url": f"http://{self.service(name)}:80",
            "image": "coder:v2.36.1",
            "operatorAccessReady": True,
            "operatorTokenSecretRef": {"name": f"{name}-operator-token", "key": "token"},
            "externalProvisionerDaemonsEntitlement": "entitled",
            "entitlementsLastChecked": timestamp(datetime.now(UTC) + timedelta(hours=1)),
        }
        await admin.merge(CONTROL_PLANE, made.key, {"status": status}, "status")

    def service(self, name: str) -> str:
        return f"{name}.{self.namespace}.svc.cluster.local"

    def routes(self, *hosts: str) -> dict[Endpoint, Endpoint]:
        return {Endpoint(host, 80): Endpoint("127.0.0.1", self.coderd.port) for host in hosts}


@asynccontextmanager
async def tenant(namespace: str) -> AsyncIterator[Tenant]:
    async with CoderdServer() as coderd:
        coderd.state.install_license()
        yield Tenant(namespace, coderd)


@pytest.fixture
async def admin(cluster: ClusterAccess, crds: None) -> AsyncIterator[Client]:
    async with client_of(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def author(admin: Client, namespace: str) -> AsyncIterator[Tenant]:
    """A namespace in which all references resolve, except those to a canary."""
    async with tenant(namespace) as made:
        await made.put_secret(admin, NEARBY, made.coderd.state.token)
        await made.make_plane(admin, NEARBY)
        yield made


@pytest.fixture
async def victim(admin: Client, cluster: ClusterAccess, namespace: str) -> AsyncIterator[Tenant]:
    """A namespace that contains a Secret and a control plane for every canary name."""
    name = f"{namespace}-victim"
    post(cluster, "/api/v1/namespaces", {"metadata": {"name": name}})
    async with tenant(name) as made:
        for number, reference in enumerate(REFERENCES):
            await made.put_secret(admin, canary(number), CANARY)
            if "controlPlaneRef" in reference.path:
                await made.make_plane(admin, canary(number))
        yield made


@pytest.fixture
async def proxy(operator_kubeconfig: Path) -> AsyncIterator[Proxy]:
    async with Proxy(load(operator_kubeconfig)) as proxy:
        yield proxy


def test_references_are_found() -> None:
    found = {str(reference) for reference in REFERENCES}
    assert {
        "codercontrolplanes:licenseSecretRef.name",
        "codercontrolplanes:operatorAccess.tokenSecretRef.name",
        "codercontrolplanes:operatorAccess.generatedTokenSecretName",
        "codercontrolplanes:envFrom.[].secretRef.name",
        "codercontrolplanes:extraEnv.[].valueFrom.secretKeyRef.name",
        "codercontrolplanes:tls.secretNames.[]",
        "codercontrolplanes:certs.secrets.[].name",
        "coderprovisioners:bootstrap.credentialsSecretRef.name",
        "coderprovisioners:controlPlaneRef.name",
        "coderprovisioners:key.secretName",
        "coderworkspaceproxies:bootstrap.credentialsSecretRef.name",
        "coderworkspaceproxies:proxySessionTokenSecretRef.name",
        "coderworkspaceproxies:volumes.[].secret.secretName",
    } <= found


async def test_no_reference_reaches_another_namespace(
    admin: Client, operator_kubeconfig: Path, proxy: Proxy, author: Tenant, victim: Tenant, tmp_path: Path
) -> None:
    by_proxy = proxy.kubeconfig(operator_kubeconfig, tmp_path / "kubeconfig")
    accepted = [
        (reference, form)
        for number, reference in enumerate(REFERENCES)
        for form in FORMS
        if await make(admin, author.namespace, number, form, victim.namespace)
    ]
    assert {reference for reference, form in accepted if form == NAME} == set(REFERENCES)
    assert {reference.path[0] for reference, form in accepted if form == PATH} == OF_KUBERNETES
    routes = author.routes(CODER, author.service(NEARBY))
    routes |= victim.routes(*(victim.service(canary(number)) for number in range(len(REFERENCES))))
    async with Operator(by_proxy, [author.namespace, victim.namespace], *BUILDERS, connect_to=routes) as operator:
        await eventually(lambda: all_observed(operator), 90)
        await operator.wait_idle()
        assert unexpected_requests(proxy, victim) == []
        assert await written(admin, author) == WRITTEN
        for number, reference in enumerate(REFERENCES):
            if str(reference) in READ:
                await author.put_secret(admin, canary(number), author.coderd.state.token)
        await eventually(lambda: read(proxy, author) == READ, 60)
        await operator.wait_idle()
    assert unexpected_requests(proxy, victim) == []
    assert victim.coderd.state.presented == set()
    state = author.coderd.state
    assert state.presented - {key.secret for key in state.keys.values()} == {state.token}
    pages = admin.list(SECRET, author.namespace)
    assert encoded(CANARY) not in str([msgspec.json.decode(item) async for page in pages for item in page.items])


def canary(number: int) -> str:
    """The name of a Secret or a control plane of the victim."""
    return f"canary-{number}"


def read(proxy: Proxy, author: Tenant) -> set[str]:
    """The references for which the operator read a Secret of the author."""
    return {
        str(reference)
        for number, reference in enumerate(REFERENCES)
        if f"GET /api/v1/namespaces/{author.namespace}/secrets/{canary(number)}" in proxy.requests
    }


async def written(admin: Client, author: Tenant) -> set[str]:
    """The references for which the operator created a Secret in the author's namespace."""
    pages = admin.list(SECRET, author.namespace)
    names = {Unstructured.decode(item).metadata.name async for page in pages for item in page.items}
    return {str(reference) for number, reference in enumerate(REFERENCES) if canary(number) in names}


async def make(admin: Client, namespace: str, number: int, form: str, victim: str) -> bool:
    """Create an object with such a reference; return whether the API server accepts it."""
    reference = REFERENCES[number]
    value = form.format(name=canary(number), victim=victim)
    manifest = {
        "metadata": {"namespace": namespace, "name": f"o{number}-{FORMS.index(form)}"},
        "spec": reference.spec(SCHEMAS[reference.plural], value),
    }
    try:
        await admin.create(KINDS[reference.plural], manifest)
    except errors.Invalid:
        return False
    return True


def all_observed(operator: Operator) -> bool:
    """Whether the operator has written a status for every object that is not paused."""
    items = [item for kind in KINDS.values() for item in operator.informers[kind] if not paused(item)]
    return all(item.status.observed_generation for item in items)


def unexpected_requests(proxy: Proxy, victim: Tenant) -> list[str]:
    """Requests for the victim's namespace other than lists, watches, and status and events of its control planes."""
    place = rf"\S+/namespaces/{victim.namespace}"
    expected = (
        rf"GET {place}/[a-z]+\?\S+|PATCH {place}/codercontrolplanes/[a-z0-9-]+/status\?\S+|POST {place}/events\?\S+"
    )
    about = [request for request in proxy.requests if victim.namespace in request]
    return [request for request in about if not re.fullmatch(expected, request)]
