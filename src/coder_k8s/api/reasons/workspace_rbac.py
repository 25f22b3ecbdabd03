"""The reasons of the condition `WorkspaceRBACReady`."""

from .common import (
    APPLIED,
    DISABLED,
    FORBIDDEN,
    NAME_TAKEN,
    SPEC_INVALID,
)
from .reason import Reason

NAMESPACE_NOT_ALLOWED = Reason(
    "NamespaceNotAllowed",
    "A namespace of `workspaceNamespaces` has not opted in.",
    "Label it `coder.com/workspaces-from=<namespace of the object>`, or add it to the operator's "
    "`--allow-workspace-namespaces`.",
    example="Namespace team-a has not opted in; label it coder.com/workspaces-from=coder",
)
NAMESPACE_MISSING = Reason(
    "NamespaceMissing",
    "A namespace of `workspaceNamespaces` does not exist.",
    "Create it, or remove it from the list.",
    example="Namespace team-b does not exist; create it, or remove it from rbac.workspaceNamespaces",
)

CONTROL_PLANE_RBAC_REASONS = (
    APPLIED.means(
        "Coder can run workspaces in all the namespaces of the spec.",
        example="ServiceAccount demo may run workspaces in namespaces: coder, team-c, team-a",
    ),
    DISABLED.means("`rbac.workspacePerms` is off.", example="Disabled by rbac.workspacePerms"),
    NAMESPACE_NOT_ALLOWED,
    NAMESPACE_MISSING,
    FORBIDDEN.means(
        "A rule of `rbac.extraRules` exceeds the operator's own permissions, so that it cannot grant it; or the "
        "finalizer that Roles in other namespaces need cannot be added.",
        "Remove the rule, or add the same rule to the operator's own role. For the finalizer, see the condition "
        "`Stalled`.",
        example="Without finalizer coder.com/workspace-rbac-cleanup no Role is written to namespace test-1",
    ),
    NAME_TAKEN.means(
        "A Role or RoleBinding of that name belongs to another owner.",
        "Remove it, or set another `serviceAccount.name`.",
        example="In namespace test-1, Role demo-5610640d-workspace-perms exists and has no owner; delete it, or "
        "set another serviceAccount.name",
    ),
    SPEC_INVALID.means(
        "The API server rejects a Role or RoleBinding.",
        "Correct `rbac.extraRules`; the message has the error.",
        example="Role rule-without-verbs-6f055305-workspace-perms cannot be written to namespace test-1: "
        'Role.rbac.authorization.k8s.io "rule-without-verbs-6f055305-workspace-perms" is invalid: rules[3].verbs: '
        "Required value: verbs must contain at least one value",
    ),
)

PROVISIONER_RBAC_REASONS = (
    APPLIED.means(
        "The daemons can run workspaces in all the namespaces of the spec.",
        example="ServiceAccount build-provisioner may run workspaces in namespaces: platform, team-e, team-f",
    ),
    DISABLED.means("`workspacePermissions` is off.", example="Disabled by workspacePermissions"),
    NAMESPACE_NOT_ALLOWED,
    NAMESPACE_MISSING,
    FORBIDDEN.means(
        "The API server does not let the operator write the ServiceAccount, a Role or a RoleBinding: a role, a quota "
        "or a webhook forbids it; or the finalizer that Roles in other namespaces need cannot be added.",
        "Change the role, quota or webhook that the message names. For the finalizer, see the condition `Stalled`.",
        example="Role provisioner-build cannot be written to namespace test-1: "
        'roles.rbac.authorization.k8s.io "provisioner-build" is forbidden: exceeded quota: none, requested: '
        "count/roles.rbac.authorization.k8s.io=1, used: count/roles.rbac.authorization.k8s.io=0, limited: "
        "count/roles.rbac.authorization.k8s.io=0",
    ),
    NAME_TAKEN.means(
        "The ServiceAccount, or a Role or RoleBinding of that name, belongs to another owner.",
        "Remove it, or use another name for the provisioner.",
        example="In namespace test-1, Role provisioner-build exists and has no owner; delete it, or rename this object",
    ),
    SPEC_INVALID.means(
        "The API server or a webhook rejects the ServiceAccount, a Role or a RoleBinding.",
        "Change the webhook or policy that the message names.",
        example="Role provisioner-build cannot be written to namespace test-1: roles.rbac.authorization.k8s.io "
        "\"provisioner-build\" is forbidden: ValidatingAdmissionPolicy 'test-1' with binding 'test-1' denied request: "
        "Roles are not allowed here",
    ),
)
