"""The objects of a control plane that have keys, registrations or templates to delete in its coderd."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec

from coder_k8s.api import PROVISIONER, TEMPLATE, WORKSPACE_PROXY, CoderProvisioner, CoderTemplate, CoderWorkspaceProxy
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key, Kind, Object
from coder_k8s.kube.rules import READ, Rule

from .cleanup import PROVISIONER_FINALIZER, PROXY_FINALIZER, TEMPLATE_FINALIZER

RULES = (Rule((PROVISIONER.group,), (PROVISIONER.plural, WORKSPACE_PROXY.plural, TEMPLATE.plural), READ),)

T = TypeVar("T", bound=Object)


class Dependent(msgspec.Struct, frozen=True):
    """An object that has something to delete at a control plane."""

    name: str
    deleting: bool


def planes_of_provisioner(provisioner: CoderProvisioner) -> list[Key]:
    """The control planes that it names, or where it has keys."""
    return _keys(provisioner, {provisioner.spec.control_plane_ref.name, *_provisioner_records(provisioner)})


def planes_of_proxy(proxy: CoderWorkspaceProxy) -> list[Key]:
    """The control planes that it names, or where it is registered."""
    named = proxy.spec.control_plane_ref
    return _keys(proxy, {named.name if named else "", *_proxy_records(proxy)})


def planes_of_template(template: CoderTemplate) -> list[Key]:
    """The control plane that has it."""
    return _keys(template, _template_records(template))


def planes_to_delete_from(template: CoderTemplate) -> list[Key]:
    """The control plane that has it, if it is deleted there together with the object."""
    return planes_of_template(template) if TEMPLATE_FINALIZER in template.metadata.finalizers else []


async def remaining(client: Client, plane: Key) -> list[Dependent]:
    """The objects that have a key, a registration or a template to delete in the coderd of a control plane.

    They are listed by the API server: a cache may be outdated, and a key that is missed here stays in Coder.
    """
    return [
        *await _with_records(client, PROVISIONER, plane, PROVISIONER_FINALIZER, _provisioner_records),
        *await _with_records(client, WORKSPACE_PROXY, plane, PROXY_FINALIZER, _proxy_records),
        *await _with_records(client, TEMPLATE, plane, TEMPLATE_FINALIZER, _template_records),
    ]


async def _with_records(
    client: Client, kind: Kind[T], plane: Key, finalizer: str, records: Callable[[T], Iterable[str]]
) -> list[Dependent]:
    found = []
    with suppress(errors.NotFound):  # a kind that is not installed has no objects
        async for page in client.list(kind, plane.namespace):
            for item in page.items:
                # An object that cannot be decoded must not block a deletion.
                with suppress(ValueError, TypeError, KeyError):
                    each = kind.type.decode(item)
                    if finalizer in each.metadata.finalizers and plane.name in records(each):
                        found.append(Dependent(f"{kind.name} {each.metadata.name}", each.deleting))
    return found


def _provisioner_records(provisioner: CoderProvisioner) -> list[str]:
    """The names of the control planes where it has keys."""
    status = provisioner.status
    return [status.control_plane_ref_name, *(key.control_plane_ref_name for key in status.retiring_keys)]


def _proxy_records(proxy: CoderWorkspaceProxy) -> list[str]:
    """The names of the control planes where it is registered."""
    status = proxy.status
    return [status.control_plane_ref_name, *(proxy.control_plane_ref_name for proxy in status.retiring_proxies)]


def _template_records(template: CoderTemplate) -> list[str]:
    return [template.spec.control_plane_ref.name]


def _keys(owner: Object, names: Iterable[str]) -> list[Key]:
    return [Key(owner.metadata.namespace, name) for name in names if name]
