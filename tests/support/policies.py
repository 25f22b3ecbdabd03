"""An admission policy that rejects the operator's finalizers, and a quota that rejects all objects of a kind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from coder_k8s.api import CONTROL_PLANE, RESOURCES
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key, Kind, Manifest, Unstructured
from tests.support import eventually

GROUP = "admissionregistration.k8s.io"
POLICY = Kind(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", Unstructured, namespaced=False)
BINDING = Kind(
    GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", Unstructured, namespaced=False
)
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", Unstructured)
NO_FINALIZER = "object.?metadata.?finalizers.orValue([]).all(name, !name.startsWith('coder.com/'))"
REFUSED = "Finalizers are not allowed here"


def manifests(namespace: str) -> tuple[Manifest, Manifest]:
    resources = [resource.kind.plural for resource in RESOURCES]
    rule = {"apiGroups": [CONTROL_PLANE.group], "apiVersions": ["*"], "resources": resources, "operations": ["UPDATE"]}
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [rule],
        },
        "validations": [{"expression": NO_FINALIZER, "message": REFUSED}],
    }
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    metadata = {"name": namespace}
    return {"metadata": metadata, "spec": spec}, {"metadata": metadata, "spec": binding}


@asynccontextmanager
async def without_finalizers(client: Client, kind: Kind[Any], key: Key) -> AsyncIterator[None]:
    """Enforce a policy against the operator's finalizers during the block. The object must exist."""
    policy, binding = manifests(key.namespace)
    await client.create(POLICY, policy)
    await client.create(BINDING, binding)
    try:
        await eventually(lambda: is_refused(client, kind, key), 30)
        yield
    finally:
        for each in (BINDING, POLICY):
            await client.delete(each, await client.get(each, Key("", key.namespace)), unchanged=False)
        await eventually(lambda: is_allowed(client, kind, key), 30)


async def is_refused(client: Client, kind: Kind[Any], key: Key) -> bool:
    try:
        await client.merge(kind, key, {"metadata": {"finalizers": ["coder.com/probe"]}}, dry_run=True)
    except (errors.Invalid, errors.Forbidden):
        return True
    return False


async def is_allowed(client: Client, kind: Kind[Any], key: Key) -> bool:
    return not await is_refused(client, kind, key)


async def forbid(client: Client, namespace: str, resource: str) -> Unstructured:
    """Create a quota that allows no such objects, such as `count/secrets`; no controller fills its status here."""
    hard = {resource: "0"}
    quota = await client.create(QUOTA, {"metadata": {"namespace": namespace, "name": "none"}, "spec": {"hard": hard}})
    return await client.merge(QUOTA, quota.key, {"status": {"hard": hard, "used": hard}}, "status")


async def drop_finalizers(client: Client, kind: Kind[Any], key: Key) -> None:
    await client.merge(kind, key, {"metadata": {"finalizers": None}})
