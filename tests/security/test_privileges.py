"""Tests of the check for unused permissions, and uses of permissions that are rare in other tests."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, TEMPLATE, WORKSPACE_PROXY
from coder_k8s.controllers.report import Report
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.events import Recorder
from coder_k8s.kube.kinds import SERVICE_ACCOUNT
from coder_k8s.kube.metrics import Metrics
from coder_k8s.kube.objects import Key, Kind
from tests.security.audit import OPERATOR, auditing, entries
from tests.security.privileges import ROLES, Right, rights_of_role, unused, used
from tests.security.users import client_of, create_user, rule
from tests.support import eventually
from tests.support.installation import install_crds

GET, WATCH = Right("get", "", "secrets"), Right("watch", "apps", "deployments")
SPECS: dict[str, dict[str, Any]] = {
    CONTROL_PLANE.name: {},
    PROVISIONER.name: {"controlPlaneRef": {"name": "demo"}},
    WORKSPACE_PROXY.name: {"controlPlaneRef": {"name": "demo"}},
    TEMPLATE.name: {"controlPlaneRef": {"name": "demo"}, "source": {"configMapRef": {"name": "demo"}}},
}


def entry(
    verb: str, decision: str = "allow", agent: str = "coder-k8s/1", user: str = OPERATOR, **reference: str
) -> dict[str, Any]:
    annotations = {"authorization.k8s.io/decision": decision}
    known = {"verb": verb, "annotations": annotations, "userAgent": agent, "user": {"username": user}}
    return {**known, "objectRef": reference} if reference else known


def test_used_permissions() -> None:
    requests = [
        entry("get", resource="secrets"),
        entry("patch", apiGroup="coder.com", resource="codercontrolplanes", subresource="status"),
        entry("delete", "forbid", resource="secrets"),
        entry("create", agent="kubectl/v1", resource="secrets"),
        entry("update", user="admin", resource="secrets"),
        entry("get"),
    ]
    assert used(requests) == {GET, Right("patch", "coder.com", "codercontrolplanes/status")}


def test_unused_permissions() -> None:
    owner = Right("update", "coder.com", "codercontrolplanes/finalizers")
    granted = Right("deletecollection", "", "pods")
    secrets = Right("update", "", "secrets")
    assert unused({GET, WATCH, owner, granted, secrets}, {GET}) == {secrets}


@pytest.mark.parametrize("role", ROLES)
def test_an_unused_role_is_reported(role: str) -> None:
    assert len(unused(rights_of_role(role), set())) > 3


@pytest.mark.parametrize("kind", [resource.kind for resource in RESOURCES], ids=lambda kind: kind.name)
async def test_a_concurrently_changed_status_is_read_again(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, audit: Path, kind: Kind[Any]
) -> None:
    """With a `get` of the kind, because the cache does not have the change yet."""
    key = Key(namespace, "demo")
    async with client_of(cluster.kubeconfig) as admin, client_of(operator_kubeconfig) as operator:
        await admin.create(kind, {"metadata": {"namespace": namespace, "name": "demo"}, "spec": SPECS[kind.name]})
        seen = await admin.get(kind, key)
        await admin.merge(kind, key, {"metadata": {"labels": {"changed": "true"}}})
        recorder = Recorder(operator, "coder-k8s", "test", Metrics())
        writer = StatusWriter(operator, kind, Cache(), recorder, "test", lambda: datetime.now(UTC), Metrics())
        await writer.write(seen, Report(), frozenset())
    assert Right("get", kind.group, kind.plural) in used(
        each for each in entries(audit) if each.get("objectRef", {}).get("namespace") == namespace
    )


@pytest.mark.slow
async def test_blocking_owner_references_need_the_finalizers_permission(audit: Path, tmp_path: Path) -> None:
    """The operator needs this permission where it is enforced, although none of its requests shows it."""
    arguments = [*auditing(audit), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]
    with Cluster(tmp_path / "cluster", arguments) as cluster:
        install_crds(cluster)
        accounts = rule("serviceaccounts", "create")
        finalizers = rule("codercontrolplanes/finalizers", "update", "coder.com")
        without = create_user(cluster, "without", "default", {"default": [accounts]})
        holder = create_user(cluster, "holder", "default", {"default": [accounts, finalizers]})
        async with client_of(without) as first, client_of(holder) as second:
            metadata = {"namespace": "default", "name": "demo"}
            plane = await first.create(CONTROL_PLANE, {"metadata": metadata, "spec": {}})
            owner = msgspec.to_builtins(CONTROL_PLANE.reference(plane))
            owned = {"metadata": {**metadata, "ownerReferences": [owner]}}

            async def known() -> bool:
                """Whether the API server knows the kind of the owner, which it discovers periodically."""
                try:
                    await second.create(SERVICE_ACCOUNT, owned)
                except errors.Forbidden:
                    return False
                return True

            await eventually(known, 60)
            owned["metadata"]["name"] = "another"
            with pytest.raises(errors.Forbidden, match="finalizers"):
                await first.create(SERVICE_ACCOUNT, owned)
