"""Permissions to run workspaces, in the namespaces that opt in."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.controlplane.rbac import ANYONE, FINALIZER, OPT_IN, OWNER_UID, binding_name, role_name
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.kinds import ROLE, ROLE_BINDING
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.installation import CONFIG
from tests.support.objects import NAMESPACE
from tests.support.operators import Operator
from tests.support.policies import without_finalizers

from .administrator import Administrator, administrator, operator_of

READY = "WorkspaceRBACReady"
EVERYWHERE = [""]
LOGS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "watch"]}
NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}


@pytest.fixture
async def admin(whole_cluster: Cluster) -> AsyncIterator[Administrator]:
    async with administrator(whole_cluster.kubeconfig) as admin:
        yield admin


async def names(admin: Administrator, key: Key) -> set[tuple[str, str]]:
    """The Role and the RoleBinding of a control plane."""
    plane = await admin.plane(key)
    return {("Role", role_name(plane)), ("RoleBinding", binding_name(plane))}


async def becomes(admin: Administrator, namespace: str, expected: set[tuple[str, str]]) -> None:
    """Wait until these Roles and RoleBindings, and no others, are in a namespace."""

    async def check() -> bool:
        assert await admin.granted(namespace) == expected
        return True

    await eventually(check)


async def denies(admin: Administrator, key: Key, namespace: str) -> None:
    """Wait until the condition names a namespace that has not opted in."""

    async def check() -> bool:
        return namespace in (await admin.condition(key, READY, "NamespaceNotAllowed")).message

    await eventually(check)


async def finalizers(admin: Administrator, key: Key, expected: list[str]) -> None:
    async def check() -> bool:
        assert (await admin.plane(key)).metadata.finalizers == expected
        return True

    await eventually(check)


async def test_namespace_opts_in_and_out_by_label(whole_cluster: Cluster, admin: Administrator) -> None:
    home, other, open_to_others = [await admin.make_namespace(name=name) for name in ("coder", "team-c", "team-a")]
    await admin.label_namespace(open_to_others, {OPT_IN: "another"})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build):
        key = await admin.make(home, rbac={"workspaceNamespaces": [other, open_to_others, home]})
        refused = await admin.condition(key, READY, "NamespaceNotAllowed")
        assert refused.status == "False"
        assert f"Namespace {other} has not opted in; label it" in refused.message
        assert "and 1 more" in refused.message
        assert f"{OPT_IN}={home}" in refused.message
        await admin.condition(key, "Stalled", "NamespaceNotAllowed")
        both = await names(admin, key)
        await becomes(admin, home, both)
        assert await admin.granted(other) == set()
        await finalizers(admin, key, [])

        await admin.label_namespace(other, {OPT_IN: home})
        await becomes(admin, other, both)
        await finalizers(admin, key, [FINALIZER])
        await denies(admin, key, open_to_others)

        await admin.label_namespace(open_to_others, {OPT_IN: ANYONE})
        applied = await admin.condition(key, READY, "Applied")
        assert applied.status == "True"
        where = f"{home}, {other}, {open_to_others}"
        assert applied.message == f"ServiceAccount demo may run workspaces in namespaces: {where}"
        await becomes(admin, open_to_others, both)
        await admin.not_stalled(key)

        await admin.label_namespace(other, {OPT_IN: None})
        await becomes(admin, other, set())
        await denies(admin, key, other)
        await finalizers(admin, key, [FINALIZER])

        await admin.label_namespace(open_to_others, {OPT_IN: "another"})
        await becomes(admin, open_to_others, set())
        await finalizers(admin, key, [])
        await becomes(admin, home, both)


async def test_role_in_another_namespace_has_labels_and_is_restored(
    whole_cluster: Cluster, admin: Administrator
) -> None:
    home = await admin.make_namespace()
    other = await admin.make_namespace({OPT_IN: home})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build):
        key = await admin.make(home, rbac={"workspaceNamespaces": [other]}, serviceAccount={"name": "workspaces"})
        await admin.condition(key, READY, "Applied")
        plane = await admin.plane(key)
        role = await admin.client.get(ROLE, Key(other, role_name(plane)))
        assert role.metadata.owner_references == []
        assert role.metadata.labels["coder.com/control-plane"] == "demo"
        assert role.metadata.labels["coder.com/control-plane-namespace"] == home
        assert role.metadata.annotations[OWNER_UID] == plane.metadata.uid
        binding = (await admin.client.get(ROLE_BINDING, Key(other, binding_name(plane)))).manifest
        assert binding["roleRef"]["name"] == role.metadata.name
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "workspaces", "namespace": home}]
        at_home = await admin.client.get(ROLE, Key(home, role.metadata.name))
        assert [owner.uid for owner in at_home.metadata.owner_references] == [plane.metadata.uid]

        # Changes by others are reverted.
        await admin.delete(ROLE_BINDING, Key(other, binding_name(plane)))
        await becomes(admin, other, await names(admin, key))
        await admin.client.merge(ROLE, role.key, {"metadata": {"labels": None}, "rules": []})

        async def restored() -> bool:
            found = await admin.client.get(ROLE, role.key)
            return found.metadata.labels == role.metadata.labels and found.manifest["rules"] == role.manifest["rules"]

        await eventually(restored)

        await admin.change(key, serviceAccount={"name": "renamed"})
        await becomes(admin, other, await names(admin, key))
        await admin.change(key, rbac={"workspacePerms": False})
        await becomes(admin, other, set())
        await becomes(admin, home, set())
        assert (await admin.condition(key, READY, "Disabled")).status == "False"
        await admin.not_stalled(key)
        await finalizers(admin, key, [])


async def test_namespaces_allowed_by_option(whole_cluster: Cluster, admin: Administrator) -> None:
    home, listed, unlisted = [await admin.make_namespace() for _ in range(3)]
    build = partial(wiring.build, allow_workspace_namespaces=[f"{listed[:-1]}?"])
    async with Operator(operator_of(whole_cluster), EVERYWHERE, build):
        key = await admin.make(home, rbac={"workspaceNamespaces": [listed, unlisted]})
        assert unlisted in (await admin.condition(key, READY, "NamespaceNotAllowed")).message
        await becomes(admin, listed, await names(admin, key))
        assert await admin.granted(unlisted) == set()


async def test_missing_namespace_is_waited_for(whole_cluster: Cluster, admin: Administrator) -> None:
    home = await admin.make_namespace()
    async with Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build):
        key = await admin.make(home, rbac={"workspaceNamespaces": ["team-b"]})
        assert "team-b" in (await admin.condition(key, READY, "NamespaceMissing")).message
        await admin.client.create(NAMESPACE, {"metadata": {"name": "team-b", "labels": {OPT_IN: home}}})
        await admin.condition(key, READY, "Applied")
        await becomes(admin, "team-b", await names(admin, key))


async def test_deletion_removes_only_its_own_roles(whole_cluster: Cluster, admin: Administrator) -> None:
    first_home, second_home = [await admin.make_namespace() for _ in range(2)]
    build = partial(wiring.build, allow_workspace_namespaces=["test-*"])
    async with Operator(operator_of(whole_cluster), EVERYWHERE, build):
        places = [await admin.make_namespace() for _ in range(2)]
        same: dict[str, Any] = {"rbac": {"workspaceNamespaces": places}, "serviceAccount": {"name": "coder"}}
        first = await admin.make(first_home, **same)
        second = await admin.make(second_home, **same)
        theirs, others = await names(admin, first), await names(admin, second)
        assert theirs.isdisjoint(others)
        for place in places:
            await becomes(admin, place, theirs | others)
        kept = {child.key: child for child in await admin.all(ROLE, places[0])}

        await admin.delete(CONTROL_PLANE, first)
        await admin.gone(CONTROL_PLANE, first)
        for place in places:
            assert await admin.granted(place) == others
        for child in await admin.all(ROLE, places[0]):
            assert child == kept[child.key], "the Role of the other control plane was not written"


async def test_only_permissions_of_the_operator_can_be_granted(whole_cluster: Cluster, admin: Administrator) -> None:
    home = await admin.make_namespace()
    other = await admin.make_namespace({OPT_IN: home})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build):
        key = await admin.make(home, rbac={"extraRules": [NODES], "workspaceNamespaces": [other]})
        refused = await admin.condition(key, READY, "Forbidden")
        assert "attempting to grant RBAC permissions not currently held" in refused.message
        assert "nodes" in refused.message
        await admin.condition(key, "Stalled", "Forbidden")
        assert await admin.granted(home) == await admin.granted(other) == set()

        await admin.change(key, rbac={"extraRules": [LOGS]})
        await admin.condition(key, READY, "Applied")
        await admin.not_stalled(key)
        plane = await admin.plane(key)
        for place in (home, other):
            rules = (await admin.client.get(ROLE, Key(place, role_name(plane)))).manifest["rules"]
            assert LOGS in rules

        await admin.change(key, rbac={"extraRules": [LOGS, NODES]})
        await admin.condition(key, READY, "Forbidden")
        for place in (home, other):
            rules = (await admin.client.get(ROLE, Key(place, role_name(plane)))).manifest["rules"]
            assert NODES not in rules


async def test_role_of_another_owner_is_not_changed(whole_cluster: Cluster, admin: Administrator) -> None:
    home = await admin.make_namespace()
    async with Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build):
        key = await admin.make(home, rbac={"workspacePerms": False})
        plane = await admin.plane(key)
        foreign = {"metadata": {"namespace": home, "name": role_name(plane)}, "rules": [NODES]}
        before = await admin.client.create(ROLE, foreign)
        await admin.change(key, rbac={"workspacePerms": True})
        assert role_name(plane) in (await admin.condition(key, READY, "NameTaken")).message
        assert await admin.find(ROLE, before.key) == before
        assert await admin.find(ROLE_BINDING, Key(home, binding_name(plane))) is None, (
            "it would grant the permissions of another owner"
        )


def test_operator_can_neither_escalate_nor_bind() -> None:
    roles = [
        role
        for path in sorted((CONFIG / "rbac").rglob("*.yaml"))
        for role in yaml.safe_load_all(path.read_text())
        if role["kind"] in ("Role", "ClusterRole")
    ]
    assert len(roles) >= 3
    rules = [rule for role in roles for rule in role["rules"]]
    assert not {"escalate", "bind", "impersonate", "*"} & {verb for rule in rules for verb in rule["verbs"]}
    assert not {"*"} & {word for rule in rules for word in (*rule["apiGroups"], *rule["resources"])}


async def test_namespaced_operator_uses_only_its_options(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path
) -> None:
    async with administrator(cluster.kubeconfig) as admin:
        home = await admin.make_namespace()
        listed, labelled, unwatched = [await admin.make_namespace({OPT_IN: home}) for _ in range(3)]
        build = partial(wiring.build, allow_workspace_namespaces=[listed, unwatched, "nowhere"])
        async with Operator(operator_kubeconfig, [home, listed, labelled, "nowhere"], build):
            key = await admin.make(home, rbac={"workspaceNamespaces": [listed]})
            await admin.condition(key, READY, "Applied")
            await becomes(admin, listed, await names(admin, key))

            for place, reason, message in (
                (labelled, "NamespaceNotAllowed", "--allow-workspace-namespaces"),
                (unwatched, "NamespaceNotAllowed", "--watch-namespaces"),
                ("nowhere", "NamespaceMissing", "nowhere"),
            ):
                await admin.change(key, rbac={"workspaceNamespaces": [place]})
                assert message in (await admin.condition(key, READY, reason)).message
                await becomes(admin, listed, set())
            assert await admin.granted(labelled) == await admin.granted(unwatched) == set()

            await admin.change(key, rbac={"workspaceNamespaces": [listed]})
            await becomes(admin, listed, await names(admin, key))
            await admin.delete(CONTROL_PLANE, key)
            await admin.gone(CONTROL_PLANE, key)
            assert await admin.granted(listed) == set()


async def test_no_role_in_other_namespaces_without_the_finalizer(whole_cluster: Cluster, admin: Administrator) -> None:
    home = await admin.make_namespace()
    other = await admin.make_namespace({OPT_IN: home})
    key = await admin.make(home, operatorAccess={"disabled": True}, rbac={"workspaceNamespaces": [other]})
    async with (
        without_finalizers(admin.client, CONTROL_PLANE, key),
        Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build),
    ):
        assert FINALIZER in (await admin.condition(key, READY, "Forbidden")).message
        assert f"Finalizer {FINALIZER} cannot be added" in (await admin.condition(key, "Stalled", "Forbidden")).message
        await becomes(admin, home, await names(admin, key))
        assert await admin.granted(other) == set()
