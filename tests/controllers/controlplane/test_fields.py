"""Every field of the spec, changed on a live object and removed again: the children follow both times."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import setup
from coder_k8s.controllers.names import hashed
from coder_k8s.dev import gateway_api
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.cache import Change
from coder_k8s.kube.kinds import DEPLOYMENT, HTTP_ROUTE, INGRESS, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Child, Kind, Manifest
from tests.support import eventually
from tests.support.controllers import running
from tests.support.operator import CONFIG, install_crds, write_operator_kubeconfig

from .planes import Observer, manifest, observing

HOME, AWAY, NAME = "fields", "workspaces", "demo"
GRANT = f"{NAME}-{hashed(HOME, NAME)}"

Path_ = tuple[str | int, ...]
POD: Path_ = ("spec", "template", "spec")
CODER: Path_ = (*POD, "containers", 0)


class Absent:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = Absent()


class Look(NamedTuple):
    """What a child has while a field is set, and after it is removed."""

    kind: Kind[Child]
    path: Path_
    then: Any
    after: Any = NOTHING
    name: str = NAME
    namespace: str = HOME


class Row(NamedTuple):
    """A field, a value for it, and where that shows."""

    field: str
    value: Any
    looks: list[Look]
    given: Mapping[str, Any] = MappingProxyType({})
    """Other fields without which this one means nothing."""
    remove: str = ""
    """What to remove in place of a field that its parent cannot be without."""


def in_pod(field: str, value: Any, name: str = "", after: Any = NOTHING) -> Row:
    return Row(field, value, [Look(DEPLOYMENT, (*POD, name or field), value, after)])


def in_container(field: str, value: Any, name: str = "", after: Any = NOTHING) -> Row:
    return Row(field, value, [Look(DEPLOYMENT, (*CODER, name or field), value, after)])


def in_probe(probe: str, field: str, value: int, after: Any) -> Row:
    look = Look(DEPLOYMENT, (*CODER, probe, field), value, after)
    return Row(f"{probe}.{field}", value, [look], given={f"{probe}.enabled": True})


def in_ingress(field: str, value: Any, path: Path_, then: Any, after: Any = NOTHING, **given: Any) -> Row:
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
}
"""What no child shows without a coderd to talk to."""

KUBERNETES_OWN = {"affinity", "resources", "securityContext", "podSecurityContext"}
"""Types of Kubernetes that are passed through whole."""


def leaves(schema: Manifest, path: str = "") -> Iterator[str]:
    """Every field that holds a value of its own."""
    for name, inner in schema["properties"].items():
        if "properties" in inner and name not in KUBERNETES_OWN:
            yield from leaves(inner, f"{path}{name}.")
        else:
            yield path + name


def test_no_field_is_forgotten() -> None:
    crd = yaml.safe_load((CONFIG / "crd" / f"{CONTROL_PLANE.plural}.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = [row.field for row in ROWS]
    assert len(rows) == len(set(rows))
    assert {*rows} | FIXED | NEED_CODERD == set(leaves(schema))


async def test_children_follow_every_field(fresh_cluster: Cluster, tmp_path: Path) -> None:
    install_crds(fresh_cluster)
    fresh_cluster.kubectl("apply", "--server-side", "--filename=-", input=gateway_api.manifests())
    for name, labels in ((HOME, {}), (AWAY, {"coder.com/workspaces-from": HOME})):
        fresh_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    kubeconfig = write_operator_kubeconfig(fresh_cluster, tmp_path / "kubeconfig")
    async with (
        running(kubeconfig, [""], setup.build),
        observing(fresh_cluster.kubeconfig, [HOME, AWAY]) as observer,
        rolling_out(observer),
    ):
        await observer.client.create(CONTROL_PLANE, manifest(HOME, NAME))
        await eventually(lambda: {kind for kind, _ in observer.children()} == BASICS)
        before = state(observer)
        for row in ROWS:
            await drive(observer, row)
            await eventually(partial(settled, observer, row, before))


BASICS = {kind.name for kind in (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)}


async def drive(observer: Observer, row: Row) -> None:
    """Set a field and remove it; the fields that it needs stay until the end."""
    for look in row.looks:
        assert find(observer, look) != look.then, f"{row.field} would show nothing"
    await observer.change(HOME, NAME, **spec({**row.given, row.field: row.value}))
    for look in row.looks:
        await eventually(partial(shows, observer, row, look, look.then))
    await observer.change(HOME, NAME, **spec({row.remove or row.field: None}))
    for look in row.looks:
        await eventually(partial(shows, observer, row, look, look.after))
    await observer.change(HOME, NAME, **spec({name.split(".")[0]: None for name in row.given}))


def shows(observer: Observer, row: Row, look: Look, expected: Any) -> bool:
    assert (row.field, look.path, find(observer, look)) == (row.field, look.path, expected)
    return True


def find(observer: Observer, look: Look) -> Any:
    """The value at a path; an item of a list is known by its place or by its name."""
    if not observer.has(look.kind, look.namespace, look.name):
        return NOTHING
    value: Any = observer.get(look.kind, look.namespace, look.name).manifest
    for step in look.path:
        if isinstance(value, list):
            value = dict(enumerate(value)) if isinstance(step, int) else {item["name"]: item for item in value}
        if step not in value:
            return NOTHING
        value = value[step]
    return value


def spec(fields: dict[str, Any]) -> Manifest:
    """A patch from dotted names."""
    patch: Manifest = {}
    for field, value in fields.items():
        *parents, last = field.split(".")
        place = patch
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return patch


def state(observer: Observer) -> set[tuple[str, str]]:
    """Everything about the children that the operator decides, marks included, as paths with their values."""
    return {
        entry
        for (kind, key), child in observer.children().items()
        for entry in flat(child.manifest, f"{kind} {key}")
        if not VOLATILE.search(entry[0])
    }


VOLATILE = re.compile(r"\.(metadata\.(uid|resourceVersion|generation|creationTimestamp)|status|apiVersion|kind)\b")


def flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield path, repr(value)
    for name, item in inner:
        yield from flat(item, f"{path}.{name}")


def settled(observer: Observer, row: Row, before: set[tuple[str, str]]) -> bool:
    now = state(observer)
    assert (row.field, now - before, before - now) == (row.field, set(), set())
    return True


@asynccontextmanager
async def rolling_out(observer: Observer) -> AsyncIterator[None]:
    """Let every Deployment be rolled out as soon as it changes: no pods run here."""
    news = asyncio.Queue[Child]()

    def listen(change: Change[Child]) -> None:
        if change.new is not None:
            news.put_nowait(change.new)

    async def roll_out() -> None:
        while True:
            deployment = await news.get()
            wanted = deployment.manifest["spec"]["replicas"]
            counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), wanted)
            status = {"observedGeneration": deployment.metadata.generation, **counts}
            if deployment.manifest.get("status") != status:
                await observer.client.patch_status(DEPLOYMENT, deployment, status)

    observer.listen(DEPLOYMENT, listen)
    task = asyncio.create_task(roll_out())
    try:
        yield
    finally:
        task.cancel()
