"""The fixtures that all tests use."""

import json
from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess, KubectlFailed
from tests.support import eventually


def test_crds_are_served(cluster: ClusterAccess, crds: None) -> None:
    for plural in ("codercontrolplanes", "coderprovisioners", "coderworkspaceproxies", "codertemplates"):
        status, answer = cluster.request("GET", f"/apis/coder.com/v1alpha1/{plural}")
        assert (status, json.loads(answer)["apiVersion"]) == (200, "coder.com/v1alpha1")


def test_the_operator_has_only_its_own_roles(cluster: ClusterAccess, crds: None, operator_kubeconfig: Path) -> None:
    def can(*question: str) -> bool:
        try:
            return cluster.kubectl("--kubeconfig", operator_kubeconfig, "auth", "can-i", *question).strip() == "yes"
        except KubectlFailed:
            return False

    assert can("watch", "codercontrolplanes.coder.com", "--all-namespaces")
    assert can("update", "leases.coordination.k8s.io", "-n", "coder-system")
    assert not can("delete", "nodes")
    assert not can("*", "*")


async def test_eventually_returns_the_first_truthy_result() -> None:
    answers = iter([None, 0, "ready", "later"])
    assert await eventually(lambda: next(answers)) == "ready"


async def test_eventually_retries_after_a_failed_assertion() -> None:
    answers = iter([1, 2, 3])

    async def check() -> bool:
        assert next(answers) == 3
        return True

    assert await eventually(check)


async def test_eventually_fails_with_the_last_result() -> None:
    with pytest.raises(AssertionError, match=r"still \[\] after 0\.05 s"):
        await eventually(list, timeout=0.05)
