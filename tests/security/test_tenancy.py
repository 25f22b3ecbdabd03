"""Nothing in an object of one namespace makes the operator read a Secret of another one."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import RESOURCES
from coder_k8s.controllers.controlplane import setup as controlplane
from coder_k8s.controllers.provisioner import setup as provisioner
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.workspaceproxy import setup as workspaceproxy
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.config import load
from coder_k8s.kube.kinds import SECRET
from coder_k8s.kube.objects import Kind
from tests.security.people import client_of, post
from tests.security.references import Reference, references, schema
from tests.support import eventually
from tests.support.controllers import running
from tests.support.idle import idle
from tests.support.proxy import Proxy

CANARY = "canary-of-somebody-else"
BUILDERS = (controlplane.build, provisioner.build, workspaceproxy.build)
KINDS: dict[str, Kind[Any]] = {resource.kind.plural: resource.kind for resource in RESOURCES}
SCHEMAS = {plural: schema(plural) for plural in KINDS}
REFERENCES = [reference for plural, found in SCHEMAS.items() for reference in references(plural, found)]
FORMS = NAME, PATH = ("canary", "../../{}/secrets/canary")
OF_KUBERNETES = {"envFrom", "extraEnv", "imagePullSecrets", "volumes"}
"""Fields of a type of Kubernetes itself, which checks names only where a pod uses them."""


@pytest.fixture
def victim(cluster: ClusterAccess, namespace: str) -> str:
    """A namespace with a Secret and a control plane called canary; there is nothing of that name elsewhere."""
    name = f"{namespace}-victim"
    post(cluster, "/api/v1/namespaces", {"metadata": {"name": name}})
    secret = {"metadata": {"name": "canary"}, "stringData": dict.fromkeys(("token", "license", "key"), CANARY)}
    post(cluster, f"/api/v1/namespaces/{name}/secrets", secret)
    return name


@pytest.fixture
async def proxy(operator_kubeconfig: Path) -> AsyncIterator[Proxy]:
    async with Proxy(load(operator_kubeconfig)) as proxy:
        yield proxy


def test_the_fields_are_found() -> None:
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


async def test_no_reference_leads_into_another_namespace(
    cluster: ClusterAccess,
    crds: None,
    operator_kubeconfig: Path,
    proxy: Proxy,
    namespace: str,
    victim: str,
    tmp_path: Path,
) -> None:
    by_proxy = proxy.kubeconfig(operator_kubeconfig, tmp_path / "kubeconfig")
    async with client_of(cluster.kubeconfig) as admin:
        accepted = [
            (reference, form)
            for number, reference in enumerate(REFERENCES)
            for form in FORMS
            if await make(admin, namespace, f"o{number}-{FORMS.index(form)}", reference, form.format(victim))
        ]
        assert {reference for reference, form in accepted if form == NAME} == set(REFERENCES)
        assert {reference.path[0] for reference, form in accepted if form == PATH} == OF_KUBERNETES
        async with running(by_proxy, [namespace, victim], *BUILDERS) as runtime:
            await eventually(lambda: all_told(runtime), 90)
            await idle(runtime)
        secrets = [msgspec.json.decode(item) async for page in admin.list(SECRET, namespace) for item in page.items]
    assert len(proxy.writes) > len(accepted)
    assert [request for request in proxy.requests if is_strange(request, victim)] == []
    assert CANARY not in str(secrets)


async def make(admin: Client, namespace: str, name: str, reference: Reference, value: str) -> bool:
    """Whether the API server takes an object with this value there."""
    manifest = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": reference.spec(SCHEMAS[reference.plural], value),
    }
    try:
        await admin.create(KINDS[reference.plural], manifest)
    except errors.Invalid:
        return False
    return True


def all_told(runtime: Runtime) -> bool:
    """Whether the operator has come to a verdict on every object."""
    return all(item.status.observed_generation for kind in KINDS.values() for item in runtime.informers[kind])


def is_strange(request: str, victim: str) -> bool:
    """Whether a request asks the other namespace for more than the lists that are watched."""
    collection = re.fullmatch(rf"GET \S+/namespaces/{victim}/[a-z]+\?\S+", request)
    return victim in request and not collection
