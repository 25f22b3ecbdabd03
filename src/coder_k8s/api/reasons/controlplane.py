"""The reasons of the conditions of a CoderControlPlane."""

from enum import StrEnum

from coder_k8s.api.conditions import ControlPlaneCondition, Reason

from .common import FIELD_NOT_SUPPORTED, SCALED_TO_ZERO

WAITING = Reason("Pending", "Coder, or the operator's access to it, is not ready yet.")

CONTROL_PLANE: dict[StrEnum, tuple[Reason, ...]] = {
    ControlPlaneCondition.AVAILABLE: (
        Reason("MinimumReplicasReady", "At least one pod is ready."),
        Reason(
            "NoReplicasReady",
            "No pod is ready, or `replicas` is 0.",
            "If it lasts: look at the pods with `kubectl describe pod` and at their logs. A message that names a "
            "Secret or ConfigMap says that pods wait for it: create it.",
        ),
        Reason("RolloutInProgress", "Pods serve, but the Deployment has not rolled out this generation yet."),
        Reason(
            "RolloutStuck",
            "The Deployment passed its progress deadline; the message has the first failing pod's reason.",
            "Mend what the message names: the image, a Secret, the resources of the nodes, the database.",
        ),
    ),
    ControlPlaneCondition.OPERATOR_ACCESS_READY: (
        Reason(
            "TokenReady",
            "The operator has a token that works. The message names its Secret, and why it is not renewed while the "
            "database cannot be checked.",
        ),
        SCALED_TO_ZERO,
        Reason("Disabled", "`operatorAccess.disabled` is set."),
        Reason("Pending", "Coder is not there yet, or has not set up its database."),
        Reason(
            "DatabaseURLMissing",
            "Neither `extraEnv` nor `envFrom` has `CODER_PG_CONNECTION_URL`.",
            "Give Coder its database by this variable, or give the operator a token by "
            "`operatorAccess.tokenSecretRef`.",
        ),
        Reason(
            "DatabaseUnreachable",
            "The database does not answer the operator or refuses its login.",
            "Look whether the operator's pod may reach the database (NetworkPolicy, firewall) and whether user and "
            "password of the URL are right.",
        ),
        Reason(
            "SchemaUnsupported",
            "The tables of this version of Coder are not what the operator knows.",
            "Use a version of the operator that knows this Coder, or make a token by hand and give it by "
            "`operatorAccess.tokenSecretRef`.",
        ),
        Reason(
            "UsernameTaken",
            "A human has the user name `coder-k8s-operator`.",
            "Rename that user in Coder.",
        ),
        Reason(
            "SecretUnavailable",
            "The Secret of the token is missing, has no such key, belongs to someone else or may not be written.",
            "Create the Secret of `operatorAccess.tokenSecretRef` with its key. Without that field: remove the Secret "
            "that is in the way, or choose another `operatorAccess.generatedTokenSecretName`.",
        ),
        Reason(
            "TokenRejected",
            "Coder does not accept the token of `operatorAccess.tokenSecretRef`, or the one that the operator made in "
            "the database of `CODER_PG_CONNECTION_URL`.",
            "Make a new token in Coder, as a user with the role Owner, and put it into the Secret. Without that field: "
            "set `CODER_PG_CONNECTION_URL` to the database that Coder uses.",
        ),
        Reason(
            "Forbidden",
            "The finalizer that the token needs cannot be added. The status is the one that was known last.",
            "Change the policy or webhook that the condition `Stalled` names.",
        ),
        Reason(
            "RedirectedToAccessURL",
            "Coder answers every request of the operator with a redirect to its access URL.",
            "Set `CODER_REDIRECT_TO_ACCESS_URL` to `false`: the operator and the provisioners talk to Coder inside the "
            "cluster. Redirect browsers in the Ingress or Gateway instead.",
        ),
    ),
    ControlPlaneCondition.LICENSE_APPLIED: (
        Reason("Applied", "Coder has the license. The message says when it expires."),
        SCALED_TO_ZERO,
        Reason("NotConfigured", "There is no `licenseSecretRef`; the status is Unknown."),
        WAITING,
        Reason(
            "SecretMissing",
            "The Secret of `licenseSecretRef` or its key does not exist.",
            "Create the Secret with the license under that key.",
        ),
        Reason(
            "Forbidden",
            "Coder does not let the operator upload licenses, or a finalizer cannot be added.",
            "Give the owner of the token of `operatorAccess.tokenSecretRef` the role Owner in Coder, or see the "
            "condition `Stalled`.",
        ),
        Reason(
            "NotSupported",
            "This build of Coder knows no licenses.",
            "Use an image with the enterprise features, or remove `licenseSecretRef`.",
        ),
        Reason(
            "LicenseInvalid",
            "Coder refused the license; the message has its words. It is uploaded again every hour, and when its "
            "Secret, the version or the deployment ID of Coder changes.",
            "Put a license for this deployment that has not expired into the Secret.",
        ),
        Reason(
            "Error",
            "Coder could not be asked, or the upload failed; it is tried again.",
            "If it lasts: look at the logs of Coder's pods.",
        ),
    ),
    ControlPlaneCondition.ENTITLEMENTS_KNOWN: (
        Reason("Checked", "The operator asked within the last minutes. The message has the tier of the license."),
        SCALED_TO_ZERO,
        WAITING,
        Reason(
            "Forbidden",
            "Coder does not tell, or a finalizer cannot be added.",
            "Give the owner of the token of `operatorAccess.tokenSecretRef` the role Owner in Coder, or see the "
            "condition `Stalled`.",
        ),
        Reason("NotSupported", "This build of Coder knows no entitlements."),
        Reason(
            "Error",
            "The question failed; it is asked again.",
            "If it lasts: look at the logs of Coder's pods.",
        ),
    ),
    ControlPlaneCondition.EXPOSED: (
        Reason("Applied", "The Ingress is in place, or every Gateway accepts the HTTPRoute."),
        Reason("Pending", "There is no Service to lead to yet.", "If it lasts: see the condition `Stalled`."),
        Reason("WaitingForGateway", "A Gateway has not answered the route yet; it has a minute."),
        Reason(
            "GatewayAPIMissing",
            "The cluster has no Gateway API; the route follows when it appears. An Ingress from before stays.",
            "Install the CRDs of the Gateway API, or use `expose.ingress`.",
        ),
        Reason(
            "NotAccepted",
            "A Gateway does not accept the route, or has not answered for a minute.",
            "Look at the Gateway that the message names: whether it exists and has a controller, its listeners, host "
            "names and `allowedRoutes`.",
        ),
        Reason(
            "NameTaken",
            "A Service, Ingress or HTTPRoute of that name belongs to someone else. What was exposed before stays.",
            "Remove it, or rename this object.",
        ),
        Reason(
            "Invalid",
            "The API server or a webhook refuses the Ingress or HTTPRoute.",
            "Correct `expose`; the message says what is wrong with it.",
        ),
        FIELD_NOT_SUPPORTED,
        Reason(
            "Forbidden",
            "The API server does not let the operator write the Ingress or HTTPRoute.",
            "Install the operator's roles of this version, or change the quota or webhook that the message names.",
        ),
    ),
    ControlPlaneCondition.WORKSPACE_RBAC_READY: (
        Reason("Applied", "Coder may run workspaces in all the namespaces of the spec."),
        Reason("Disabled", "`rbac.workspacePerms` is off."),
        Reason(
            "NamespaceNotAllowed",
            "A namespace of `rbac.workspaceNamespaces` has not agreed.",
            "Its owner can label it `coder.com/workspaces-from=<namespace of the control plane>`, or the "
            "administrator can name it in the operator's `--allow-workspace-namespaces`.",
        ),
        Reason(
            "NamespaceMissing",
            "A namespace of `rbac.workspaceNamespaces` does not exist.",
            "Create it, or take it out of the list.",
        ),
        Reason(
            "Forbidden",
            "A rule of `rbac.extraRules` is more than the operator itself may do, and nobody can grant that. Or the "
            "finalizer that Roles in other namespaces need cannot be added.",
            "Take the rule out, or give the operator's own role the same rule. For the finalizer, see the condition "
            "`Stalled`.",
        ),
        Reason(
            "NameTaken",
            "A Role or RoleBinding of that name belongs to someone else.",
            "Remove it, or choose another `serviceAccount.name`.",
        ),
        Reason(
            "Invalid",
            "The API server refuses a Role or RoleBinding.",
            "Correct `rbac.extraRules`; the message says what is wrong with it.",
        ),
    ),
}
