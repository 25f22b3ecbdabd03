"""How the controller of CoderControlPlane is put together, and what wakes it."""

from collections.abc import Iterable, Sequence

from coder_k8s.api import (
    CONTROL_PLANE,
    PROVISIONER,
    WORKSPACE_PROXY,
    CoderControlPlane,
    CoderProvisioner,
    CoderWorkspaceProxy,
)
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.cleanup import Cleanup
from coder_k8s.controllers.dependents import planes_of_provisioner, planes_of_proxy
from coder_k8s.controllers.labels import DIGEST, MANAGED
from coder_k8s.controllers.permissions import VERBS
from coder_k8s.controllers.pods import by_pod
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.kube.apply import Applier
from coder_k8s.kube.cache import Cache
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import (
    CONFIG_MAP_METADATA,
    DEPLOYMENT,
    HTTP_ROUTE,
    INGRESS,
    NAMESPACE_METADATA,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SECRET_METADATA,
    SERVICE,
    SERVICE_ACCOUNT,
)
from coder_k8s.kube.objects import Key, PartialObject, Unstructured
from coder_k8s.kube.rules import Rule

from .access import OperatorAccess
from .deletion import Deletion
from .entitlements import EntitlementWatcher
from .exposure import Exposure
from .license import LicenseApplier
from .metrics import LicenseMetrics
from .objects import NAME as COMPONENT
from .rbac import PLANE, PLANE_NAMESPACE, WorkspaceRBAC, identity, wanted_elsewhere
from .reconcile import Reconciler
from .revocation import Revocation
from .sources import Sources, sources

NAME = "codercontrolplane"
CHILDREN = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS, HTTP_ROUTE, SECRET)

READ = ("get", "list", "watch")
MANAGE = (*READ, "create", "patch", "delete")
RULES = (
    Rule((CONTROL_PLANE.group,), (CONTROL_PLANE.plural,), (*READ, "patch")),
    Rule((CONTROL_PLANE.group,), (f"{CONTROL_PLANE.plural}/status",), ("patch",)),
    # An owner reference that blocks the owner's deletion asks for this right where that is enforced.
    Rule((CONTROL_PLANE.group,), (f"{CONTROL_PLANE.plural}/finalizers",), ("update",)),
    Rule(("",), (SERVICE.plural,), (*READ, "create", "patch")),
    Rule(("",), (SERVICE_ACCOUNT.plural,), MANAGE),
    Rule((INGRESS.group,), (INGRESS.plural,), MANAGE),
    Rule((HTTP_ROUTE.group,), (HTTP_ROUTE.plural,), MANAGE),
    Rule((ROLE.group,), (ROLE.plural, ROLE_BINDING.plural), MANAGE),
    Rule(("",), (SECRET.plural,), MANAGE),
    Rule(("",), (CONFIG_MAP_METADATA.plural,), READ),
    Rule(("",), (NAMESPACE_METADATA.plural,), READ, cluster_scoped=True),
    # What Coder gets to run workspaces: one can only grant what one holds.
    Rule(("",), ("pods", "persistentvolumeclaims"), VERBS),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), VERBS),
)


