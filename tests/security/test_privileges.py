"""How needless rights are found, and the uses of rights that are too rare for other tests to rely on."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, RESOURCES, WORKSPACE_PROXY
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
from tests.security.people import client_of, introduce, rule
from tests.security.privileges import ROLES, Right, needless, of_role, used
from tests.support import eventually
from tests.support.installation import install_crds

GET, WATCH = Right("get", "", "secrets"), Right("watch", "apps", "deployments")
SPECS: dict[str, dict[str, Any]] = {
    CONTROL_PLANE.name: {},
    PROVISIONER.name: {"controlPlaneRef": {"name": "demo"}},
    WORKSPACE_PROXY.name: {"controlPlaneRef": {"name": "demo"}},
}


def entry(
    verb: str, decision: str = "allow", agent: str = "coder-k8s/1", user: str = OPERATOR, **reference: str
) -> dict[str, Any]:
    annotations = {"authorization.k8s.io/decision": decision}
    known = {"verb": verb, "annotations": annotations, "userAgent": agent, "user": {"username": user}}
    return {**known, "objectRef": reference} if reference else known


def test_what_counts_as_used() -> None:
    requests = [
        entry("get", resource="secrets"),
        entry("patch", apiGroup="coder.com", resource="codercontrolplanes", subresource="status"),
        entry("delete", "forbid", resource="secrets"),
        entry("create", agent="kubectl/v1", resource="secrets"),
        entry("update", user="admin", resource="secrets"),
        entry("get"),
    ]
    assert used(requests) == {GET, Right("patch", "coder.com", "codercontrolplanes/status")}


def test_what_is_needless() -> None:
    owner = Right("update", "coder.com", "codercontrolplanes/finalizers")
    passed_on = Right("deletecollection", "", "pods")
    unused = Right("update", "", "secrets")
    assert needless({GET, WATCH, owner, passed_on, unused}, {GET}) == {unused}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_without_any_use_would_be_noticed(role: str) -> None:
    assert len(needless(of_role(role), set())) > 3


@pytest.mark.parametrize("kind", [resource.kind for resource in RESOURCES], ids=lambda kind: kind.name)
async def test_a_status_that_somebody_changed_is_read_again(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, namespace: str, audit: Path, kind: Kind[Any]
) -> None:
    """By `get` of the very kind: the cache has yet to hear of the change."""
    key = Key(namespace, "demo")
    async with client_of(cluster.kubeconfig) as admin, client_of(operator_kubeconfig) as operator:
        await admin.create(kind, {"metadata": {"namespace": namespace, "name": "demo"}, "spec": SPECS[kind.name]})
        seen = await admin.get(kind, key)
        await admin.merge(kind, key, {"metadata": {"labels": {"changed": "meanwhile"}}})
        recorder = Recorder(operator, "coder-k8s", "test", Metrics())
        writer = StatusWriter(operator, kind, Cache(), recorder, "test", lambda: datetime.now(UTC), Metrics())
        await writer.write(seen, Report(), frozenset())
    assert Right("get", kind.group, kind.plural) in used(
        each for each in entries(audit) if each.get("objectRef", {}).get("namespace") == namespace
    )


async def test_who_may_not_set_finalizers_can_own_nothing_that_blocks(audit: Path, tmp_path: Path) -> None:
    """Where that is enforced; so the operator needs the right, although no request of its own shows it."""
    arguments = [*auditing(audit), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]
    with Cluster(tmp_path / "cluster", arguments) as cluster:
        install_crds(cluster)
        accounts = rule("serviceaccounts", "create")
        finalizers = rule("codercontrolplanes/finalizers", "update", "coder.com")
        without = introduce(cluster, "without", "default", {"default": [accounts]})
        holder = introduce(cluster, "holder", "default", {"default": [accounts, finalizers]})
        async with client_of(without) as first, client_of(holder) as second:
            metadata = {"namespace": "default", "name": "demo"}
            plane = await first.create(CONTROL_PLANE, {"metadata": metadata, "spec": {}})
            owner = msgspec.to_builtins(CONTROL_PLANE.reference(plane))
            owned = {"metadata": {**metadata, "ownerReferences": [owner]}}

            async def known() -> bool:
                """Whether the API server knows the kind of the owner by now, which it looks up now and then."""
                try:
                    await second.create(SERVICE_ACCOUNT, owned)
                except errors.Forbidden:
                    return False
                return True

            await eventually(known, 60)
            owned["metadata"]["name"] = "another"
            with pytest.raises(errors.Forbidden, match="finalizers"):
                await first.create(SERVICE_ACCOUNT, owned)
