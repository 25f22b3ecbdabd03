"""Tests of the check for deletions without preconditions, and of the audit logs that it needs."""

from pathlib import Path
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.kinds import SERVICE_ACCOUNT
from tests.security.audit import OPERATOR, entries
from tests.security.deletions import CUT, unconditional_deletions
from tests.security.users import client_of

BOTH = {"uid": "1-2-3", "resourceVersion": "7"}


def entry(body: Any, verb: str = "delete", code: int = 200, user: str = OPERATOR) -> dict[str, Any]:
    reference = {"resource": "roles", "namespace": "place", "name": "demo"}
    asked = {"verb": verb, "objectRef": reference, "responseStatus": {"code": code}, "user": {"username": user}}
    return asked if body is None else {**asked, "requestObject": body}


@pytest.mark.parametrize(
    ("seen", "lacking"),
    [
        (entry({"preconditions": {"uid": "1-2-3"}}), "resourceVersion"),
        (entry({"preconditions": {"resourceVersion": "7"}}), "uid"),
        (entry({"preconditions": {**BOTH, "uid": ""}}), "uid"),
        (entry({"preconditions": {"uid": "1-2-3"}}, code=404), "resourceVersion"),
        (entry({"propagationPolicy": "Background"}), "uid and resourceVersion"),
        (entry(None), "uid and resourceVersion"),
    ],
)
def test_a_deletion_without_a_precondition_is_reported(seen: dict[str, Any], lacking: str) -> None:
    assert unconditional_deletions([seen]) == [f"delete roles place/demo: without {lacking}"]


@pytest.mark.parametrize("code", [200, 403])
def test_the_deletion_of_a_collection_is_reported(code: int) -> None:
    assert len(unconditional_deletions([entry({"preconditions": BOTH}, "deletecollection", code)])) == 1


@pytest.mark.parametrize(
    "seen",
    [
        entry({"preconditions": BOTH}),
        entry({"preconditions": BOTH}, code=409),
        entry(None, code=403),
        {**entry(None), "responseStatus": {"code": 200, "message": CUT}},
        entry(None, user="admin"),
        entry({}, "patch"),
    ],
)
def test_other_requests_are_not_reported(seen: dict[str, Any]) -> None:
    assert unconditional_deletions([seen]) == []


async def test_audit_logs_contain_the_options_of_deletions(
    cluster: ClusterAccess, operator_kubeconfig: Path, namespace: str, audit: Path
) -> None:
    async with client_of(cluster.kubeconfig) as admin, client_of(operator_kubeconfig) as operator:
        seen = await admin.create(SERVICE_ACCOUNT, {"metadata": {"namespace": namespace, "name": "demo"}})
        await admin.merge(SERVICE_ACCOUNT, seen.key, {"metadata": {"labels": {"changed": "true"}}})
        with pytest.raises(errors.Conflict):
            await operator.delete(SERVICE_ACCOUNT, seen)
        await operator.delete(SERVICE_ACCOUNT, await admin.get(SERVICE_ACCOUNT, seen.key))
    deletions = entries(audit, b'"verb":"delete"')
    here = [each for each in deletions if each.get("objectRef", {}).get("namespace") == namespace]
    assert [each["responseStatus"]["code"] for each in here] == [409, 200]
    assert unconditional_deletions(here) == []
    assert len(unconditional_deletions({**each, "requestObject": {}} for each in here)) == len(here)