def build(runtime: Runtime, allow_workspace_namespaces: Sequence[str] = ()) -> Controller:
    """The controller, with its informers wired to it."""
    planes = runtime.informer(CONTROL_PLANE)
    secrets, config_maps = runtime.informer(SECRET_METADATA), runtime.informer(CONFIG_MAP_METADATA)
    namespaces = runtime.informer(NAMESPACE_METADATA) if runtime.everywhere else None
    caches = {kind: runtime.informer(kind, labels=MANAGED, optional=kind is HTTP_ROUTE) for kind in CHILDREN}

    caches[POD] = runtime.informer(POD, labels=MANAGED)

    children = Children(runtime.client, Applier(runtime.client, NAME, DIGEST), caches, CONTROL_PLANE)
    client, recorder, now = runtime.client, runtime.recorder, runtime.now
    cleanup = Cleanup(client, now, planes)
    revocation = Revocation(client, children, secrets, runtime.coderd, recorder, planes, NAME)
    dependents = runtime.informer(PROVISIONER), runtime.informer(WORKSPACE_PROXY)
    deletion = Deletion(client, *dependents, revocation, recorder, cleanup)
    status = StatusWriter(client, CONTROL_PLANE, planes, recorder, NAME, now, runtime.metrics)
    reconciler = Reconciler(
        client,
        planes,
        children,
        recorder,
        cleanup,
        environment=Sources(client, secrets, config_maps),
        rbac=WorkspaceRBAC(client, children, namespaces, runtime.namespaces, allow_workspace_namespaces),
        exposure=Exposure(children, now),
        access=OperatorAccess(client, children, secrets, runtime.coderd, revocation, recorder, now, runtime.rng),
        license=LicenseApplier(client, secrets, recorder, now),
        entitlements=EntitlementWatcher(recorder, LicenseMetrics(runtime.metrics.registry), now),
        deletion=deletion,
        status=status,
        writer=NAME,
    )
    controller = Controller(NAME, status.guard(reconciler.reconcile), metrics=runtime.metrics, workers=runtime.workers)

    mentions = planes.index(_mentions)

    def of_child(child: Unstructured) -> Iterable[Key]:
        owner = child.controller
        if owner is not None:
            return [Key(child.metadata.namespace, owner.name)] if owner.kind == CONTROL_PLANE.name else []
        labels = child.metadata.labels
        return mentions[PLANE, labels.get(PLANE_NAMESPACE), labels.get(PLANE)]

    def of_secret(secret: PartialObject) -> Iterable[Key]:
        return mentions["Secret", secret.key]

    def of_config_map(config_map: PartialObject) -> Iterable[Key]:
        return mentions["ConfigMap", config_map.key]

    def of_namespace(namespace: PartialObject) -> Iterable[Key]:
        return mentions["Namespace", namespace.metadata.name]

    controller.watch(planes)
    for kind in CHILDREN:
        controller.watch(caches[kind], of_child)
    controller.watch(caches[POD], by_pod(planes, COMPONENT))
    controller.watch(secrets, of_secret)
    controller.watch(config_maps, of_config_map)
    _watch_dependents(controller, runtime, planes, deletion)
    if namespaces is not None:
        controller.watch(namespaces, of_namespace)
    return controller


def _watch_dependents(
    controller: Controller, runtime: Runtime, planes: Cache[CoderControlPlane], deletion: Deletion
) -> None:
    """Provisioners and proxies, which report often: a control plane cares only that they come and go."""

    def is_concerned(key: Key) -> bool:
        plane = planes.get(key)
        return plane is not None and deletion.is_concerned(plane)

    def of_provisioner(provisioner: CoderProvisioner) -> Iterable[Key]:
        return filter(is_concerned, planes_of_provisioner(provisioner))

    def of_proxy(proxy: CoderWorkspaceProxy) -> Iterable[Key]:
        return filter(is_concerned, planes_of_proxy(proxy))

    controller.watch(runtime.informer(PROVISIONER), of_provisioner)
    controller.watch(runtime.informer(WORKSPACE_PROXY), of_proxy)


def _mentions(plane: CoderControlPlane) -> Iterable[tuple[object, ...]]:
    """All that a control plane refers to, and by what its Roles elsewhere refer to it."""
    labels = identity(plane.key)
    yield PLANE, labels[PLANE_NAMESPACE], labels[PLANE]
    for source in sources(plane):
        yield source.kind, Key(plane.metadata.namespace, source.name)
    for reference in (plane.spec.license_secret_ref, plane.spec.operator_access.token_secret_ref):
        if reference is not None:
            yield "Secret", Key(plane.metadata.namespace, reference.name)
    for namespace in wanted_elsewhere(plane):
        yield "Namespace", namespace
