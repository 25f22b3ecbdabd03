"""Whether the operator's ServiceAccount has the permissions that the operator needs."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from coder_k8s.console.operator import Operator
from coder_k8s.console.session import Session
from coder_k8s.kube import errors
from coder_k8s.kube.rules import Rule
from coder_k8s.manifests import rbac

from .result import FAILED, OK, SKIPPED, Result, summary

NAME = "permissions"
PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CONCURRENCY = 10


class Permission(NamedTuple):
    """A verb on a resource, in a namespace or in all namespaces."""

    namespace: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}" + (f" in namespace {self.namespace}" if self.namespace else "")


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


async def check_permissions(session: Session, operator: Operator) -> Result:
    watched = [name for part in operator.setting("watch-namespaces").split(",") if (name := part.strip())]
    wanted = sorted(set(required(rbac.declared(), operator.namespace, watched)))
    account = operator.service_account or rbac.NAME
    user = f"system:serviceaccount:{operator.namespace}:{account}"
    limit = asyncio.Semaphore(CONCURRENCY)

    async def allowed(permission: Permission) -> bool:
        async with limit:
            return await _review(session, user, permission)

    try:
        allows = [await allowed(wanted[0]), *await asyncio.gather(*map(allowed, wanted[1:]))]
    except errors.Forbidden:
        return Result(NAME, SKIPPED, "You do not have permission to create subjectaccessreviews")
    except errors.KubeError as error:
        return Result(NAME, FAILED, f"Cannot check the permissions of the operator: {error}")
    denied = [str(permission) for permission, allow in zip(wanted, allows, strict=True) if not allow]
    title = f"ServiceAccount {operator.namespace}/{account}"
    if denied:
        return Result(NAME, FAILED, f"{title} cannot {summary(denied)}; upgrade the chart, or apply config/rbac")
    return Result(NAME, OK, f"{title} has all {len(wanted)} permissions")


def required(rules: dict[str, tuple[Rule, ...]], operator_namespace: str, watched: list[str]) -> Iterator[Permission]:
    """Yield the permissions of the operator. With watched namespaces, it needs no cluster-scoped ones."""
    for module, found in rules.items():
        if module == rbac.ELECTION:
            yield from _expanded(found, [operator_namespace])
        else:
            yield from _expanded((rule for rule in found if not (watched and rule.cluster_scoped)), watched or [""])


def _expanded(rules: Iterable[Rule], namespaces: list[str]) -> Iterator[Permission]:
    for rule in rules:
        for namespace in namespaces:
            for group in rule.groups:
                for resource in rule.resources:
                    yield from (Permission(namespace, group, resource, verb) for verb in rule.verbs)


async def _review(session: Session, user: str, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "namespace": permission.namespace,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "verb": permission.verb,
    }
    body = msgspec.json.encode({"spec": {"user": user, "resourceAttributes": attributes}})
    response = await session.http.send("POST", PATH, {}, {"Content-Type": "application/json"}, body)
    return msgspec.json.decode(response, type=_Review).status.allowed
