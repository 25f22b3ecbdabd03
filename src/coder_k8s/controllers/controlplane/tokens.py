"""The Secret with the token that the operator creates for a control plane."""

from coder_k8s.api import CoderControlPlane
from coder_k8s.api.shared import SecretKey
from coder_k8s.controllers.names import derived
from coder_k8s.controllers.secrets import encoded
from coder_k8s.kube.objects import Manifest

from .objects import metadata

TOKEN = "token"  # noqa: S105 - a name, not a token


def generates_token(plane: CoderControlPlane) -> bool:
    """Whether the operator creates a token for this control plane."""
    access = plane.spec.operator_access
    return not access.disabled and access.token_secret_ref is None


def secret_name(plane: CoderControlPlane) -> str:
    return plane.spec.operator_access.generated_token_secret_name or derived(
        plane.metadata.name, suffix="-operator-token"
    )


def secret_reference(plane: CoderControlPlane) -> SecretKey:
    """Where the operator reads its token."""
    given = plane.spec.operator_access.token_secret_ref
    return SecretKey(name=given.name, key=given.key) if given else SecretKey(name=secret_name(plane), key=TOKEN)


def secret(plane: CoderControlPlane, token: str) -> Manifest:
    return {
        "metadata": metadata(plane, secret_name(plane)),
        "type": "Opaque",
        "data": {TOKEN: encoded(token)},
    }
