"""The fields of a pod template that users set; fields without a value are left to the defaults of Kubernetes."""

from typing import Any

from coder_k8s.api.shared import Pods
from coder_k8s.kube.objects import Manifest

from .lists import dedupe_by_name


def pod_fields(spec: Pods, **more: Any) -> Manifest:
    """The fields of the pod; `more` are those of one kind."""
    return set_fields(
        imagePullSecrets=dedupe_by_name(spec.image_pull_secrets),
        nodeSelector=spec.node_selector,
        tolerations=spec.tolerations,
        affinity=spec.affinity,
        securityContext=spec.pod_security_context,
        **({"volumes": spec.volumes} | more),
    )


def container_fields(spec: Pods, **more: Any) -> Manifest:
    """The fields of the container; `more` are those of one kind."""
    return set_fields(
        resources=spec.resources,
        securityContext=spec.security_context,
        **({"volumeMounts": spec.volume_mounts} | more),
    )


def set_fields(**fields: Any) -> Manifest:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value}
