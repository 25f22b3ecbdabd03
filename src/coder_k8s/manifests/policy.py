"""Admission policies that stop authors from granting, through a control plane or a provisioner, permissions they lack.

The operator writes the Roles for `workspaceNamespaces` and `extraRules` with its own permissions, which can exceed
those of the author. A control plane has these fields in `rbac`; a provisioner has no `extraRules`. So the policies
check with the authorizer that the author holds every new permission: those of the rules and, in other namespaces, also
those of every workspace Role and of binding it. In the namespace of the object itself, anyone who can write the object
can run pods anyway.

The cost budget of CEL is small: an expression can call the authorizer twice, a policy 28 times. Therefore the
permissions are one list, each validation checks two of them, and several policies share the list. Authors who need more
add them in steps, because existing permissions are not checked again.
"""

from collections.abc import Iterator

from coder_k8s.api import CONTROL_PLANE, PROVISIONER

from .embedded import Json
from .rbac import API, LABELS, NAME, VERBS

POLICIES = 8
CHECKS = 13
"""Validations of a policy that call the authorizer; the rest of the budget is for computing the list."""
LIMIT = POLICIES * CHECKS * 2
"""Permissions that can be added at once."""

BASIC = [" pods", " persistentvolumeclaims"]
"""Resources on which every workspace Role allows all verbs, as `group resource`."""
DEPLOYMENTS = ["apps deployments"]
"""The same, with `enableDeployments`, which defaults to true only in a control plane."""
OF_PROVISIONER = f"request.resource.resource == '{PROVISIONER.plural}'"

MATCH = {
    "touches-rights": (
        "request.operation == 'CREATE' || object.?spec.?rbac.?extraRules != oldObject.?spec.?rbac.?extraRules"
        " || object.?spec.?rbac.?workspaceNamespaces != oldObject.?spec.?rbac.?workspaceNamespaces"
        " || object.?spec.?rbac.?enableDeployments != oldObject.?spec.?rbac.?enableDeployments"
        " || object.?spec.?workspaceNamespaces != oldObject.?spec.?workspaceNamespaces"
        " || object.?spec.?enableDeployments != oldObject.?spec.?enableDeployments"
    ),
    # Anyone who holds both verbs in the whole cluster can write any Role directly.
    "may-not-write-any-role": (
        f"!['escalate', 'bind'].all(verb, authorizer.group('{API}').resource('roles').check(verb).allowed())"
    ),
}


def _full_access(resources: str) -> str:
    """Return the CEL list of all permissions on resources, each of them `group resource`."""
    permissions = f"({resources}).map(resource, {list(VERBS)}.map(verb, resource + '  ' + verb).join(',')).join(',')"
    return f"{permissions}.split(',').filter(entry, entry != '')"


# A permission is written as `group resource name verb`, and in `permissions` with its namespace first. Lists are
# flattened by joining and splitting strings, because CEL has `flatten` only since Kubernetes 1.34. The permissions are
# counted first, so that a list that is too long is not computed.
VARIABLES = {
    "rbac": f"({OF_PROVISIONER} ? object.?spec : object.?spec.?rbac).orValue({{}})",
    "oldRBAC": f"oldObject == null ? {{}} : ({OF_PROVISIONER} ? oldObject.?spec : oldObject.?spec.?rbac).orValue({{}})",
    "fields": f"{OF_PROVISIONER} ? 'workspaceNamespaces' : 'rbac.extraRules and rbac.workspaceNamespaces'",
    "rules": "variables.rbac.?extraRules.orValue([])",
    "newRules": "variables.rules.filter(rule, !(rule in variables.oldRBAC.?extraRules.orValue([])))",
    "others": "variables.rbac.?workspaceNamespaces.orValue([]).filter(name, name != request.namespace)",
    "newOthers": "variables.others.filter(name, !(name in variables.oldRBAC.?workspaceNamespaces.orValue([])))",
    "deployments": (
        f"[variables.rbac, variables.oldRBAC].map(rbac, rbac.?enableDeployments.orValue(!({OF_PROVISIONER})))"
    ),
    "basic": _full_access(f"{BASIC} + (variables.deployments[0] ? {DEPLOYMENTS} : [])"),
    "newBasic": _full_access(f"variables.deployments == [true, false] ? {DEPLOYMENTS} : []"),
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
        ".join(',')).join(',')).join(',')).join(',')).join(',').split(',').filter(entry, entry != ''))"
    ),
    "inNewOthers": f"['{API} rolebindings  create'] + variables.basic + variables.ofRules[0]",
    "inOthers": "variables.newBasic + variables.ofRules[1]",
    "permissions": (
        f"variables.count > {LIMIT} ? [] : (variables.ofRules[1].map(entry, request.namespace + ' ' + entry)"
        " + variables.others.map(place, (place in variables.newOthers ? variables.inNewOthers : variables.inOthers)"
        ".map(entry, place + ' ' + entry).join(',')))"
        ".join(',').split(',').filter(entry, entry != '').map(entry, entry.split(' '))"
    ),
    "descriptions": (
        "variables.permissions.map(entry, entry[4] + ' ' + entry[2] + (entry[1] == '' ? '' : '.' + entry[1])"
        " + (entry[3] == '' ? '' : ' ' + entry[3]) + ' in namespace ' + entry[0])"
    ),
}


def manifests() -> list[Json]:
    """Return the policies, each with its binding."""
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
                        "resources": [CONTROL_PLANE.plural, PROVISIONER.plural],
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
    """Yield the validations of the rules themselves."""
    yield {
        "expression": "variables.rules.all(rule, rule.?nonResourceURLs.orValue([]).size() == 0)",
        "message": "rbac.extraRules: a Role cannot grant nonResourceURLs: remove them",
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
            "variables.fields + ' would add ' + string(variables.count) + ' permissions"
            f" (verbs on resources in namespaces), but at most {LIMIT} can be checked at once: add them in several"
            " steps, or ask a user with the verbs escalate and bind on roles in the whole cluster'"
        ),
    }


def _check(at: int) -> Json:
    """Return the validation that the author holds two permissions of the list, from index `at`."""
    pair = f"[{at}, {at + 1}].filter(at, at < variables.permissions.size())"
    allowed = (
        "authorizer.group(entry[1]).resource(entry[2].split('/')[0]).subresource((entry[2] + '/').split('/')[1])"
        ".name(entry[3]).namespace(entry[0]).check(entry[4]).allowed()"
    )
    return {
        "expression": f"{pair}.map(at, variables.permissions[at]).all(entry, {allowed})",
        "messageExpression": (
            "variables.fields + ' can grant only permissions that you hold; you lack: '"
            f" + {pair}.map(at, variables.descriptions[at]).join(' or ')"
        ),
    }
