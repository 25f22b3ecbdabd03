"""Every field of the spec: a value for it, and the fields of children while it is set and after it is removed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from coder_k8s.controllers.names import hashed
from coder_k8s.kube.kinds import DEPLOYMENT, HTTP_ROUTE, INGRESS, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Kind, Unstructured

HOME, AWAY, NAME = "fields", "workspaces", "demo"
GRANT = f"{NAME}-{hashed(HOME, NAME)}"

CoderdTarget = tuple[str | int, ...]
POD: CoderdTarget = ("spec", "template", "spec")
CODER: CoderdTarget = (*POD, "containers", 0)


class Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = Nothing()


class Look(NamedTuple):
    """What a child has while a field is set, and after it is removed."""

    kind: Kind[Unstructured]
    path: CoderdTarget
    then: Any
    after: Any = NOTHING
    name: str = NAME
    namespace: str = HOME


class Row(NamedTuple):
    """A field, a value for it, and the fields of children that follow it."""

    field: str
    value: Any
    looks: list[Look]
    given: Mapping[str, Any] = MappingProxyType({})
    """Other fields that this one requires."""
    remove: str = ""
    """The field to remove instead, if its parent requires this one."""


def in_pod(field: str, value: Any, name: str = "", after: Any = NOTHING) -> Row:
    return Row(field, value, [Look(DEPLOYMENT, (*POD, name or field), value, after)])


def in_container(field: str, value: Any, name: str = "", after: Any = NOTHING) -> Row:
    return Row(field, value, [Look(DEPLOYMENT, (*CODER, name or field), value, after)])


def in_probe(probe: str, field: str, value: int, after: Any) -> Row:
    look = Look(DEPLOYMENT, (*CODER, probe, field), value, after)
    return Row(f"{probe}.{field}", value, [look], given={f"{probe}.enabled": True})


def in_ingress(field: str, value: Any, path: CoderdTarget, then: Any, after: Any = NOTHING, **given: Any) -> Row:
    needed = {"expose.ingress.host": "coder.example.com", **{f"expose.ingress.{name}": given[name] for name in given}}
    return Row(f"expose.ingress.{field}", value, [Look(INGRESS, path, then, after)], given=needed)


GATEWAY = {"expose.gateway.host": "coder.example.com", "expose.gateway.parentRefs": [{"name": "one"}]}
ARGS = ["--http-address=0.0.0.0:8080"]
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "coder"}}}
        ]
    }
}
SERVICES = {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]}
PARENT = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}

ROWS = [
    in_container("image", "coder:1", after="ghcr.io/coder/coder:latest"),
    in_pod("terminationGracePeriodSeconds", 120, after=60),
    Row("replicas", 3, [Look(DEPLOYMENT, ("spec", "replicas"), 3, 1)]),
    Row("service.type", "NodePort", [Look(SERVICE, ("spec", "type"), "NodePort", "ClusterIP")]),
    Row(
        "service.port",
        8080,
        [
            Look(SERVICE, ("spec", "ports", 0, "port"), 8080, 80),
            Look(
                DEPLOYMENT,
                (*CODER, "env", "CODER_ACCESS_URL", "value"),
                "http://demo.fields.svc.cluster.local:8080",
                "http://demo.fields.svc.cluster.local",
            ),
        ],
    ),
    Row("service.annotations", {"a": "b"}, [Look(SERVICE, ("metadata", "annotations", "a"), "b")]),
    Row("extraArgs", ["--trace"], [Look(DEPLOYMENT, (*CODER, "args"), [*ARGS, "--trace"], ARGS)]),
    Row(
        "extraEnv",
        [{"name": "MINE", "value": "1"}],
        [Look(DEPLOYMENT, (*CODER, "env", "MINE"), {"name": "MINE", "value": "1"})],
    ),
    in_container("envFrom", [{"configMapRef": {"name": "settings", "optional": True}}]),
    in_container("resources", {"limits": {"memory": "1Gi"}, "requests": {"cpu": "500m"}}, after={}),
    in_container("securityContext", {"runAsNonRoot": True}),
    Row(
        "volumeMounts",
        [{"name": "data", "mountPath": "/data"}],
        [Look(DEPLOYMENT, (*CODER, "volumeMounts"), [{"name": "data", "mountPath": "/data"}])],
        given={"volumes": [{"name": "data", "emptyDir": {}}]},
    ),
    in_pod("volumes", [{"name": "data", "emptyDir": {}}]),
    in_pod("imagePullSecrets", [{"name": "regcred"}]),
    in_pod("nodeSelector", {"disktype": "ssd"}),
    in_pod("tolerations", [{"key": "dedicated", "operator": "Exists"}]),
    in_pod("affinity", AFFINITY),
    in_pod("topologySpreadConstraints", [SPREAD]),
    in_pod("podSecurityContext", {"fsGroup": 1000}, "securityContext", after={}),
    Row(
        "serviceAccount.disableCreate",
        True,
        [Look(SERVICE_ACCOUNT, ("metadata", "ownerReferences", 0, "name"), NOTHING, NAME)],
    ),
    Row(
        "serviceAccount.name",
        "other",
        [
            Look(SERVICE_ACCOUNT, ("metadata", "name"), "other", name="other"),
            Look(SERVICE_ACCOUNT, ("metadata", "name"), NOTHING, NAME),
            Look(DEPLOYMENT, (*POD, "serviceAccountName"), "other", NAME),
            Look(ROLE, ("metadata", "name"), NOTHING, f"{GRANT}-workspace-perms", name=f"{GRANT}-workspace-perms"),
            Look(
                ROLE_BINDING,
                ("subjects", 0, "name"),
                "other",
                name=f"other-{hashed(HOME, NAME)}",
            ),
        ],
    ),
    Row(
        "serviceAccount.annotations",
        {"role": "arn"},
        [Look(SERVICE_ACCOUNT, ("metadata", "annotations", "role"), "arn")],
    ),
    Row("serviceAccount.labels", {"team": "dev"}, [Look(SERVICE_ACCOUNT, ("metadata", "labels", "team"), "dev")]),
    Row(
        "rbac.workspacePerms",
        False,
        [
            Look(ROLE, ("rules", 0, "resources"), NOTHING, ["pods"], f"{GRANT}-workspace-perms"),
            Look(ROLE_BINDING, ("subjects", 0, "name"), NOTHING, NAME, GRANT),
        ],
    ),
    Row(
        "rbac.enableDeployments",
        False,
        [Look(ROLE, ("rules", 2, "resources"), NOTHING, ["deployments"], f"{GRANT}-workspace-perms")],
    ),
    Row("rbac.extraRules", [SERVICES], [Look(ROLE, ("rules", 3), SERVICES, name=f"{GRANT}-workspace-perms")]),
    Row(
        "rbac.workspaceNamespaces",
        [AWAY],
        [
            Look(ROLE, ("rules", 0, "resources"), ["pods"], NOTHING, f"{GRANT}-workspace-perms", AWAY),
            Look(ROLE_BINDING, ("subjects", 0, "namespace"), HOME, NOTHING, GRANT, AWAY),
        ],
    ),
    Row(
        "tls.secretNames",
        ["coder-tls"],
        [
            Look(DEPLOYMENT, (*CODER, "env", "CODER_TLS_ENABLE", "value"), "true"),
            Look(DEPLOYMENT, (*CODER, "volumeMounts", 0, "mountPath"), "/etc/ssl/certs/coder/coder-tls"),
            Look(DEPLOYMENT, (*CODER, "ports", 1, "containerPort"), 8443),
            Look(SERVICE, ("spec", "ports", 1, "port"), 443),
        ],
    ),
    Row(
        "certs.secrets",
        [{"name": "ca", "key": "ca.pem"}],
        [
            Look(DEPLOYMENT, (*CODER, "volumeMounts", 0, "mountPath"), "/etc/ssl/certs/ca.crt"),
            Look(DEPLOYMENT, (*POD, "volumes", 0, "secret", "secretName"), "ca"),
        ],
    ),
    Row(
        "readinessProbe.enabled",
        False,
        [Look(DEPLOYMENT, (*CODER, "readinessProbe", "httpGet", "path"), NOTHING, "/healthz")],
    ),
    in_probe("readinessProbe", "initialDelaySeconds", 5, NOTHING),
    in_probe("readinessProbe", "periodSeconds", 7, 10),
    in_probe("readinessProbe", "timeoutSeconds", 3, 1),
    in_probe("readinessProbe", "successThreshold", 2, 1),
    in_probe("readinessProbe", "failureThreshold", 9, 3),
    Row(
        "livenessProbe.enabled",
        True,
        [Look(DEPLOYMENT, (*CODER, "livenessProbe", "httpGet", "path"), "/healthz")],
    ),
    in_probe("livenessProbe", "initialDelaySeconds", 5, NOTHING),
    in_probe("livenessProbe", "periodSeconds", 7, 10),
    in_probe("livenessProbe", "timeoutSeconds", 3, 1),
    in_probe("livenessProbe", "failureThreshold", 9, 3),
    Row(
        "envUseClusterAccessURL",
        False,
        [
            Look(
                DEPLOYMENT,
                (*CODER, "env", "CODER_ACCESS_URL", "value"),
                NOTHING,
                "http://demo.fields.svc.cluster.local",
            )
        ],
    ),
    Row(
        "expose.ingress.host",
        "coder.example.com",
        [Look(INGRESS, ("spec", "rules", 0, "host"), "coder.example.com")],
        remove="expose",
    ),
    in_ingress("wildcardHost", "*.example.com", ("spec", "rules", 1, "host"), "*.example.com"),
    in_ingress("className", "nginx", ("spec", "ingressClassName"), "nginx"),
    in_ingress("annotations", {"a": "b"}, ("metadata", "annotations", "a"), "b"),
    in_ingress("tls.secretName", "cert", ("spec", "tls", 0, "secretName"), "cert"),
    in_ingress(
        "tls.wildcardSecretName", "wild", ("spec", "tls", 0, "secretName"), "wild", wildcardHost="*.example.com"
    ),
    Row(
        "expose.gateway.host",
        "other.example.com",
        [Look(HTTP_ROUTE, ("spec", "hostnames"), ["other.example.com"])],
        given={"expose.gateway.parentRefs": [{"name": "one"}]},
        remove="expose",
    ),
    Row(
        "expose.gateway.parentRefs",
        [{"name": "two", "namespace": "gateways", "sectionName": "https"}],
        [
            Look(
                HTTP_ROUTE,
                ("spec", "parentRefs"),
                [{**PARENT, "name": "two", "namespace": "gateways", "sectionName": "https"}],
            )
        ],
        given={"expose.gateway.host": "coder.example.com"},
        remove="expose",
    ),
    Row(
        "expose.gateway.wildcardHost",
        "*.example.com",
        [Look(HTTP_ROUTE, ("spec", "hostnames", 1), "*.example.com")],
        given=GATEWAY,
    ),
]

FIXED = {"livenessProbe.successThreshold"}
"""Kubernetes allows one value only."""

NEED_CODERD = {
    "operatorAccess.disabled",
    "operatorAccess.generatedTokenSecretName",
    "operatorAccess.tokenSecretRef.name",
    "operatorAccess.tokenSecretRef.key",
    "licenseSecretRef.name",
    "licenseSecretRef.key",
    "health.interval",
    "health.ignore",
}
"""Fields without an effect on children while there is no coderd."""

NEED_AN_UPDATE = {
    "update.strategy",
    "update.drain.timeout",
    "update.drain.onTimeout",
    "update.migrationTimeout",
    "update.windows",
    "update.backup.cnpgClusterRef.name",
    "update.backup.maxAge",
}
"""Fields without an effect on children until the image changes."""

KUBERNETES_OWN = {"affinity", "resources", "securityContext", "podSecurityContext"}
"""Kubernetes types that are passed through unchanged."""
