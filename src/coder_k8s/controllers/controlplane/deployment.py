"""The Deployment of a CoderControlPlane."""

from collections import Counter
from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from coder_k8s.api import CoderControlPlane
from coder_k8s.api.probes import Probe
from coder_k8s.api.shared import seconds
from coder_k8s.controllers.images import pull_policy
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.lists import dedupe_by_name
from coder_k8s.controllers.names import LABEL_LIMIT, hashed
from coder_k8s.controllers.podspec import container_fields, pod_fields
from coder_k8s.controllers.urls import access_url, has_tls
from coder_k8s.kube.comparison import contains
from coder_k8s.kube.objects import Manifest

from .objects import HTTP_PORT, HTTPS_PORT, NAME, metadata, service_account_name

CHECKSUM = "coder.com/config-checksum"
ACCESS_URL = "CODER_ACCESS_URL"
CONTAINER = "coder"
RECREATE = "Recreate"
DEFAULT_GRACE = 30
"""Seconds; the default of Kubernetes for the grace period of a pod."""
TLS_FOLDER = "/etc/ssl/certs/coder"
CA_FOLDER = "/etc/ssl/certs"


class PodInputs(NamedTuple):
    """Inputs of the pod template besides the spec."""

    inject_access_url: bool = True
    checksum: str = ""
    live: Mapping[str, Any] = {}
    """The pod template of the live Deployment; empty if there is none."""


def deployment(plane: CoderControlPlane, inputs: PodInputs, *, recreate: bool = False) -> Manifest:
    """The Deployment; with `recreate`, a new pod starts only when all old ones are gone."""
    template: Manifest = {"metadata": {"labels": labels(NAME, plane)}, "spec": pod(plane, inputs)}
    if inputs.checksum:
        template["metadata"]["annotations"] = {CHECKSUM: inputs.checksum}
    _add_start_and_stop(template, plane, inputs.live)
    return {
        "metadata": metadata(plane),
        "spec": {
            "replicas": plane.spec.replicas,
            "selector": {"matchLabels": labels(NAME, plane)},
            **({"strategy": {"type": RECREATE}} if recreate else {}),
            "template": template,
        },
    }


