"""Permissions of control planes and provisioners to run workspaces, in the namespaces that opt in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coder_k8s.controllers.workspace_roles import ANYONE, FINALIZER, OPT_IN, OWNER_UID
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.kinds import ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key
from tests.support import eventually
from tests.support.objects import NAMESPACE
from tests.support.operators import Operator
from tests.support.policies import without_finalizers

from .controlplane.administrator import operator_of, writes
from .workspace_owners import EVERYWHERE, PLANE, READY, Owners, Subject, both_kinds, owners_of

pytestmark = both_kinds
NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}


@pytest.fixture
async def owners(whole_cluster: Cluster, subject: Subject) -> AsyncIterator[Owners]:
    async with owners_of(whole_cluster.kubeconfig, subject) as owners:
        yield owners


async def test_namespace_opts_in_and_out_by_label(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    names = ("coder", "team-c", "team-a") if subject is PLANE else ("platform", "team-e", "team-f")
    home, other, open_to_others = [await owners.make_namespace(name=name) for name in names]
    await owners.label_namespace(open_to_others, {OPT_IN: "another"})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, subject.build):
        key = await owners.make(home, namespaces=[other, open_to_others, home])
        refused = await owners.condition(key, READY, "NamespaceNotAllowed")
        assert refused.status == "False"
        assert f"Namespace {other} has not opted in; label it" in refused.message
        assert "and 1 more" in refused.message
        assert f"{OPT_IN}={home}" in refused.message
        await owners.condition(key, "Stalled", "NamespaceNotAllowed")
        await owners.becomes(home, key)
        await owners.becomes(other)
        await owners.finalizers(key, [])

        await owners.label_namespace(other, {OPT_IN: home})
        await owners.becomes(other, key)
        await owners.finalizers(key, [FINALIZER])
        await owners.denies(key, open_to_others)

        await owners.label_namespace(open_to_others, {OPT_IN: ANYONE})
        applied = await owners.condition(key, READY, "Applied")
        assert applied.status == "True"
        account = subject.roles.account(await owners.get(key))
        where = f"{home}, {other}, {open_to_others}"
        assert applied.message == f"ServiceAccount {account} may run workspaces in namespaces: {where}"
        await owners.becomes(open_to_others, key)
        await owners.not_stalled(key)

        await owners.label_namespace(other, {OPT_IN: None})
        await owners.becomes(other)
        await owners.denies(key, other)
        await owners.finalizers(key, [FINALIZER])

        await owners.label_namespace(open_to_others, {OPT_IN: "another"})
        await owners.becomes(open_to_others)
        await owners.finalizers(key, [])
        await owners.becomes(home, key)


async def test_role_in_another_namespace_has_labels_and_is_restored(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    home = await owners.make_namespace()
    other = await owners.make_namespace({OPT_IN: home})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, subject.build):
        key = await owners.make(home, namespaces=[other])
        await owners.condition(key, READY, "Applied")
        owner = await owners.get(key)
        names = subject.roles.names(owner, other)
        role = await owners.client.get(ROLE, Key(other, names.role))
        assert role.metadata.owner_references == []
        assert role.metadata.labels[subject.roles.label] == key.name
        assert role.metadata.labels[f"{subject.roles.label}-namespace"] == home
        assert role.metadata.annotations[OWNER_UID] == owner.metadata.uid
        binding = (await owners.client.get(ROLE_BINDING, Key(other, names.binding))).manifest
        assert binding["roleRef"]["name"] == names.role
        account = subject.roles.account(owner)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": home}]
        assert await owners.find(SERVICE_ACCOUNT, Key(home, account)) is not None
        at_home = await owners.client.get(ROLE, Key(home, subject.roles.names(owner, home).role))
        assert [reference.uid for reference in at_home.metadata.owner_references] == [owner.metadata.uid]
        assert at_home.manifest["rules"] == role.manifest["rules"]

        # Changes by others are reverted.
        await owners.delete(ROLE_BINDING, Key(other, names.binding))
        await owners.becomes(other, key)
        await owners.client.merge(ROLE, role.key, {"metadata": {"labels": None}, "rules": []})

        async def restored() -> bool:
            found = await owners.client.get(ROLE, role.key)
            return found.metadata.labels == role.metadata.labels and found.manifest["rules"] == role.manifest["rules"]

        await eventually(restored)


async def test_switches(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    """The Role follows the switch for Deployments, and is removed everywhere when it is turned off."""
    home = await owners.make_namespace()
    other = await owners.make_namespace({OPT_IN: home})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, subject.build):
        key = await owners.make(home, namespaces=[other])
        for deployments in (True, False):
            await owners.switch(key, deployments=deployments)
            await owners.condition(key, READY, "Applied")
            for place in (home, other):
                name = subject.roles.names(await owners.get(key), place).role
                rules = (await owners.client.get(ROLE, Key(place, name))).manifest["rules"]
                assert any("deployments" in rule["resources"] for rule in rules) is deployments

        await owners.switch(key, enabled=False)
        await owners.becomes(other)
        await owners.becomes(home)
        disabled = await owners.condition(key, READY, "Disabled")
        assert (disabled.status, disabled.message) == ("False", f"Disabled by {subject.roles.texts.switch}")
        await owners.not_stalled(key)
        await owners.finalizers(key, [])
        await owners.switch(key, enabled=True)
        await owners.becomes(other, key)
        await owners.becomes(home, key)


async def test_no_write_without_a_change(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    build = subject.allowing("test-*")
    async with Operator(operator_of(whole_cluster), EVERYWHERE, build) as operator:
        key, _ = await owners.spread()
        await operator.wait_idle()
        before = writes(operator)
        await operator.reconcile(key)
        assert writes(operator) == before
    async with Operator(operator_of(whole_cluster), EVERYWHERE, build) as again:
        await again.wait_idle()
        assert again.reconciles()
        requests = [each for each in again.interceptor.requests if each.is_write and not each.dry_run]
        assert [each for each in requests if key.namespace in each.target] == []


async def test_namespaces_allowed_by_option(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    home, listed, unlisted = [await owners.make_namespace() for _ in range(3)]
    async with Operator(operator_of(whole_cluster), EVERYWHERE, subject.allowing(f"{listed[:-1]}?")):
        key = await owners.make(home, namespaces=[listed, unlisted])
        assert unlisted in (await owners.condition(key, READY, "NamespaceNotAllowed")).message
        await owners.becomes(listed, key)
        await owners.becomes(unlisted)


async def test_missing_namespace_is_waited_for(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    home, missing = await owners.make_namespace(), "team-b" if subject is PLANE else "team-d"
    async with Operator(operator_of(whole_cluster), EVERYWHERE, subject.build):
        key = await owners.make(home, namespaces=[missing])
        message = (await owners.condition(key, READY, "NamespaceMissing")).message
        assert (
            message == f"Namespace {missing} does not exist; create it, or remove it from {subject.roles.texts.field}"
        )
        await owners.client.create(NAMESPACE, {"metadata": {"name": missing, "labels": {OPT_IN: home}}})
        await owners.condition(key, READY, "Applied")
        await owners.becomes(missing, key)


async def test_deletion_removes_only_its_own_roles(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    """Of two objects with the same name in two namespaces."""
    first_home, second_home = [await owners.make_namespace() for _ in range(2)]
    async with Operator(operator_of(whole_cluster), EVERYWHERE, subject.allowing("test-*")):
        places = [await owners.make_namespace() for _ in range(2)]
        first = await owners.make(first_home, namespaces=places)
        second = await owners.make(second_home, namespaces=places)
        for place in places:
            assert (await owners.names(first, place)).isdisjoint(await owners.names(second, place))
            await owners.becomes(place, first, second)
        others = {place: await owners.names(second, place) for place in places}
        kept = {child.key: child for child in await owners.all(ROLE, places[0])}

        await owners.delete_owner(first)
        await owners.owner_gone(first)
        for place in places:
            assert await owners.granted(place) == others[place]
        for child in await owners.all(ROLE, places[0]):
            assert child == kept[child.key], "the Role of the other object was not written"


async def test_role_of_another_owner_is_not_changed(whole_cluster: Cluster, owners: Owners, subject: Subject) -> None:
    home = await owners.make_namespace()
    other = await owners.make_namespace({OPT_IN: home})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, subject.build):
        key = await owners.make(home, enabled=False, namespaces=[other])
        owner = await owners.get(key)
        for place in (home, other):
            names = subject.roles.names(owner, place)
            foreign = {"metadata": {"namespace": place, "name": names.role}, "rules": [NODES]}
            before = await owners.client.create(ROLE, foreign)
            await owners.switch(key, enabled=True)
            message = (await owners.condition(key, READY, "NameTaken")).message
            assert message == (
                f"In namespace {place}, Role {names.role} exists and has no owner; "
                f"delete it, or {subject.roles.texts.other_name}"
            )
            assert await owners.find(ROLE, before.key) == before
            assert await owners.find(ROLE_BINDING, Key(place, names.binding)) is None, (
                "it would grant the permissions of another owner"
            )
            await owners.switch(key, enabled=False)
            await owners.condition(key, READY, "Disabled")
            assert await owners.find(ROLE, before.key) == before
            await owners.delete(ROLE, before.key)


async def test_namespaced_operator_uses_only_its_options(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, subject: Subject
) -> None:
    async with owners_of(cluster.kubeconfig, subject) as owners:
        home = await owners.make_namespace()
        listed, labelled, unwatched = [await owners.make_namespace({OPT_IN: home}) for _ in range(3)]
        build = subject.allowing(listed, unwatched, "nowhere")
        async with Operator(operator_kubeconfig, [home, listed, labelled, "nowhere"], build):
            key = await owners.make(home, namespaces=[listed])
            await owners.condition(key, READY, "Applied")
            await owners.becomes(listed, key)

            for place, reason, message in (
                (labelled, "NamespaceNotAllowed", "--allow-workspace-namespaces"),
                (unwatched, "NamespaceNotAllowed", "--watch-namespaces"),
                ("nowhere", "NamespaceMissing", "nowhere"),
            ):
                await owners.switch(key, namespaces=[place])
                assert message in (await owners.condition(key, READY, reason)).message
                await owners.becomes(listed)
            await owners.becomes(labelled)
            await owners.becomes(unwatched)

            await owners.switch(key, namespaces=[listed])
            await owners.becomes(listed, key)
            await owners.delete_owner(key)
            await owners.owner_gone(key)
            assert await owners.granted(listed) == set()


async def test_no_role_in_other_namespaces_without_the_finalizer(
    whole_cluster: Cluster, owners: Owners, subject: Subject
) -> None:
    home = await owners.make_namespace()
    other = await owners.make_namespace({OPT_IN: home})
    key = await owners.make(home, namespaces=[other])
    async with (
        without_finalizers(owners.client, subject.kind, key),
        Operator(operator_of(whole_cluster), EVERYWHERE, subject.build),
    ):
        assert FINALIZER in (await owners.condition(key, READY, "Forbidden")).message
        assert f"Finalizer {FINALIZER} cannot be added" in (await owners.condition(key, "Stalled", "Forbidden")).message
        await owners.becomes(home, key)
        await owners.becomes(other)
