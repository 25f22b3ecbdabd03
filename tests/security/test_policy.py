"""Nobody gets by a control plane what they do not hold: asked of a real API server, by real users."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import pytest_asyncio

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane.rbac import role
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube import errors
from coder_k8s.kube.client import Client
from coder_k8s.kube.objects import Key
from coder_k8s.manifests.policy import CHECKS, LIMIT, POLICIES
from tests.conftest import one_worker_at_a_time
from tests.controllers.controlplane.planes import plane
from tests.security.people import client_of, introduce, post, rule
from tests.support import eventually
from tests.support.installation import CONFIG

pytestmark = pytest.mark.asyncio(loop_scope="module")

BINDING = rule("rolebindings", "create", "rbac.authorization.k8s.io")
WORKSPACES: list[dict[str, Any]] = role(plane(), "somewhere")["rules"]
"""What the operator grants in a workspace namespace, as it writes it."""
HELD = [
    rule("configmaps", "get list"),
    rule("pods/exec", "create"),
    rule("secrets", "get", names=("one", "two")),
    rule("widgets", "*", "example.com"),
    rule("*", "get", "everything.example.com"),
    rule("*", "*", "*", names=("alone",)),
]


class People(NamedTuple):
    """Two authors in the same namespace, one with rights and one without, and the administrator."""

    namespace: str
    other: str
    """A namespace in which the first author may bind Roles, run workspaces, and holds the same rights."""
    foreign: str
    """One in which the first may bind Roles and run workspaces, and holds none of the rights."""
    bare: str
    """One in which the first may bind Roles, and nothing else."""
    holder: Client
    stranger: Client
    admin: Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people(cluster: ClusterAccess, crds: None) -> AsyncIterator[People]:
    with one_worker_at_a_time(cluster):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", CONFIG / "policy")
    places = own, other, foreign, bare = [make_namespace(cluster, part) for part in ("own", "other", "foreign", "bare")]
    workspaces = [BINDING, *WORKSPACES]
    rights = dict(zip(places, [HELD, [*workspaces, *HELD], workspaces, [BINDING]], strict=True))
    holder, stranger = introduce(cluster, "holder", own, rights), introduce(cluster, "stranger", own, {})
    async with client_of(holder) as first, client_of(stranger) as second, client_of(cluster.kubeconfig) as admin:
        made = People(own, other, foreign, bare, first, second, admin)
        for part in range(POLICIES):
            await eventually(partial(_asked_at, made, part * CHECKS * 2), 30)
        yield made


def make_namespace(cluster: ClusterAccess, part: str) -> str:
    name = f"test-{part}-{uuid4().hex[:8]}"
    post(cluster, "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


async def _asked_at(people: People, at: int) -> bool:
    """Whether the right at this place of the list is asked for."""
    names = tuple(f"name-{each}" for each in range(at))
    held = [rule("configmaps", "get", names=names)] if names else []
    return "you lack" in await refusal(people.holder, people, extraRules=[*held, rule("secrets", "get")])


async def make(client: Client, people: People, **rbac: Any) -> str:
    name = f"plane-{uuid4().hex[:12]}"
    await client.create(
        CONTROL_PLANE, {"metadata": {"namespace": people.namespace, "name": name}, "spec": {"rbac": rbac}}
    )
    return name


async def refusal(client: Client, people: People, **rbac: Any) -> str:
    """What the author is told; nothing when the control plane is accepted."""
    try:
        await make(client, people, **rbac)
    except errors.Invalid as refused:
        return refused.message
    return ""


async def accepted(client: Client, people: People, **rbac: Any) -> str:
    """The name of a control plane whose author has just been given rights, which the API server has yet to notice."""

    async def check() -> str:
        try:
            return await make(client, people, **rbac)
        except errors.Invalid as refused:
            raise AssertionError(refused.message) from refused

    return await eventually(check, 30)


@pytest.mark.parametrize("asked", HELD, ids=str)
async def test_what_one_holds_can_be_passed_on(people: People, asked: dict[str, Any]) -> None:
    assert await refusal(people.holder, people, extraRules=[asked]) == ""
    assert "you lack" in await refusal(people.stranger, people, extraRules=[asked])


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
async def test_what_one_lacks_cannot(people: People, asked: dict[str, Any], expected: str) -> None:
    assert expected in await refusal(people.holder, people, extraRules=[HELD[0], asked])
    assert expected in await refusal(people.holder, people, extraRules=[asked], workspacePerms=False)


async def test_every_right_of_a_long_list_is_asked_for(people: People) -> None:
    ends = [at for first in range(0, LIMIT, CHECKS * 2) for at in (first, first + CHECKS * 2 - 1)]
    for at in (*ends, 1, 2):
        assert await _asked_at(people, at), at


async def test_a_longer_list_is_added_in_steps(people: People) -> None:
    asked = [rule("configmaps", "get list", names=(f"{each}",)) for each in range(LIMIT // 2 + 1)]
    assert f"would add {LIMIT + 2} permissions" in await refusal(people.holder, people, extraRules=asked)
    name = await make(people.holder, people, extraRules=asked[:-1])
    await change(people.holder, people, name, extraRules=asked)
    with pytest.raises(errors.Invalid, match="would add"):
        await change(people.holder, people, name, extraRules=asked[:-1], workspaceNamespaces=[people.other])


async def test_namespaces(people: People) -> None:
    assert await refusal(people.holder, people, workspaceNamespaces=[people.other, people.foreign]) == ""
    assert await refusal(people.holder, people, workspaceNamespaces=[people.other], extraRules=HELD) == ""
    assert await refusal(people.stranger, people, workspaceNamespaces=[people.namespace]) == ""
    expected = f"create rolebindings.rbac.authorization.k8s.io in namespace {people.other}"
    assert expected in await refusal(people.stranger, people, workspaceNamespaces=[people.other])
    expected = f"get configmaps in namespace {people.foreign}"
    assert expected in await refusal(people.holder, people, workspaceNamespaces=[people.foreign], extraRules=HELD[:1])
    expected = f"get pods in namespace {people.bare}"
    assert expected in await refusal(people.holder, people, workspaceNamespaces=[people.bare])
    assert expected in await refusal(people.holder, people, workspaceNamespaces=[people.bare], workspacePerms=False)


async def test_whoever_names_a_namespace_holds_there_all_that_the_operator_grants(
    people: People, cluster: ClusterAccess
) -> None:
    """In each of some namespaces the author lacks one of the rights."""
    held = [
        rule(resource, verb, *granted["apiGroups"])
        for granted in [BINDING, *WORKSPACES]
        for resource in granted["resources"]
        for verb in granted["verbs"]
    ]
    places = [make_namespace(cluster, f"without-{at}") for at in range(len(held))]
    rights = {place: [each for each in held if each != lacking] for place, lacking in zip(places, held, strict=True)}
    author = introduce(cluster, f"author-{uuid4().hex[:8]}", people.namespace, rights)
    async with client_of(author) as client:
        for place, lacking in zip(places, held, strict=True):

            async def is_refused(place: str = place, lacking: dict[str, Any] = lacking) -> bool:
                [group], [resource], [verb] = lacking["apiGroups"], lacking["resources"], lacking["verbs"]
                words = f"{verb} {resource}{group and '.'}{group} in namespace {place}"
                return words in await refusal(client, people, workspaceNamespaces=[place])

            await eventually(is_refused, 30)


async def test_deployments(people: People, cluster: ClusterAccess) -> None:
    """Rights on Deployments are asked for where they are granted, and when they are."""
    place = make_namespace(cluster, "few")
    rights = {place: [BINDING, *(granted for granted in WORKSPACES if granted["apiGroups"] == [""])]}
    author = introduce(cluster, f"author-{uuid4().hex[:8]}", people.namespace, rights)
    async with client_of(author) as client:
        name = await accepted(client, people, workspaceNamespaces=[place], enableDeployments=False)
        for asked in ({"enableDeployments": True}, {"enableDeployments": None}):
            with pytest.raises(errors.Invalid, match=f"get deployments.apps in namespace {place}"):
                await change(client, people, name, **asked)
        await change(people.admin, people, name, enableDeployments=True)
        await change(client, people, name, workspaceNamespaces=[people.namespace, place])
        assert "deployments.apps" in await refusal(client, people, workspaceNamespaces=[place])


async def test_several_namespaces_at_once(people: People, cluster: ClusterAccess) -> None:
    """As many as a person would name in one step, who is `admin` in all of them."""
    places = [make_namespace(cluster, "several") for _ in range(9)]
    rights = dict.fromkeys(places, rules_of_admins(cluster))
    author = introduce(cluster, f"author-{uuid4().hex[:8]}", people.namespace, rights)
    async with client_of(author) as client:
        name = await accepted(client, people, workspaceNamespaces=places[:8])
        assert "would add 225 permissions" in await refusal(client, people, workspaceNamespaces=places)
        await change(client, people, name, workspaceNamespaces=places)


def rules_of_admins(cluster: ClusterAccess) -> list[dict[str, Any]]:
    """What the ClusterRole `admin` is made of; nothing aggregates it here."""
    parts = [f"clusterroles/system:aggregate-to-{role}" for role in ("admin", "edit", "view")]
    answers = [cluster.request("GET", f"/apis/rbac.authorization.k8s.io/v1/{part}")[1] for part in parts]
    return [found for answer in answers for found in json.loads(answer)["rules"]]


async def test_a_namespace_that_is_added_gets_only_rights_that_one_holds_there(people: People) -> None:
    name = await make(people.holder, people, extraRules=HELD)
    await change(people.holder, people, name, workspaceNamespaces=[people.other])
    with pytest.raises(errors.Invalid, match=f"in namespace {people.foreign}"):
        await change(people.holder, people, name, workspaceNamespaces=[people.other, people.foreign])


async def test_a_rule_that_is_added_must_be_held_in_every_namespace(people: People) -> None:
    name = await make(people.holder, people, workspaceNamespaces=[people.foreign])
    with pytest.raises(errors.Invalid, match=f"get configmaps in namespace {people.foreign}"):
        await change(people.holder, people, name, extraRules=HELD[:1])


async def test_what_was_there_before_is_nobodys_fault(people: People) -> None:
    """Whoever writes other fields, takes rights away or adds what they hold need not hold what others added."""
    everything = rule("*", "*", "*")
    name = await make(people.admin, people, extraRules=[everything, HELD[0]], workspaceNamespaces=[people.other])
    key = Key(people.namespace, name)
    held = {"metadata": {"finalizers": ["example.com/wait"], "labels": {"some": "label"}}, "spec": {"replicas": 3}}
    assert (await people.stranger.merge(CONTROL_PLANE, key, held)).spec.replicas == 3
    await people.stranger.merge(CONTROL_PLANE, key, {"metadata": {"finalizers": None}})
    await change(people.holder, people, name, extraRules=[HELD[1], everything])
    await change(people.stranger, people, name, extraRules=[everything], workspaceNamespaces=[])
    await change(people.stranger, people, name, extraRules=[])
    with pytest.raises(errors.Invalid, match="you lack"):
        await change(people.stranger, people, name, extraRules=[everything])


async def test_whoever_may_write_any_role_is_not_asked(people: People) -> None:
    many = [rule("*", "*", "*"), *(rule("secrets", "get", names=(f"{each}",)) for each in range(200))]
    assert await refusal(people.admin, people, extraRules=many, workspaceNamespaces=[f"n{i}" for i in range(500)]) == ""


async def test_a_list_beyond_measure_is_refused_and_not_waved_through(people: People) -> None:
    names = tuple(f"name-{each}" for each in range(5000))
    message = await refusal(people.stranger, people, extraRules=[rule("secrets", "get list", names=names)])
    assert "would add 10000 permissions" in message


async def change(client: Client, people: People, name: str, **rbac: Any) -> None:
    await client.merge(CONTROL_PLANE, Key(people.namespace, name), {"spec": {"rbac": rbac}})
