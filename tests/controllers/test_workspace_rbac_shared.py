"""Several owners of Roles share a namespace, and provisioners differ from control planes."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from coder_k8s.api import PROVISIONER
from coder_k8s.controllers.controlplane import wiring as controlplane
from coder_k8s.controllers.controlplane.rbac import ROLES as OF_PLANES
from coder_k8s.controllers.provisioner import wiring as provisioner
from coder_k8s.controllers.provisioner.rbac import ROLES as OF_PROVISIONERS
from coder_k8s.controllers.workspace_roles import OPT_IN
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.kinds import DEPLOYMENT, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, Unstructured
from tests.support import eventually
from tests.support.operators import Operator
from tests.support.policies import BINDING, POLICY, forbid

from .controlplane.administrator import operator_of
from .workspace_owners import EVERYWHERE, PLANE, PROVISIONERS, READY, Owners, owners_of

COLLIDING = ("a" * 60 + "umpratqp", "a" * 60 + "dfoqvugh")
"""Names with the same FNV-1a hash and the same beginning."""
BUILDERS = tuple(
    partial(build, allow_workspace_namespaces=["test-*"]) for build in (controlplane.build, provisioner.build)
)


@pytest.fixture
async def owners(whole_cluster: Cluster) -> AsyncIterator[Owners]:
    async with owners_of(whole_cluster.kubeconfig, PROVISIONERS) as owners:
        yield owners


@pytest.fixture
async def planes(whole_cluster: Cluster) -> AsyncIterator[Owners]:
    async with owners_of(whole_cluster.kubeconfig, PLANE) as owners:
        yield owners


async def roles_in(owners: Owners, namespace: str) -> dict[tuple[str, str], Unstructured]:
    return {
        (kind.name, child.metadata.name): child
        for kind in (ROLE, ROLE_BINDING)
        for child in await owners.all(kind, namespace)
    }


async def test_a_control_plane_and_two_provisioners_share_a_namespace(
    whole_cluster: Cluster, owners: Owners, planes: Owners
) -> None:
    """All three have the same name, and a ServiceAccount of the control plane looks like a Role of a provisioner."""
    first_home, second_home, place = [await owners.make_namespace() for _ in range(3)]
    async with Operator(operator_of(whole_cluster), EVERYWHERE, *BUILDERS) as operator:
        plane = await planes.make(first_home, "demo", namespaces=[place])
        await planes.change(plane, serviceAccount={"name": "provisioner-demo"})
        first = await owners.make(first_home, "demo", namespaces=[place])
        second = await owners.make(second_home, "demo", namespaces=[place])
        for admin, key in ((planes, plane), (owners, first), (owners, second)):
            await admin.condition(key, READY, "Applied")
        names = {
            "plane": await planes.names(plane, place),
            "first": await owners.names(first, place),
            "second": await owners.names(second, place),
        }

        async def exactly(*left: str) -> bool:
            assert await owners.granted(place) == set().union(*(names[name] for name in left))
            return True

        await eventually(lambda: exactly("plane", "first", "second"))
        assert len(await owners.granted(place)) == 6
        subjects = {
            (binding.manifest["subjects"][0]["namespace"], binding.manifest["subjects"][0]["name"])
            for binding in await owners.all(ROLE_BINDING, place)
        }
        assert subjects == {
            (first_home, "provisioner-demo"),
            (first_home, "demo-provisioner"),
            (second_home, "demo-provisioner"),
        }
        await operator.wait_idle()
        kept = await roles_in(owners, place)

        await owners.switch(first, namespaces=[])
        await eventually(lambda: exactly("plane", "second"))
        await planes.delete_owner(plane)
        await planes.owner_gone(plane)
        await eventually(lambda: exactly("second"))
        await operator.wait_idle()
        left = await roles_in(owners, place)
        assert left == {name: child for name, child in kept.items() if name in names["second"]}, "none was written"


async def test_opting_in_is_for_a_namespace_and_not_for_a_kind(
    whole_cluster: Cluster, owners: Owners, planes: Owners
) -> None:
    """The label names the namespace whose objects may run workspaces; those of another get nothing."""
    home, stranger = [await owners.make_namespace() for _ in range(2)]
    place = await owners.make_namespace({OPT_IN: home})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, controlplane.build, provisioner.build):
        own = await owners.make(home, namespaces=[place])
        foreign = await owners.make(stranger, namespaces=[place])
        await owners.condition(own, READY, "Applied")
        await owners.condition(foreign, READY, "NamespaceNotAllowed")
        await owners.becomes(place, own)


async def test_names_in_other_namespaces_are_unique() -> None:
    """A control plane can have any ServiceAccount name, but no name with a colon."""
    keys = [Key(namespace, name) for namespace in ("a", "a-b") for name in ("b", "b-c", "c", *COLLIDING)]
    found = [name for key in keys for name in _provisioner_names(key)]
    assert len(set(found)) == len(keys)
    assert all(OF_PROVISIONERS.may_be_named(key, name) for key in keys for name in _provisioner_names(key))
    for key in keys:
        others = [name for other in keys if other != key for name in _provisioner_names(other)]
        assert not any(OF_PROVISIONERS.may_be_named(key, name) for name in others)
        assert not any(OF_PLANES.may_be_named(key, name) for name in found)


def _provisioner_names(key: Key) -> set[str]:
    made = PROVISIONER.type.decode(
        b'{"metadata": {"namespace": "%s", "name": "%s", "uid": "1"}, "spec": {"controlPlaneRef": {"name": "x"}}}'
        % (key.namespace.encode(), key.name.encode())
    )
    return set(OF_PROVISIONERS.names(made, "elsewhere"))


async def test_longest_names(whole_cluster: Cluster, owners: Owners) -> None:
    home = await owners.make_namespace(name="test-" + "n" * 58)
    place = await owners.make_namespace()
    async with Operator(operator_of(whole_cluster), EVERYWHERE, *BUILDERS):
        key = await owners.make(home, "b" * 253, namespaces=[place])
        await owners.becomes(place, key)
        await owners.switch(key, namespaces=[])
        await owners.becomes(place)
        await owners.finalizers(key, [])


async def test_a_cut_label_does_not_identify_the_roles_of_another_provisioner(
    whole_cluster: Cluster, owners: Owners
) -> None:
    """The author of an object cannot choose its name so that it deletes the Roles of another object."""
    home, place = [await owners.make_namespace() for _ in range(2)]
    labels = [OF_PROVISIONERS.identity(Key(home, name)) for name in COLLIDING]
    assert labels[0] == labels[1]
    async with Operator(operator_of(whole_cluster), EVERYWHERE, *BUILDERS) as operator:
        first = await owners.make(home, COLLIDING[0], namespaces=[place])
        await owners.condition(first, READY, "Applied")
        await operator.wait_idle()
        before = {namespace: await roles_in(owners, namespace) for namespace in (home, place)}
        second = await owners.make(home, COLLIDING[1], namespaces=[place])
        await owners.condition(second, READY, "NameTaken")
        await owners.switch(second, enabled=False)
        await operator.wait_idle()
        await owners.delete_owner(second)
        await owners.owner_gone(second)
        await operator.wait_idle()
        assert {namespace: await roles_in(owners, namespace) for namespace in (home, place)} == before


async def test_service_account_of_another_owner_gets_no_roles(whole_cluster: Cluster, owners: Owners) -> None:
    """Neither Roles nor pods: the name of a provisioner must not select an existing ServiceAccount."""
    home = await owners.make_namespace()
    place = await owners.make_namespace({OPT_IN: home})
    account = Key(home, "build-provisioner")
    before = await owners.client.create(SERVICE_ACCOUNT, {"metadata": {"namespace": home, "name": account.name}})
    async with Operator(operator_of(whole_cluster), EVERYWHERE, provisioner.build):
        key = await owners.make(home, namespaces=[place])
        message = (await owners.condition(key, READY, "NameTaken")).message
        assert message == (
            "ServiceAccount build-provisioner exists and has no owner; rename this object or delete the other one"
        )
        await owners.condition(key, "Stalled", "NameTaken")
        assert await owners.granted(home) == await owners.granted(place) == set()
        assert await owners.find(SERVICE_ACCOUNT, account) == before
        assert await owners.all(DEPLOYMENT, home) == []


async def test_account_that_is_lost_to_another_owner_gets_nothing_new(whole_cluster: Cluster, owners: Owners) -> None:
    """Roles that are not required any more are still removed."""
    home = await owners.make_namespace()
    first, second = [await owners.make_namespace({OPT_IN: home}) for _ in range(2)]
    async with Operator(operator_of(whole_cluster), EVERYWHERE, provisioner.build):
        key = await owners.make(home, namespaces=[first])
        await owners.condition(key, READY, "Applied")
        account = Key(home, "build-provisioner")
        await owners.client.merge(SERVICE_ACCOUNT, account, {"metadata": {"ownerReferences": None}})
        await owners.condition(key, READY, "NameTaken")
        await owners.switch(key, namespaces=[second])
        await owners.becomes(first)
        await owners.condition(key, READY, "NameTaken")
        assert await owners.granted(second) == set()


async def test_role_that_a_quota_forbids(whole_cluster: Cluster, owners: Owners) -> None:
    home = await owners.make_namespace()
    await forbid(owners.client, home, "count/roles.rbac.authorization.k8s.io")
    async with Operator(operator_of(whole_cluster), EVERYWHERE, provisioner.build):
        key = await owners.make(home)
        assert "exceeded quota: none" in (await owners.condition(key, READY, "Forbidden")).message
        await owners.condition(key, "Stalled", "Forbidden")


async def test_role_that_a_policy_rejects(whole_cluster: Cluster, owners: Owners) -> None:
    home = await owners.make_namespace()
    rule = {
        "apiGroups": [ROLE.group],
        "apiVersions": ["*"],
        "resources": [ROLE.plural],
        "operations": ["CREATE", "UPDATE"],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": home}}
    spec = {
        "matchConstraints": {"namespaceSelector": here, "resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "Roles are not allowed here"}],
    }
    await owners.client.create(POLICY, {"metadata": {"name": home}, "spec": spec})
    enforced = {"policyName": home, "validationActions": ["Deny"]}
    await owners.client.create(BINDING, {"metadata": {"name": home}, "spec": enforced})
    try:
        await eventually(lambda: is_rejected(whole_cluster, home), 30)
        async with Operator(operator_of(whole_cluster), EVERYWHERE, provisioner.build):
            key = await owners.make(home)
            assert "Roles are not allowed here" in (await owners.condition(key, READY, "SpecInvalid")).message
    finally:
        for kind in (BINDING, POLICY):
            await owners.delete(kind, Key("", home))


def is_rejected(cluster: Cluster, namespace: str) -> bool:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles?dryRun=All"
    return cluster.request("POST", path, {"metadata": {"name": "probe"}})[0] == 422
