"""Permissions of control planes to run workspaces; see also `tests/controllers/test_workspace_rbac.py`."""

import yaml

from coder_k8s.controllers.controlplane import wiring
from coder_k8s.controllers.controlplane.rbac import ROLES
from coder_k8s.controllers.workspace_roles import OPT_IN
from coder_k8s.dev.cluster import Cluster
from coder_k8s.kube.kinds import ROLE
from coder_k8s.kube.objects import Key
from tests.controllers.workspace_owners import EVERYWHERE, PLANE, READY, owners_of
from tests.support.installation import CONFIG
from tests.support.operators import Operator

from .administrator import administrator, operator_of

LOGS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "watch"]}
NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}


async def test_roles_follow_the_name_of_the_service_account(whole_cluster: Cluster) -> None:
    async with (
        owners_of(whole_cluster.kubeconfig, PLANE) as owners,
        Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build),
    ):
        home = await owners.make_namespace()
        other = await owners.make_namespace({OPT_IN: home})
        key = await owners.make(home, namespaces=[other])
        for name in ("workspaces", "renamed"):
            await owners.change(key, serviceAccount={"name": name})
            await owners.becomes(other, key)
            assert {role.partition("-")[0] for _, role in await owners.granted(other)} == {name}


async def test_only_permissions_of_the_operator_can_be_granted(whole_cluster: Cluster) -> None:
    async with (
        administrator(whole_cluster.kubeconfig) as admin,
        Operator(operator_of(whole_cluster), EVERYWHERE, wiring.build),
    ):
        home = await admin.make_namespace()
        other = await admin.make_namespace({OPT_IN: home})
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
            rules = (await admin.client.get(ROLE, Key(place, ROLES.names(plane, place).role))).manifest["rules"]
            assert LOGS in rules

        await admin.change(key, rbac={"extraRules": [LOGS, NODES]})
        await admin.condition(key, READY, "Forbidden")
        for place in (home, other):
            rules = (await admin.client.get(ROLE, Key(place, ROLES.names(plane, place).role))).manifest["rules"]
            assert NODES not in rules


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
