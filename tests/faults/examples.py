"""Valid values that the schema does not determine: other fields, the API server or coderd restrict them.

Two values per field if possible, so that tests can distinguish them.
"""

from collections.abc import Iterator
from typing import Any

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, WORKSPACE_PROXY
from coder_k8s.kube.objects import Kind, Manifest

from .mutations import Mutation

CODER_URL = "http://coder.test"
"""Another URL of the second coderd."""


def examples(kind: Kind[Any]) -> list[Mutation]:
    """Mutations of a kind in addition to those of its schema."""
    return [
        *_of_pods(),
        *{CONTROL_PLANE: _of_planes, PROVISIONER: _of_provisioners, WORKSPACE_PROXY: _of_proxies}[kind](),
    ]


def _of_pods() -> Iterator[Mutation]:
    for letter in "ab":
        toleration = {"key": letter, "operator": "Exists", "effect": "NoSchedule"}
        yield Mutation("tolerations", "tolerations[].key", [toleration])
        for name in ("limits", "requests"):
            yield Mutation("resources", f"resources.{name}.*", {name: {"cpu": {"a": "1", "b": "2"}[letter]}})
        volume = {"name": "scratch", "emptyDir": {}}
        mount = {"name": "scratch", "mountPath": f"/{letter}"}
        yield Mutation("volumeMounts", "volumeMounts[].mountPath", [mount], {"volumes": [volume]})
        term = {"matchExpressions": [{"key": letter, "operator": "Exists"}]}
        node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        yield Mutation("affinity", "affinity.nodeAffinity", {"nodeAffinity": node})


def _of_planes() -> Iterator[Mutation]:
    for verb in ("get", "list"):
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}
        yield Mutation("rbac", "rbac.extraRules[].verbs[]", {"extraRules": [rule]})
    for secret in ("one-token", "two-token"):
        yield Mutation("envFrom", "envFrom[].secretRef.name", [{"secretRef": {"name": secret}}])
        tls = {"host": "x", "wildcardHost": "*.x", "tls": {"wildcardSecretName": secret}}
        yield Mutation("expose", "expose.ingress.tls.wildcardSecretName, with its host", {"ingress": tls})
    for number in (5, 6):
        for name in ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"):
            yield Mutation("livenessProbe", f"livenessProbe.{name}, enabled", {"enabled": True, name: number})
    for policy in ("ScheduleAnyway", "DoNotSchedule"):
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": policy, "labelSelector": {}}
        yield Mutation("topologySpreadConstraints", "topologySpreadConstraints[].whenUnsatisfiable", [spread])


def _of_provisioners() -> Iterator[Mutation]:
    for interval in ("48h", "72h"):
        yield Mutation("key", "key.rotation.interval", {"rotation": {"interval": interval}})
    credentials = {"credentialsSecretRef": {"name": "one-token"}}
    yield Mutation("bootstrap", "bootstrap.credentialsSecretRef.name", credentials)
    yield Mutation("controlPlaneRef", "controlPlaneRef.name", {"name": "two"})
    yield Mutation("organizationName", "organizationName", "other")


def _of_proxies() -> Iterator[Mutation]:
    yield Mutation("controlPlaneRef", "controlPlaneRef.name", {"name": "two"})
    least: Manifest = {"coderURL": CODER_URL, "credentialsSecretRef": {"name": "two-token"}}
    alone = {"controlPlaneRef": None}
    for value in ("a", "b"):
        for name in ("proxyName", "displayName", "icon", "generatedTokenSecretName"):
            yield Mutation("bootstrap", f"bootstrap.{name}", {**least, name: value}, alone)
        for given in ({"primaryAccessURL": f"http://{value}.test"}, {"primaryAccessURL": CODER_URL, "derpOnly": True}):
            token = {"name": f"{'one' if value == 'a' else 'two'}-token"}
            yield Mutation(
                "proxySessionTokenSecretRef", f"proxySessionTokenSecretRef, {[*given]}", token, alone | given
            )
