"""Changes that rightly show nowhere, or look like another; a run of everything must need each reason."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .mutations import Mutation


def is_bare(value: Any) -> bool:
    """Whether it is empty, or an object of nothing but that."""
    return all(map(is_bare, value.values())) if isinstance(value, dict) else value in ("", [])


class Exemption(NamedTuple):
    """A reason, and the fields and values that it is for."""

    why: str
    path: str
    applies: Callable[[Any], bool] = lambda value: True


_SHALLOW = r"(?!(affinity|securityContext)\.|podSecurityContext\.\w+Options)\w+(\.\w+)?"
"""Fields of ours; deeper in objects of Kubernetes, which are passed on as they are, nothing is something."""

INVISIBLE = (
    Exemption("nothing in it is as much as no field", _SHALLOW, is_bare),
    Exemption("the probe is off", r"livenessProbe\.(?!enabled$)\w+"),
    Exemption("coderd keeps no tag without a value", r"tags\.\*", lambda value: value == {"a": ""}),
    Exemption("the key is not that old yet", r"key\.rotation\.interval"),
)
INDISTINCT = (
    Exemption("this cluster has no Gateway API", r"expose\.gateway\..*"),
    Exemption("pods of this API server have no such volumes", r"volumes.*\.(clusterTrustBundle|podCertificate)\..*"),
    Exemption("a quantity is the same as text", r"volumes\[\]\..*", lambda value: "'1'" in repr(value)),
    Exemption("there is no wildcard host for the certificate", r"expose\.ingress\.tls\.wildcardSecretName"),
)


def reason(exemptions: Iterable[Exemption], mutation: Mutation) -> str:
    """Why this change is one of them; empty when it is none."""
    found = (each.why for each in exemptions if re.fullmatch(each.path, mutation.path) and each.applies(mutation.value))
    return next(found, "")
