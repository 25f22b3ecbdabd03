"""Roles, generated from the rules that modules declare next to the code that uses them."""

import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import import_module

import coder_k8s
from coder_k8s.api import GROUP, RESOURCES
from coder_k8s.kube.rules import Rule

from .embedded import Json

NAME = "coder-k8s"
NAMESPACE = "coder-system"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
API = "rbac.authorization.k8s.io"

DECLARING = ("coder_k8s.kube.", "coder_k8s.controllers.")
"""Packages whose modules can declare `RULES`."""
ELECTION = "coder_k8s.kube.election"
"""The module whose rules apply only to the operator's own namespace."""

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
VERBS = (*READ, *WRITE)

NAMESPACED_USE = f"""\
# For an operator with --watch-namespaces: instead of ../operator.yaml, apply this directory to each of the namespaces,
#
#   kubectl apply --kustomize config/rbac/namespaced --namespace <watched namespace>
#
# and apply ../service-account.yaml, ../leader-election.yaml and ../user-roles.yaml once. The ServiceAccount is in
# {NAMESPACE}; if the operator runs in another namespace, change it in the RoleBinding.
"""


def declared() -> dict[str, tuple[Rule, ...]]:
    """Return the rules of every module that declares any."""
    modules = [module.name for module in pkgutil.walk_packages(coder_k8s.__path__, "coder_k8s.")]
    rules = {name: getattr(import_module(name), "RULES", ()) for name in modules if name.startswith(DECLARING)}
    return {name: found for name, found in rules.items() if found}


def merged(rules: Iterable[Rule]) -> list[Json]:
    """Merge rules into as few entries as possible, in a fixed order."""
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for rule in rules:
        for group in rule.groups:
            for resource in rule.resources:
                verbs[group, resource].update(rule.verbs)
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), allowed in sorted(verbs.items()):
        resources[group, tuple(sorted(allowed, key=_verb_order))].append(resource)
    return [
        {"apiGroups": [group], "resources": found, "verbs": list(allowed)}
        for (group, allowed), found in sorted(resources.items())
    ]


def manifests(rules: dict[str, tuple[Rule, ...]]) -> Iterator[tuple[str, list[Json]]]:
    """Yield the name and the objects of each file."""
    election = rules.get(ELECTION, ())
    operator = [rule for name, found in rules.items() if name != ELECTION for rule in found]
    inside = [rule for rule in operator if not rule.cluster_scoped]
    account: Json = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(NAME, NAMESPACE),
        "automountServiceAccountToken": False,
    }

    yield "service-account.yaml", [account]
    yield "operator.yaml", _granted("ClusterRole", NAME, operator)
    yield "leader-election.yaml", _granted("Role", f"{NAME}-leader-election", election, NAMESPACE)
    yield "user-roles.yaml", list(_user_roles())
    yield "namespaced/operator.yaml", _granted("Role", NAME, inside)


def _verb_order(verb: str) -> tuple[int, str]:
    return (VERBS.index(verb) if verb in VERBS else len(VERBS), verb)


def _metadata(name: str, namespace: str = "", labels: dict[str, str] | None = None) -> Json:
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": {**LABELS, **(labels or {})}}


def _granted(kind: str, name: str, rules: Iterable[Rule], namespace: str = "") -> list[Json]:
    """Return a role, and the binding that grants it to the operator."""
    metadata = _metadata(name, namespace)
    role = {"apiVersion": f"{API}/v1", "kind": kind, "metadata": metadata, "rules": merged(rules)}
    binding = {
        "apiVersion": f"{API}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": API, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }
    return [role, binding]


def _user_roles() -> Iterator[Json]:
    """Yield the ClusterRoles that aggregate permissions on the kinds to `view`, `edit` and `admin`."""
    plurals = tuple(resource.kind.plural for resource in RESOURCES)
    scales = tuple(f"{plural}/scale" for plural in plurals)
    statuses = tuple(f"{plural}/status" for plural in plurals)
    view = [Rule((GROUP,), plurals, READ), Rule((GROUP,), (*scales, *statuses), ("get",))]
    edit = [*view, Rule((GROUP,), plurals, WRITE), Rule((GROUP,), scales, ("update", "patch"))]
    for role, rules, targets in (("view", view, ["view"]), ("edit", edit, ["edit", "admin"])):
        labels = {f"{API}/aggregate-to-{target}": "true" for target in targets}
        yield {
            "apiVersion": f"{API}/v1",
            "kind": "ClusterRole",
            "metadata": _metadata(f"{NAME}-{role}", labels=labels),
            "rules": merged(rules),
        }