def _add_start_and_stop(template: Manifest, plane: CoderControlPlane, live: Mapping[str, Any]) -> None:
    """Add the grace period and the startup probe. They never change a pod template alone.

    | live pod template                  | grace period                         | startup probe       |
    |------------------------------------|--------------------------------------|---------------------|
    | none, or differs in another field  | the spec's                           | the spec's          |
    | is the same otherwise              | the spec's, unless it is the default of Kubernetes | does not change |

    Only pods with a liveness probe have a startup probe: it shields a long migration from it.
    """
    same = bool(live) and contains(live, template)
    [container] = template["spec"]["containers"]
    if not same or live["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE) != DEFAULT_GRACE:
        template["spec"]["terminationGracePeriodSeconds"] = plane.spec.termination_grace_period_seconds
    if not plane.spec.liveness_probe.enabled:
        return
    probe = _live_startup_probe(live) if same else _startup_probe(plane)
    if probe:
        container["startupProbe"] = probe


def _live_startup_probe(live: Mapping[str, Any]) -> Manifest:
    containers = live["spec"]["containers"]
    return next((each.get("startupProbe") or {} for each in containers if each["name"] == CONTAINER), {})


def _startup_probe(plane: CoderControlPlane) -> Manifest:
    """A probe that fails only after the time that a migration may take."""
    probe = _probe(plane.spec.liveness_probe)
    attempts = seconds(plane.spec.update.migration_timeout) / probe["periodSeconds"]
    return {**probe, "initialDelaySeconds": 0, "failureThreshold": max(1, ceil(attempts))}


def defines(plane: CoderControlPlane, variable: str) -> bool:
    """Whether the spec itself sets an environment variable."""
    return any(entry["name"] == variable for entry in plane.spec.extra_env)


def checksum_in(template: Mapping[str, Any]) -> str:
    """The checksum of the environment that a pod template has; empty if it has none."""
    found: str = template.get("metadata", {}).get("annotations", {}).get(CHECKSUM, "")
    return found


def has_variable(template: Mapping[str, Any], name: str) -> bool:
    """Whether the first container of a pod template sets an environment variable."""
    containers = template.get("spec", {}).get("containers", [])
    return any(entry["name"] == name for container in containers[:1] for entry in container.get("env", []))


def pod(plane: CoderControlPlane, inputs: PodInputs) -> Manifest:
    """The pods of the Deployment, without what `_add_start_and_stop` adds."""
    spec = plane.spec
    volumes = [*_tls_volumes(plane), *_ca_volumes(plane), *spec.volumes]
    return {
        "serviceAccountName": service_account_name(plane),
        "containers": [_container(plane, inputs)],
        **pod_fields(spec, volumes=volumes, topologySpreadConstraints=spec.topology_spread_constraints),
    }


def _container(plane: CoderControlPlane, inputs: PodInputs) -> Manifest:
    spec = plane.spec
    ports = [_port("http", HTTP_PORT), *([_port("https", HTTPS_PORT)] if has_tls(plane) else [])]
    return {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": pull_policy(spec.image),
        "args": [f"--http-address=0.0.0.0:{HTTP_PORT}", *spec.extra_args],
        "env": _env(plane, inputs),
        "ports": ports,
        **container_fields(
            spec,
            envFrom=spec.env_from,
            volumeMounts=[*_tls_mounts(plane), *_ca_mounts(plane), *spec.volume_mounts],
            readinessProbe=_probe(spec.readiness_probe),
            livenessProbe=_probe(spec.liveness_probe),
        ),
    }


def _env(plane: CoderControlPlane, inputs: PodInputs) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = [
        {"name": "KUBE_POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        _variable("CODER_DERP_SERVER_RELAY_URL", f"http://$(KUBE_POD_IP):{HTTP_PORT}"),
    ]
    if inputs.inject_access_url:
        env.append(_variable(ACCESS_URL, access_url(plane)))
    if folders := [f"{TLS_FOLDER}/{secret}" for secret in _tls_secrets(plane)]:
        env += [
            _variable("CODER_TLS_ENABLE", "true"),
            _variable("CODER_TLS_ADDRESS", f"0.0.0.0:{HTTPS_PORT}"),
            _variable("CODER_TLS_CERT_FILE", ",".join(f"{folder}/tls.crt" for folder in folders)),
            _variable("CODER_TLS_KEY_FILE", ",".join(f"{folder}/tls.key" for folder in folders)),
        ]
    return dedupe_by_name([*env, *plane.spec.extra_env])


def _tls_secrets(plane: CoderControlPlane) -> list[str]:
    return list(dict.fromkeys(plane.spec.tls.secret_names))


def _tls_volumes(plane: CoderControlPlane) -> list[dict[str, Any]]:
    return [_secret_volume("tls", secret) for secret in _tls_secrets(plane)]


def _tls_mounts(plane: CoderControlPlane) -> list[dict[str, Any]]:
    return [
        {"name": volume_name("tls", secret), "mountPath": f"{TLS_FOLDER}/{secret}", "readOnly": True}
        for secret in _tls_secrets(plane)
    ]


def _ca_volumes(plane: CoderControlPlane) -> list[dict[str, Any]]:
    names = dict.fromkeys(secret.name for secret in plane.spec.certs.secrets)
    return [_secret_volume("ca-cert", name) for name in names]


def _ca_mounts(plane: CoderControlPlane) -> list[dict[str, Any]]:
    """One file per certificate; an entry that is listed twice is mounted once.

    | entries                                      | file                              |
    |----------------------------------------------|-----------------------------------|
    | the only entry that names its Secret         | `<secret>.crt`                    |
    | one of several, also if they are equal       | `<secret>-<key>.crt`              |
    | a name that ends with `.crt`                 | has it once                       |
    | a second file of the same name               | ends with `-2.crt`, then `-3.crt` |
    """
    of_secret = Counter(entry.name for entry in plane.spec.certs.secrets)
    mounts: dict[str, dict[str, Any]] = {}
    for entry in dict.fromkeys(plane.spec.certs.secrets):
        stem = entry.name if of_secret[entry.name] == 1 else f"{entry.name}-{entry.key}"
        path = plain = f"{CA_FOLDER}/{stem.removesuffix('.crt')}"
        number = 1
        while path in mounts:
            number += 1
            path = f"{plain}-{number}"
        mounts[path] = {
            "name": volume_name("ca-cert", entry.name),
            "mountPath": f"{path}.crt",
            "subPath": entry.key,
            "readOnly": True,
        }
    return list(mounts.values())


def volume_name(prefix: str, secret: str) -> str:
    """The name of a volume for a Secret: the name of a Secret may have dots and be longer."""
    plain = f"{prefix}-{secret}"
    if "." not in secret and len(plain) <= LABEL_LIMIT:
        return plain
    suffix = hashed(prefix, secret)
    return f"{plain.replace('.', '-')[: LABEL_LIMIT - len(suffix) - 1].rstrip('-')}-{suffix}"


def _secret_volume(prefix: str, secret: str) -> dict[str, Any]:
    return {"name": volume_name(prefix, secret), "secret": {"secretName": secret}}


def _probe(probe: Probe) -> Manifest:
    if not probe.enabled:
        return {}
    return {
        "httpGet": {"path": "/healthz", "port": "http"},
        "initialDelaySeconds": probe.initial_delay_seconds,
        "periodSeconds": probe.period_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "successThreshold": probe.success_threshold,
        "failureThreshold": probe.failure_threshold,
    }


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _variable(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}
