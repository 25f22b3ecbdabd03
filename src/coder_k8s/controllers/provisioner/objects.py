"""Builds the children of a CoderProvisioner."""

from coder_k8s.api import PROVISIONER, CoderControlPlane, CoderProvisioner
from coder_k8s.controllers.images import pull_policy
from coder_k8s.controllers.labels import labels
from coder_k8s.controllers.labels import metadata as owned
from coder_k8s.controllers.lists import dedupe_by_name
from coder_k8s.controllers.names import NAME_LIMIT, derived, fnv1a32
from coder_k8s.controllers.podspec import container_fields, pod_fields
from coder_k8s.controllers.secrets import encoded
from coder_k8s.controllers.urls import api_url
from coder_k8s.kube.objects import Manifest, Unstructured

from .protection import BUSY

NAME = "coder-provisioner"
CONTAINER = "provisioner"
CHECKSUM = "checksum/provisioner-key"
ROTATE = "coder.com/rotate-key"
ORIGIN = "coder.com/control-plane"
MIN_READY_SECONDS = 5
"""A daemon has no readiness probe; after this time it is connected, and an older pod may be deleted."""


def metadata(provisioner: CoderProvisioner, name: str) -> Manifest:
    return owned(PROVISIONER, provisioner, NAME, name)


def deployment_name(provisioner: CoderProvisioner) -> str:
    """The name of the Deployment, and in its namespace of the Role and the RoleBinding."""
    return derived(provisioner.metadata.name, prefix="provisioner-")


def service_account_name(provisioner: CoderProvisioner) -> str:
    return derived(provisioner.metadata.name, suffix="-provisioner")


def secret_name(provisioner: CoderProvisioner) -> str:
    return provisioner.spec.key.secret_name or derived(
        provisioner.metadata.name, suffix="-provisioner-key", limit=NAME_LIMIT
    )


def service_account(provisioner: CoderProvisioner) -> Manifest:
    return {"metadata": metadata(provisioner, service_account_name(provisioner))}


def secret(provisioner: CoderProvisioner, key: str, origin: str, request: str) -> Manifest:
    """The Secret of the key, annotated with the control plane that created it and the rotation request it fulfills."""
    annotated = metadata(provisioner, secret_name(provisioner))
    annotated["annotations"] = {ORIGIN: origin, **({ROTATE: request} if request else {})}
    return {"metadata": annotated, "type": "Opaque", "data": {provisioner.spec.key.secret_key: encoded(key)}}


def disruption_budget(provisioner: CoderProvisioner) -> Manifest:
    """The budget that rejects the eviction of pods with a running build."""
    return {
        "metadata": metadata(provisioner, deployment_name(provisioner)),
        "spec": {
            "maxUnavailable": 0,
            "selector": {"matchLabels": {**labels(NAME, provisioner), BUSY: "true"}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def deployment(
    provisioner: CoderProvisioner, plane: CoderControlPlane, key: str, image: str, replicas: int
) -> Manifest:
    own = labels(NAME, provisioner)
    return {
        "metadata": metadata(provisioner, deployment_name(provisioner)),
        "spec": {
            "replicas": replicas,
            "minReadySeconds": MIN_READY_SECONDS,
            "selector": {"matchLabels": own},
            "template": {
                "metadata": {"labels": own, "annotations": {CHECKSUM: fnv1a32(key.encode())}},
                "spec": _pod(provisioner, plane, image),
            },
        },
    }


def checksum(deployment: Unstructured) -> str:
    """The checksum of the key that the pods of a Deployment use."""
    annotations: dict[str, str] = deployment.manifest["spec"]["template"].get("metadata", {}).get("annotations", {})
    return annotations.get(CHECKSUM, "")


def _pod(provisioner: CoderProvisioner, plane: CoderControlPlane, image: str) -> Manifest:
    spec = provisioner.spec
    return {
        "serviceAccountName": service_account_name(provisioner),
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "containers": [_container(provisioner, plane, image)],
        **pod_fields(spec),
    }


def _container(provisioner: CoderProvisioner, plane: CoderControlPlane, image: str) -> Manifest:
    spec = provisioner.spec
    reference = {"name": secret_name(provisioner), "key": spec.key.secret_key}
    env: list[Manifest] = [
        {"name": "CODER_URL", "value": api_url(plane)},
        {"name": "CODER_PROVISIONER_DAEMON_KEY", "valueFrom": {"secretKeyRef": reference}},
        *spec.extra_env,
    ]
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": pull_policy(image),
        "command": ["coder"],
        "args": ["provisioner", "start", *spec.extra_args],
        "env": dedupe_by_name(env),
        **container_fields(spec),
    }
