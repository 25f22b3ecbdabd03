"""The admission policies by which nobody passes on, by a CoderControlPlane, what they do not hold themselves.

The operator writes the Roles that `rbac.extraRules` and `rbac.workspaceNamespaces` ask for with its own rights, which
may be more than those of the author. So the API server asks its authorizer about the author, for every right that is
new: those of the rules, and in other namespaces those of every workspace Role and of binding it as well. In the
namespace of the object itself whoever writes the object runs pods anyway.

CEL's budget for that is small: an expression may ask twice, a policy 28 times. Therefore the rights are laid out as one
list, each validation asks for two of them, and several policies share the list. Who needs more adds them in steps, for
what was there before is not asked again.
"""

from collections.abc import Iterator

from coder_k8s.api import CONTROL_PLANE

from .embedded import Json
from .rbac import API, LABELS, NAME, VERBS

POLICIES = 8
CHECKS = 13
"""Validations of a policy that ask the authorizer; what they leave of its budget is for laying out the list."""
LIMIT = POLICIES * CHECKS * 2
"""Rights that can be added at once."""

BASIC = [" pods", " persistentvolumeclaims"]
"""What every workspace Role allows everything on, as `group resource`."""
DEPLOYMENTS = ["apps deployments"]
"""The same, for those with `rbac.enableDeployments`."""

MATCH = {
    "touches-rights": (
        "request.operation == 'CREATE' || object.?spec.?rbac.?extraRules != oldObject.?spec.?rbac.?extraRules"
        " || object.?spec.?rbac.?workspaceNamespaces != oldObject.?spec.?rbac.?workspaceNamespaces"
        " || object.?spec.?rbac.?enableDeployments != oldObject.?spec.?rbac.?enableDeployments"
    ),
    # Whoever holds both in the whole cluster can write any Role without our help.
    "may-not-write-any-role": (
        f"!['escalate', 'bind'].all(verb, authorizer.group('{API}').resource('roles').check(verb).allowed())"
    ),
}


def _everything(resources: str) -> str:
    """The rights on some resources, each of them `group resource`."""
    rights = f"({resources}).map(resource, {list(VERBS)}.map(verb, resource + '  ' + verb).join(',')).join(',')"
    return f"{rights}.split(',').filter(right, right != '')"


# A right is written as `group resource name verb`, in `rights` with its namespace before it. Lists are flattened by
# joining and splitting texts, because CEL has `flatten` from Kubernetes 1.34 on only. They are counted first, so that a
# list beyond all measure costs next to nothing.
VARIABLES = {
    "rbac": "object.?spec.?rbac.orValue({})",
    "oldRBAC": "oldObject == null ? {} : oldObject.?spec.?rbac.orValue({})",
    "rules": "variables.rbac.?extraRules.orValue([])",
    "newRules": "variables.rules.filter(rule, !(rule in variables.oldRBAC.?extraRules.orValue([])))",
    "others": "variables.rbac.?workspaceNamespaces.orValue([]).filter(name, name != request.namespace)",
    "newOthers": "variables.others.filter(name, !(name in variables.oldRBAC.?workspaceNamespaces.orValue([])))",
    "deployments": "[variables.rbac, variables.oldRBAC].map(rbac, rbac.?enableDeployments.orValue(true))",
    "basic": _everything(f"{BASIC} + (variables.deployments[0] ? {DEPLOYMENTS} : [])"),
    "newBasic": _everything(f"variables.deployments == [true, false] ? {DEPLOYMENTS} : []"),
    "sizes": (
        "[dyn(variables.rules), dyn(variables.newRules)].map(rules, rules.map(rule, rule.?apiGroups.orValue([]).size()"
        " * rule.?resources.orValue([]).size() * rule.verbs.size()"
        " * (rule.?resourceNames.orValue([]).size() == 0 ? 1 : rule.resourceNames.size())).sum())"
    ),
    "count": (
        "variables.sizes[1]"
        " + variables.newOthers.size() * (1 + variables.basic.size() + variables.sizes[0])"
        " + (variables.others.size() - variables.newOthers.size()) * (variables.newBasic.size() + variables.sizes[1])"
    ),
    "ofRules": (
        "[dyn(variables.rules), dyn(variables.newRules)].map(rules, rules.map(rule,"
        " rule.?apiGroups.orValue([]).map(group, rule.?resources.orValue([]).map(resource,"
        " (rule.?resourceNames.orValue([]).size() == 0 ? [''] : rule.resourceNames).map(name,"
        " rule.verbs.map(verb, [group, resource, name, verb].join(' '))"
        ".join(',')).join(',')).join(',')).join(',')).join(',').split(',').filter(right, right != ''))"
    ),
    "inNewOthers": f"['{API} rolebindings  create'] + variables.basic + variables.ofRules[0]",
    "inOthers": "variables.newBasic + variables.ofRules[1]",
    "rights": (
        f"variables.count > {LIMIT} ? [] : (variables.ofRules[1].map(right, request.namespace + ' ' + right)"
        " + variables.others.map(place, (place in variables.newOthers ? variables.inNewOthers : variables.inOthers)"
        ".map(right, place + ' ' + right).join(',')))"
        ".join(',').split(',').filter(right, right != '').map(right, right.split(' '))"
    ),
    "told": (
        "variables.rights.map(right, right[4] + ' ' + right[2] + (right[1] == '' ? '' : '.' + right[1])"
        " + (right[3] == '' ? '' : ' ' + right[3]) + ' in namespace ' + right[0])"
    ),
}


