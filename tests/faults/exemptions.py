"""Changes that correctly have no effect, or the same effect as another; a complete run must need each exemption."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .mutations import Mutation


def is_empty(value: Any) -> bool:
    """Whether a value is empty, or an object with only empty values."""
    return all(map(is_empty, value.values())) if isinstance(value, dict) else value in ("", [])


class Exemption(NamedTuple):
    """A reason, and the fields and values to which it applies."""

    why: str
    path: str
    applies: Callable[[Any], bool] = lambda value: True


_SHALLOW = r"(?!(affinity|securityContext)\.|podSecurityContext\.\w+Options)\w+(\.\w+)?"
"""Fields of the custom resources. In embedded Kubernetes objects, which are copied, empty values have an effect."""

NO_EFFECT = (
    Exemption("an empty value is equivalent to an absent field", _SHALLOW, is_empty),
    Exemption("the probe is disabled", r"livenessProbe\.(?!enabled$)\w+"),
    Exemption("coderd stores no tag without a value", r"tags\.\*", lambda value: value == {"a": ""}),
    Exemption("the key is not that old yet", r"key\.rotation\.interval"),
)
SAME_EFFECT = (
    Exemption("this cluster has no Gateway API", r"expose\.gateway\..*"),
    Exemption("pods of this API server have no such volumes", r"volumes.*\.(clusterTrustBundle|podCertificate)\..*"),
    Exemption("a quantity may be a string", r"volumes\[\]\..*", lambda value: "'1'" in repr(value)),
    Exemption("there is no wildcard host for the certificate", r"expose\.ingress\.tls\.wildcardSecretName"),
)


def reason(exemptions: Iterable[Exemption], mutation: Mutation) -> str:
    """The reason of the exemption that applies to a change; empty if none does."""
    found = (each.why for each in exemptions if re.fullmatch(each.path, mutation.path) and each.applies(mutation.value))
    return next(found, "")
