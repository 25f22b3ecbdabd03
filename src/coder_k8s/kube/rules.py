"""RBAC rules, declared next to the code that needs them."""

import msgspec

READ = ("get", "list", "watch")
MANAGE = (*READ, "create", "patch", "delete")


class Rule(msgspec.Struct, frozen=True):
    """An RBAC rule; the generated Roles and ClusterRoles contain these.

    `cluster_scoped` marks cluster-scoped resources, which a namespace-scoped install does not get.
    """

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    cluster_scoped: bool = False
