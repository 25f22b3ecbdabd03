"""Roles are generated from rules."""

from pathlib import Path

import pytest

from coder_k8s.dev.cluster import ClusterAccess, KubectlFailed
from coder_k8s.kube.rules import Rule
from coder_k8s.manifests.rbac import declared, manifests, merged

RBAC = Path(__file__).parents[2] / "config" / "rbac"

NAMESPACES = Rule(("",), ("namespaces",), ("get", "list", "watch"), cluster_scoped=True)
SECRETS = Rule(("",), ("secrets",), ("get",))
LEASES = Rule(("coordination.k8s.io",), ("leases",), ("get",))


def test_rules_are_merged_by_resource_in_a_fixed_order() -> None:
    rules = [
        Rule(("",), ("secrets", "configmaps"), ("watch", "get")),
        Rule(("apps",), ("deployments",), ("delete",)),
        Rule(("",), ("secrets",), ("list", "get")),
        Rule(("",), ("services", "configmaps"), ("escalate", "get", "watch")),
    ]
    expected = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps", "services"], "verbs": ["get", "watch", "escalate"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["delete"]},
    ]
    assert merged(rules) == expected
    assert merged(reversed(rules)) == expected


def test_only_the_cluster_role_has_rules_for_cluster_scoped_resources() -> None:
    files = dict(manifests({"a": (NAMESPACES, SECRETS), "coder_k8s.kube.election": (LEASES,)}))
    assert files["operator.yaml"][0]["rules"] == merged([NAMESPACES, SECRETS])
    assert files["namespaced/operator.yaml"][0]["rules"] == merged([SECRETS])
    assert files["leader-election.yaml"][0]["rules"] == merged([LEASES])


def test_rules_are_found_next_to_the_code() -> None:
    assert {"coder_k8s.kube.events", "coder_k8s.kube.election"} <= set(declared())


@pytest.mark.usefixtures("crds")
def test_operator_has_only_the_permissions_that_it_needs(cluster: ClusterAccess, operator_kubeconfig: Path) -> None:
    assert can(cluster, operator_kubeconfig, "watch", "codercontrolplanes.coder.com", "default")
    assert can(cluster, operator_kubeconfig, "create", "events.events.k8s.io", "default")
    assert can(cluster, operator_kubeconfig, "update", "leases.coordination.k8s.io", "coder-system")
    assert not can(cluster, operator_kubeconfig, "update", "leases.coordination.k8s.io", "default")
    assert not can(cluster, operator_kubeconfig, "delete", "nodes", "default")


@pytest.mark.usefixtures("crds", "operator_kubeconfig")
def test_namespaced_roles_can_be_applied_to_a_namespace(cluster: ClusterAccess, namespace: str) -> None:
    cluster.kubectl("apply", "--kustomize", RBAC / "namespaced", "--namespace", namespace)
    kinds = cluster.kubectl("get", "role,rolebinding", "coder-k8s", "--namespace", namespace, "--output=name").split()
    assert kinds == ["role.rbac.authorization.k8s.io/coder-k8s", "rolebinding.rbac.authorization.k8s.io/coder-k8s"]


@pytest.mark.usefixtures("crds", "operator_kubeconfig")
@pytest.mark.parametrize(
    ("role", "verb", "resource", "allowed"),
    [
        ("view", "list", "coderprovisioners", "yes"),
        ("view", "create", "coderprovisioners", "no"),
        ("edit", "create", "coderworkspaceproxies", "yes"),
        ("edit", "patch", "codercontrolplanes/scale", "yes"),
        ("edit", "patch", "codercontrolplanes/status", "no"),
    ],
)
def test_user_roles_grant_access_to_the_kinds(
    cluster: ClusterAccess, namespace: str, role: str, verb: str, resource: str, allowed: str
) -> None:
    binding = f"--clusterrole=coder-k8s-{role}"
    cluster.kubectl("create", "rolebinding", "user", binding, "--user=user", "--namespace", namespace)
    query = ("auth", "can-i", verb, resource.partition("/")[0] + ".coder.com", "--as=user", "--namespace", namespace)
    subresource = [f"--subresource={part}"] if (part := resource.partition("/")[2]) else []
    assert can_i(cluster, *query, *subresource) == allowed


def test_user_roles_are_aggregated_to_those_of_the_cluster() -> None:
    labels = [role["metadata"]["labels"] for role in dict(manifests(declared()))["user-roles.yaml"]]
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    aggregated = [{name.removeprefix(prefix) for name in found if name.startswith(prefix)} for found in labels]
    assert aggregated == [{"view"}, {"edit", "admin"}]


def can(cluster: ClusterAccess, kubeconfig: Path, verb: str, resource: str, namespace: str) -> bool:
    query = ("--kubeconfig", kubeconfig, "auth", "can-i", verb, resource, "--namespace", namespace)
    return can_i(cluster, *query) == "yes"


def can_i(cluster: ClusterAccess, *args: str | Path) -> str:
    """The output of `kubectl auth can-i`, which fails if it is `no`."""
    try:
        return cluster.kubectl(*args).strip()
    except KubectlFailed:
        return "no"
