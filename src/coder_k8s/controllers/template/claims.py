"""Which object manages a template, if several describe the same one."""

from collections.abc import Iterable
from datetime import UTC, datetime

from coder_k8s.api.template import CoderTemplate

from .identity import template_name


def other_claim(template: CoderTemplate, objects: Iterable[CoderTemplate]) -> str:
    """The name of another object that manages the same template in Coder; empty if there is none.

    Two objects describe the same template if both are for one organization of one control plane, by its name or its ID,
    and have the name of the template or its ID in common. One that has recorded the template goes before one that has
    not, then the older one goes first. An object that only observes manages nothing.
    """
    if template.spec.management_policy == "Observe":
        return ""
    first = [
        each
        for each in objects
        if _is_same_organization(each, template)
        and each.metadata.uid != template.metadata.uid
        and each.spec.management_policy == "Full"
        and _is_same(each, template)
        and _rank(each) < _rank(template)
    ]
    return min(first, key=_rank).metadata.name if first else ""


def _is_same(one: CoderTemplate, other: CoderTemplate) -> bool:
    if template_name(one).lower() == template_name(other).lower():
        return True
    return bool(one.status.template_id) and one.status.template_id == other.status.template_id


def _is_same_organization(one: CoderTemplate, other: CoderTemplate) -> bool:
    """Whether both are for one organization; one of them may be for the name `default`, the other for its own name."""
    if (one.metadata.namespace, one.spec.control_plane_ref) != (other.metadata.namespace, other.spec.control_plane_ref):
        return False
    if one.spec.organization_name == other.spec.organization_name:
        return True
    return bool(one.status.organization_id) and one.status.organization_id == other.status.organization_id


def _rank(template: CoderTemplate) -> tuple[bool, datetime, str]:
    created = template.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
    return not template.status.template_id, created, template.metadata.uid
