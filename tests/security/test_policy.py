"""Users cannot grant permissions that they lack through a control plane or provisioner, on a real API server."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import pytest_asyncio

from coder_k8s.api import CONTROL_PLANE, PROVISIONER
from coder_k8s.controllers.controlplane.rbac import ROLES
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key
from coder_k8s.manifests.policy import CHECKS, LIMIT, POLICIES
from tests.conftest import one_worker_at_a_time
from tests.controllers.controlplane.planes import plane
from tests.controllers.workspace_owners import PLANE, PROVISIONERS, Subject, both_kinds
from tests.security.users import client_of, create_user, post, rule
from tests.support import eventually
from tests.support.installation import CONFIG

pytestmark = pytest.mark.asyncio(loop_scope="module")

BINDING = rule("rolebindings", "create", "rbac.authorization.k8s.io")
WORKSPACES: list[dict[str, Any]] = ROLES.rules(plane())
"""The rules that the operator grants in a workspace namespace."""
HELD = [
    rule("configmaps", "get list"),
    rule("pods/exec", "create"),
    rule("secrets", "get", names=("one", "two")),
    rule("widgets", "*", "example.com"),
    rule("*", "get", "everything.example.com"),
    rule("*", "*", "*", names=("alone",)),
]


class Users(NamedTuple):
    """Two authors in the same namespace, one with more permissions, and the administrator."""

    namespace: str
    other: str
    """A namespace in which the first author can bind Roles and run workspaces, and has the same permissions."""
    foreign: str
    """A namespace in which the first author can only bind Roles and run workspaces."""
    bare: str
    """A namespace in which the first author can only bind Roles."""
    holder: Client
    limited: Client
    admin: Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def users(cluster: ClusterAccess, crds: None) -> AsyncIterator[Users]:
    with one_worker_at_a_time(cluster):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", CONFIG / "policy")
    places = own, other, foreign, bare = [make_namespace(cluster, part) for part in ("own", "other", "foreign", "bare")]
    workspaces = [BINDING, *WORKSPACES]
    rights = dict(zip(places, [HELD, [*workspaces, *HELD], workspaces, [BINDING]], strict=True))
    holder, limited = create_user(cluster, "holder", own, rights), create_user(cluster, "limited", own, {})
    async with client_of(holder) as first, client_of(limited) as second, client_of(cluster.kubeconfig) as admin:
        made = Users(own, other, foreign, bare, first, second, admin)
        for part in range(POLICIES):
            await eventually(partial(_checked_at, made, part * CHECKS * 2), 30)
        yield made


def make_namespace(cluster: ClusterAccess, part: str) -> str:
    name = f"test-{part}-{uuid4().hex[:8]}"
    post(cluster, "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


async def _checked_at(users: Users, at: int) -> bool:
    """Whether the policy checks the permission at this index of the list."""
    names = tuple(f"name-{each}" for each in range(at))
    held = [rule("configmaps", "get", names=names)] if names else []
    return "you lack" in await rejection(users.holder, users, rules=[*held, rule("secrets", "get")])


async def make(client: Client, users: Users, subject: Subject = PLANE, **fields: Any) -> str:
    name = f"object-{uuid4().hex[:12]}"
    spec = subject.spec(**fields) | ({} if subject is PLANE else {"controlPlaneRef": {"name": "demo"}})
    await client.create(subject.kind, {"metadata": {"namespace": users.namespace, "name": name}, "spec": spec})
    return name


async def rejection(client: Client, users: Users, subject: Subject = PLANE, **fields: Any) -> str:
    """The message of the policy; empty if the object is accepted."""
    try:
        await make(client, users, subject, **fields)
    except errors.Invalid as refused:
        return refused.message
    return ""


async def accepted(client: Client, users: Users, subject: Subject = PLANE, **fields: Any) -> str:
    """Create an object; retries until the API server has observed new permissions of the author."""

    async def check() -> str:
        try:
            return await make(client, users, subject, **fields)
        except errors.Invalid as refused:
            raise AssertionError(refused.message) from refused

    return await eventually(check, 30)


@pytest.mark.parametrize("asked", HELD, ids=str)
async def test_held_permissions_can_be_granted(users: Users, asked: dict[str, Any]) -> None:
    assert await rejection(users.holder, users, rules=[asked]) == ""
    assert "you lack" in await rejection(users.limited, users, rules=[asked])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (rule("configmaps", "delete"), "delete configmaps in namespace"),
        (rule("configmaps", "*"), "* configmaps in namespace"),
        (rule("configmaps", "get", "apps"), "get configmaps.apps in namespace"),
        (rule("configmaps", "get", "*"), "get configmaps.* in namespace"),
        (rule("*", "get"), "get * in namespace"),
        (rule("*/exec", "create"), "create */exec in namespace"),
        (rule("pods", "create"), "create pods in namespace"),
        (rule("pods/log", "create"), "create pods/log in namespace"),
        (rule("secrets", "get"), "get secrets in namespace"),
        (rule("secrets", "get", names=("two", "three")), "get secrets three in namespace"),
        (rule("secrets", "list", names=("one",)), "list secrets one in namespace"),
        (rule("*", "*", "*"), "* *.* in namespace"),
        (
            {"apiGroups": ["", "apps"], "resources": ["configmaps"], "verbs": ["get"]},
            "get configmaps.apps in namespace",
        ),
        ({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, "cannot grant nonResourceURLs"),
        (rule("configmaps", "get", names=("one two",)), "must not contain a space or a comma"),
        (rule("configmaps", "get", names=("one,two",)), "must not contain a space or a comma"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_missing_permissions_cannot_be_granted(users: Users, asked: dict[str, Any], expected: str) -> None:
    assert expected in await rejection(users.holder, users, rules=[HELD[0], asked])
    assert expected in await rejection(users.holder, users, rules=[asked], enabled=False)


async def test_every_permission_of_a_long_list_is_checked(users: Users) -> None:
    ends = [at for first in range(0, LIMIT, CHECKS * 2) for at in (first, first + CHECKS * 2 - 1)]
    for at in (*ends, 1, 2):
        assert await _checked_at(users, at), at


async def test_a_longer_list_is_added_in_steps(users: Users) -> None:
    asked = [rule("configmaps", "get list", names=(f"{each}",)) for each in range(LIMIT // 2 + 1)]
    assert f"would add {LIMIT + 2} permissions" in await rejection(users.holder, users, rules=asked)
    name = await make(users.holder, users, rules=asked[:-1])
    await change(users.holder, users, name, rules=asked)
    with pytest.raises(errors.Invalid, match="would add"):
        await change(users.holder, users, name, rules=asked[:-1], namespaces=[users.other])


@both_kinds
async def test_namespaces(users: Users, subject: Subject) -> None:
    assert await rejection(users.holder, users, subject, namespaces=[users.other, users.foreign]) == ""
    assert await rejection(users.limited, users, subject, namespaces=[users.namespace]) == ""
    assert await rejection(users.limited, users, subject) == ""
    expected = f"create rolebindings.rbac.authorization.k8s.io in namespace {users.other}"
    assert expected in await rejection(users.limited, users, subject, namespaces=[users.other])
    expected = f"get pods in namespace {users.bare}"
    for namespaces in ([users.bare], [users.namespace, users.bare]):
        assert expected in await rejection(users.holder, users, subject, namespaces=namespaces)
    # The list is so long that two policies reject it, and the API server returns the message of either.
    message = await rejection(users.holder, users, subject, namespaces=[users.other, users.bare])
    either = [f"get {each} in namespace {users.bare} or list {each}" for each in ("pods", "persistentvolumeclaims")]
    assert any(f"you lack: {each}" in message for each in either), message
    message = await rejection(users.holder, users, subject, namespaces=[users.bare], enabled=False)
    assert expected in message
    fields = "workspaceNamespaces" if subject is PROVISIONERS else "rbac.extraRules and rbac.workspaceNamespaces"
    assert f"{fields} can grant only permissions that you hold; you lack: " in message


async def test_rules_in_other_namespaces(users: Users) -> None:
    assert await rejection(users.holder, users, namespaces=[users.other], rules=HELD) == ""
    expected = f"get configmaps in namespace {users.foreign}"
    assert expected in await rejection(users.holder, users, namespaces=[users.foreign], rules=HELD[:1])


@both_kinds
async def test_authors_need_all_permissions_in_a_workspace_namespace(
    users: Users, cluster: ClusterAccess, subject: Subject
) -> None:
    """In each of several namespaces the author lacks one permission."""
    held = [
        rule(resource, verb, *granted["apiGroups"])
        for granted in [BINDING, *WORKSPACES]
        for resource in granted["resources"]
        for verb in granted["verbs"]
    ]
    places = [make_namespace(cluster, f"without-{at}") for at in range(len(held))]
    rights = {place: [each for each in held if each != lacking] for place, lacking in zip(places, held, strict=True)}
    author = create_user(cluster, f"author-{uuid4().hex[:8]}", users.namespace, rights)
    async with client_of(author) as client:
        for place, lacking in zip(places, held, strict=True):

            async def is_rejected(place: str = place, lacking: dict[str, Any] = lacking) -> bool:
                [group], [resource], [verb] = lacking["apiGroups"], lacking["resources"], lacking["verbs"]
                expected = f"{verb} {resource}{group and '.'}{group} in namespace {place}"
                return expected in await rejection(client, users, subject, namespaces=[place], deployments=True)

            await eventually(is_rejected, 30)


@both_kinds
async def test_deployments(users: Users, cluster: ClusterAccess, subject: Subject) -> None:
    """Permissions for Deployments are checked only if they are granted, which is the default of control planes."""
    place = make_namespace(cluster, "few")
    rights = {place: [BINDING, *(granted for granted in WORKSPACES if granted["apiGroups"] == [""])]}
    author = create_user(cluster, f"author-{uuid4().hex[:8]}", users.namespace, rights)
    default = subject is PLANE
    async with client_of(author) as client:
        name = await accepted(client, users, subject, namespaces=[place], deployments=False)
        for asked in (True, None) if default else (True,):
            with pytest.raises(errors.Invalid, match=f"get deployments.apps in namespace {place}"):
                await change(client, users, name, subject, deployments=asked)
        await change(users.admin, users, name, subject, deployments=True)
        await change(client, users, name, subject, namespaces=[users.namespace, place])
        refused = await rejection(client, users, subject, namespaces=[place])
        assert ("deployments.apps" in refused) is default
        assert "deployments.apps" in await rejection(client, users, subject, namespaces=[place], deployments=True)


@both_kinds
async def test_several_namespaces_at_once(users: Users, cluster: ClusterAccess, subject: Subject) -> None:
    """An author with the role `admin` in all of them."""
    places = [make_namespace(cluster, "several") for _ in range(9)]
    rights = dict.fromkeys(places, rules_of_admins(cluster))
    author = create_user(cluster, f"author-{uuid4().hex[:8]}", users.namespace, rights)
    async with client_of(author) as client:
        name = await accepted(client, users, subject, namespaces=places[:8], deployments=True)
        refused = await rejection(client, users, subject, namespaces=places, deployments=True)
        assert "would add 225 permissions" in refused
        await change(client, users, name, subject, namespaces=places)


def rules_of_admins(cluster: ClusterAccess) -> list[dict[str, Any]]:
    """The rules of the ClusterRole `admin`, which no controller aggregates in this cluster."""
    parts = [f"clusterroles/system:aggregate-to-{role}" for role in ("admin", "edit", "view")]
    answers = [cluster.request("GET", f"/apis/rbac.authorization.k8s.io/v1/{part}")[1] for part in parts]
    return [found for answer in answers for found in json.loads(answer)["rules"]]


async def test_an_added_namespace_gets_only_permissions_that_the_author_has_in_it(users: Users) -> None:
    name = await make(users.holder, users, rules=HELD)
    await change(users.holder, users, name, namespaces=[users.other])
    with pytest.raises(errors.Invalid, match=f"in namespace {users.foreign}"):
        await change(users.holder, users, name, namespaces=[users.other, users.foreign])


async def test_an_added_rule_must_be_held_in_every_namespace(users: Users) -> None:
    name = await make(users.holder, users, namespaces=[users.foreign])
    with pytest.raises(errors.Invalid, match=f"get configmaps in namespace {users.foreign}"):
        await change(users.holder, users, name, rules=HELD[:1])


async def test_existing_permissions_are_not_checked(users: Users) -> None:
    """Authors who change other fields, remove permissions or add their own need not hold existing permissions."""
    everything = rule("*", "*", "*")
    name = await make(users.admin, users, rules=[everything, HELD[0]], namespaces=[users.other])
    key = Key(users.namespace, name)
    held = {"metadata": {"finalizers": ["example.com/wait"], "labels": {"some": "label"}}, "spec": {"replicas": 3}}
    assert (await users.limited.merge(CONTROL_PLANE, key, held)).spec.replicas == 3
    await users.limited.merge(CONTROL_PLANE, key, {"metadata": {"finalizers": None}})
    await change(users.holder, users, name, rules=[HELD[1], everything])
    await change(users.limited, users, name, rules=[everything], namespaces=[])
    await change(users.limited, users, name, rules=[])
    with pytest.raises(errors.Invalid, match="you lack"):
        await change(users.limited, users, name, rules=[everything])


async def test_existing_namespaces_of_a_provisioner_are_not_checked(users: Users) -> None:
    name = await make(users.admin, users, PROVISIONERS, namespaces=[users.other, users.bare])
    key = Key(users.namespace, name)
    assert (await users.limited.merge(PROVISIONER, key, {"spec": {"replicas": 3}})).spec.replicas == 3
    await users.limited.merge(PROVISIONER, key, {"metadata": {"finalizers": ["example.com/wait"]}})
    await change(users.limited, users, name, PROVISIONERS, namespaces=[users.bare])
    with pytest.raises(errors.Invalid, match=f"in namespace {users.other}"):
        await change(users.limited, users, name, PROVISIONERS, namespaces=[users.bare, users.other])
    with pytest.raises(errors.Invalid, match=f"get deployments.apps in namespace {users.bare}"):
        await change(users.limited, users, name, PROVISIONERS, deployments=True)
    await users.limited.merge(PROVISIONER, key, {"metadata": {"finalizers": None}})


async def test_users_who_can_write_any_role_are_not_checked(users: Users) -> None:
    many = [rule("*", "*", "*"), *(rule("secrets", "get", names=(f"{each}",)) for each in range(200))]
    namespaces = [f"n{each}" for each in range(500)]
    assert await rejection(users.admin, users, rules=many, namespaces=namespaces) == ""
    assert await rejection(users.admin, users, PROVISIONERS, namespaces=namespaces) == ""
    assert "would add 8500 permissions" in await rejection(users.limited, users, PROVISIONERS, namespaces=namespaces)


async def test_a_too_long_list_is_rejected(users: Users) -> None:
    names = tuple(f"name-{each}" for each in range(5000))
    message = await rejection(users.limited, users, rules=[rule("secrets", "get list", names=names)])
    assert "would add 10000 permissions" in message


async def change(client: Client, users: Users, name: str, subject: Subject = PLANE, **fields: Any) -> None:
    await client.merge(subject.kind, Key(users.namespace, name), {"spec": subject.spec(**fields)})