def manifests() -> list[Json]:
    """The policies, each with the binding that makes it hold in the whole cluster."""
    return [item for part in range(POLICIES) for item in _policy(f"{NAME}-workspace-rights-{part + 1}", part)]


def _policy(name: str, part: int) -> Iterator[Json]:
    first = part * CHECKS * 2
    checks = [_check(at) for at in range(first, first + CHECKS * 2, 2)]
    metadata: Json = {"name": name, "labels": LABELS}
    yield {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [CONTROL_PLANE.group],
                        "apiVersions": [CONTROL_PLANE.version],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [CONTROL_PLANE.plural],
                    }
                ]
            },
            "matchConditions": [{"name": key, "expression": expression} for key, expression in MATCH.items()],
            "variables": [{"name": key, "expression": expression} for key, expression in VARIABLES.items()],
            "validations": checks if part else [*_limits(), *checks],
        },
    }
    yield {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


def _limits() -> Iterator[Json]:
    """What no list of rights can hold."""
    yield {
        "expression": "variables.rules.all(rule, rule.?nonResourceURLs.orValue([]).size() == 0)",
        "message": "rbac.extraRules: a Role holds in a namespace and cannot grant nonResourceURLs: remove them",
    }
    yield {
        "expression": (
            f"variables.count > {LIMIT} || variables.rules.all(rule, (rule.?apiGroups.orValue([])"
            " + rule.?resources.orValue([]) + rule.?resourceNames.orValue([]) + rule.verbs)"
            ".all(word, !word.matches('[ ,]')))"
        ),
        "message": "rbac.extraRules: groups, resources, names and verbs must not contain a space or a comma",
    }
    yield {
        "expression": f"variables.count <= {LIMIT}",
        "messageExpression": (
            "'rbac.extraRules and rbac.workspaceNamespaces would add ' + string(variables.count) + ' rights (verbs on"
            f" resources in namespaces), and at most {LIMIT} can be checked at once: add them in several steps, or ask"
            " someone who holds the verbs escalate and bind on roles in the whole cluster'"
        ),
    }


def _check(at: int) -> Json:
    """That the author holds the rights at this and the next place of the list, if it is that long."""
    pair = f"[{at}, {at + 1}].filter(at, at < variables.rights.size())"
    allowed = (
        "authorizer.group(right[1]).resource(right[2].split('/')[0]).subresource((right[2] + '/').split('/')[1])"
        ".name(right[3]).namespace(right[0]).check(right[4]).allowed()"
    )
    return {
        "expression": f"{pair}.map(at, variables.rights[at]).all(right, {allowed})",
        "messageExpression": (
            "'rbac.extraRules and rbac.workspaceNamespaces can pass on only what you hold yourself, and you may not: '"
            f" + {pair}.map(at, variables.told[at]).join(', or: ')"
        ),
    }
