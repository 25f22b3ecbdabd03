"""An operator with stale caches revokes and replaces no access that is still needed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.controllers.controlplane.wiring import CHILDREN
from coder_k8s.controllers.workspace_roles import OPT_IN
from coder_k8s.dev.cluster import Cluster, ClusterAccess
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.kinds import HTTP_ROUTE, NAMESPACE_METADATA, ROLE, ROLE_BINDING, SECRET
from coder_k8s.kube.objects import Key, Kind, PartialObject, newer
from tests.controllers.controlplane.administrator import Administrator, operator_of, own_cluster
from tests.controllers.workspace_owners import READY, Subject, both_kinds, owners_of
from tests.faults.stale_views import TIMEOUT, Stale, now
from tests.support import eventually
from tests.support.children import collect_garbage, managed
from tests.support.controlplanes import PlaneNamespace, assert_one_token, env, operator_tokens
from tests.support.databases import CoderdDatabase
from tests.support.forwarding import DELETED, StaleView, is_watch
from tests.support.operators import Operator
from tests.support.rotations import MANAGED

SECRET_NAME = "demo-operator-token"


async def reconcile_stale_plane(demo: PlaneNamespace, version: str, stale: Stale, database: CoderdDatabase) -> None:
    """Reconcile with stale state, then catch up; the token must stay in its Secret and in coderd."""
    token = await assert_one_token(demo, database)
    demo.clock.advance(minutes=1)
    async with stale(version) as (kubeconfig, server):
        demo.kubeconfig = kubeconfig
        async with demo.operator() as operator:
            await eventually(lambda: operator.reconciles() >= 3, TIMEOUT)
            assert token.partition("-")[0] in dict(await operator_tokens(database))
            await server.catch_up()
            live = await demo.get()
            planes = operator.informers[CONTROL_PLANE]
            await eventually(
                lambda: not newer(live.metadata.resource_version, planes.last_sync_version(demo.namespace))
            )
            await operator.wait_idle()
            await demo.condition("OperatorAccessReady", "TokenReady", "True", within=TIMEOUT)
            await operator.wait_idle()
    assert await assert_one_token(demo, database) == token


async def with_access(demo: PlaneNamespace, database: CoderdDatabase) -> None:
    async with demo.operator() as operator:
        await demo.make(extraEnv=env(database.url))
        await demo.condition("OperatorAccessReady", "TokenReady", "True", within=TIMEOUT)
        await operator.wait_idle()


async def test_access_that_is_enabled_again_is_not_revoked(
    demo: PlaneNamespace, database: CoderdDatabase, stale: Stale
) -> None:
    await with_access(demo, database)
    await demo.change(operatorAccess={"disabled": True})
    version = await now(demo.client, demo.namespace)
    await demo.change(operatorAccess={"disabled": False})
    await reconcile_stale_plane(demo, version, stale, database)


async def test_an_existing_token_is_not_created_again(
    demo: PlaneNamespace, database: CoderdDatabase, stale: Stale
) -> None:
    await demo.make(extraEnv=env(database.url))
    version = await now(demo.client, demo.namespace)
    async with demo.operator() as operator:
        await demo.condition("OperatorAccessReady", "TokenReady", "True", within=TIMEOUT)
        await operator.wait_idle()
    await reconcile_stale_plane(demo, version, stale, database)


@pytest.mark.parametrize("lost", ["with its Secret", "in its Secret"])
async def test_a_replaced_token_is_not_replaced_again(
    demo: PlaneNamespace, database: CoderdDatabase, stale: Stale, lost: str
) -> None:
    await with_access(demo, database)
    version, old = await now(demo.client, demo.namespace), await demo.token()
    if lost == "with its Secret":
        await demo.delete(SECRET, SECRET_NAME)
    else:
        await demo.put_secret(SECRET_NAME, token="garbage")
    async with demo.operator() as operator:
        await eventually(lambda: is_renewed(demo, old), TIMEOUT)
        await operator.wait_idle()
    await reconcile_stale_plane(demo, version, stale, database)


async def is_renewed(demo: PlaneNamespace, old: str) -> bool:
    return await demo.token() not in ("", "garbage", old)


@pytest.fixture(scope="module")
def whole_cluster(audit: Path) -> Iterator[Cluster]:
    """A cluster in which the operator watches all namespaces, with one object of the kind under test."""
    with own_cluster(audit) as cluster:
        yield cluster


@both_kinds
async def test_a_namespace_that_opts_in_again_keeps_its_roles(
    whole_cluster: Cluster, tmp_path: Path, subject: Subject
) -> None:
    async with owners_of(whole_cluster.kubeconfig, subject) as admin:
        home, other = await admin.make_namespace(), await admin.make_namespace()
        await admin.label_namespace(other, {OPT_IN: home})
        key = await admin.make(home, namespaces=[other])
        async with Operator(operator_of(whole_cluster), [""], subject.build) as operator:
            await admin.condition(key, READY, "Applied", TIMEOUT)
            await operator.wait_idle()
        before = await rights(admin, other)
        await admin.label_namespace(other, {OPT_IN: None})
        version = await now(admin.client, "")
        await admin.label_namespace(other, {OPT_IN: home})
        async with StaleView(whole_cluster, version) as server:
            kubeconfig = server.kubeconfig(operator_of(whole_cluster), tmp_path / "stale")
            async with Operator(kubeconfig, [""], subject.build) as operator:
                namespaces = operator.informers[NAMESPACE_METADATA]
                await eventually(lambda: operator.reconciles() >= 3, TIMEOUT)
                assert not has_opted_in(namespaces, other), "the cache is not stale"
                assert await rights(admin, other) == before
                await server.catch_up()
                await eventually(lambda: has_opted_in(namespaces, other), TIMEOUT)
                await operator.wait_idle()
        assert await rights(admin, other) == before


def has_opted_in(namespaces: Cache[PartialObject], name: str) -> bool:
    found = namespaces.get(Key("", name))
    return found is not None and OPT_IN in found.metadata.labels


async def rights(admin: Administrator, namespace: str) -> set[str]:
    """The UIDs of the Roles and RoleBindings of a namespace."""
    return {child.metadata.uid for kind in (ROLE, ROLE_BINDING) for child in await admin.all(kind, namespace, MANAGED)}


class DelayedView(StaleView):
    """Serves the objects of a kind as of a version, up to before or after a deletion, and everything else current."""

    def __init__(self, cluster: ClusterAccess, version: str, kind: Kind[Any], *, before: bool) -> None:
        super().__init__(cluster, version)
        self._kind = kind
        self._before = before

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith(self._kind.plural) and not is_watch(request):
            return await super().handle(request)
        return await self.forward(request, request.raw_path)

    async def events(self, request: web.Request, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            last = line.startswith(DELETED) and request.path.endswith(self._kind.plural)
            if last and self._before:
                await self.wait_present(request)
            yield line
            if last:
                await self.wait_present(request)


@both_kinds
@pytest.mark.parametrize("view", ["being deleted", "deleted"])
async def test_a_recreated_object_keeps_its_roles_in_other_namespaces(
    cluster: ClusterAccess, crds: None, operator_kubeconfig: Path, tmp_path: Path, view: str, subject: Subject
) -> None:
    """Roles in other namespaces have no owner UID that would distinguish them from those of the deleted object."""
    async with owners_of(cluster.kubeconfig, subject) as admin:
        home, other = await admin.make_namespace(), await admin.make_namespace()
        build = subject.allowing(other)
        key = await admin.make(home, namespaces=[other])
        async with Operator(operator_kubeconfig, [home, other], build) as operator:
            await admin.condition(key, READY, "Applied", TIMEOUT)
            await operator.wait_idle()
        await admin.delete_owner(key)
        version = await now(admin.client, home)
        async with Operator(operator_kubeconfig, [home, other], build) as operator:
            await admin.gone(subject.kind, key, TIMEOUT)
            kinds = [kind for kind in CHILDREN if kind is not HTTP_ROUTE]
            await collect_garbage(admin.client, await managed(admin.client, kinds, [home]))
            assert not await rights(admin, other)
            await admin.make(home, namespaces=[other])
            await admin.condition(key, READY, "Applied", TIMEOUT)
            await operator.wait_idle()
        before = await rights(admin, other)
        async with DelayedView(cluster, version, subject.kind, before=view == "being deleted") as server:
            kubeconfig = server.kubeconfig(operator_kubeconfig, tmp_path / "stale")
            async with Operator(kubeconfig, [home, other], build) as operator:
                owners = operator.informers[subject.kind]
                await eventually(lambda: (owners.get(key) is None) == (view == "deleted"), TIMEOUT)
                await operator.wait_idle()
                assert operator.reconciles()
                assert await rights(admin, other) == before
                await server.catch_up()
                live = await admin.get(key)
                await eventually(lambda: owners.get(key) == live, TIMEOUT)
                await operator.wait_idle()
        assert len(before) == 2
        assert await rights(admin, other) == before
