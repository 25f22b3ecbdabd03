"""The controller of CoderControlPlane: its children, watches and permissions."""

from collections.abc import Iterable, Sequence

from coder_k8s.api import (
    CONTROL_PLANE,
    PROVISIONER,
    WORKSPACE_PROXY,
    CoderControlPlane,
    CoderProvisioner,
    CoderWorkspaceProxy,
)
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.dependents import planes_of_provisioner, planes_of_proxy
from coder_k8s.controllers.permissions import VERBS
from coder_k8s.controllers.pods import by_pod
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.wiring import base_rules, controller_of
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
    SERVICE,
    SERVICE_ACCOUNT,
)
from coder_k8s.kube.objects import Key, PartialObject, Unstructured
from coder_k8s.kube.rules import MANAGE, READ, Rule

from .access import OperatorAccess
from .deletion import Deletion
from .entitlements import EntitlementWatcher
from .license import LicenseApplier
from .metrics import LicenseMetrics
from .objects import NAME as COMPONENT
from .rbac import PLANE, PLANE_NAMESPACE, WorkspaceRBAC, identity, wanted_elsewhere
from .reconcile import ControlPlaneSteps
from .revocation import Revocation
from .sources import Sources, sources

CHILDREN = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS, HTTP_ROUTE, SECRET)

RULES = (
    *base_rules(CONTROL_PLANE),
    Rule(("",), (SERVICE.plural,), (*READ, "create", "patch")),
    Rule(("",), (SERVICE_ACCOUNT.plural,), MANAGE),
    Rule((INGRESS.group,), (INGRESS.plural,), MANAGE),
    Rule((HTTP_ROUTE.group,), (HTTP_ROUTE.plural,), MANAGE),
    Rule((ROLE.group,), (ROLE.plural, ROLE_BINDING.plural), MANAGE),
    Rule(("",), (SECRET.plural,), MANAGE),
    Rule(("",), (CONFIG_MAP_METADATA.plural,), READ),
    Rule(("",), (NAMESPACE_METADATA.plural,), READ, cluster_scoped=True),
    # The permissions that Coder needs to run workspaces: the operator can grant only what it has.
    Rule(("",), ("pods", "persistentvolumeclaims"), VERBS),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), VERBS),
)


def build(runtime: Runtime, allow_workspace_namespaces: Sequence[str] = ()) -> Controller:
    """The controller of CoderControlPlane."""
    context = Context(runtime, CONTROL_PLANE, CHILDREN, read=(POD,), optional=(HTTP_ROUTE,))
    namespaces = runtime.informer(NAMESPACE_METADATA) if runtime.everywhere else None
    revocation = Revocation(context)
    deletion = Deletion(context, runtime.informer(PROVISIONER), runtime.informer(WORKSPACE_PROXY), revocation)
    steps = ControlPlaneSteps(
        context,
        Sources(context.client, context.secrets, runtime.informer(CONFIG_MAP_METADATA)),
        WorkspaceRBAC(context.client, context.children, namespaces, runtime.namespaces, allow_workspace_namespaces),
        OperatorAccess(context, revocation),
        LicenseApplier(context),
        EntitlementWatcher(context.recorder, LicenseMetrics(runtime.metrics.registry), context.now),
        deletion,
    )
    controller = controller_of(context, steps)
    _watch_references(controller, context)
    _watch_dependents(controller, context, deletion)
    return controller


def _watch_references(controller: Controller, context: Context[CoderControlPlane]) -> None:
    """Watch what a control plane refers to, its pods, and its Roles in other namespaces."""
    referrers = context.objects.index(_references)

    def of_secret(secret: PartialObject) -> Iterable[Key]:
        return referrers["Secret", secret.key]

    def of_config_map(config_map: PartialObject) -> Iterable[Key]:
        return referrers["ConfigMap", config_map.key]

    def of_namespace(namespace: PartialObject) -> Iterable[Key]:
        return referrers["Namespace", namespace.metadata.name]

    def of_role(role: Unstructured) -> Iterable[Key]:
        labels = role.metadata.labels
        return referrers[PLANE, labels.get(PLANE_NAMESPACE), labels.get(PLANE)] if role.controller is None else []

    controller.watch(context.secrets, of_secret)
    controller.watch(context.runtime.informer(CONFIG_MAP_METADATA), of_config_map)
    if context.runtime.everywhere:
        controller.watch(context.runtime.informer(NAMESPACE_METADATA), of_namespace)
    for kind in (ROLE, ROLE_BINDING):
        controller.watch(context.children.cache(kind), of_role)
    controller.watch(context.children.cache(POD), by_pod(context.objects, COMPONENT))


def _watch_dependents(controller: Controller, context: Context[CoderControlPlane], deletion: Deletion) -> None:
    """Watch provisioners and proxies; only their creation and deletion require a reconcile of a control plane."""

    def is_affected(key: Key) -> bool:
        plane = context.objects.get(key)
        return plane is not None and deletion.is_affected(plane)

    def of_provisioner(provisioner: CoderProvisioner) -> Iterable[Key]:
        return filter(is_affected, planes_of_provisioner(provisioner))

    def of_proxy(proxy: CoderWorkspaceProxy) -> Iterable[Key]:
        return filter(is_affected, planes_of_proxy(proxy))

    controller.watch(context.runtime.informer(PROVISIONER), of_provisioner)
    controller.watch(context.runtime.informer(WORKSPACE_PROXY), of_proxy)


def _references(plane: CoderControlPlane) -> Iterable[tuple[object, ...]]:
    """What a control plane refers to, and the labels by which its Roles in other namespaces refer to it."""
    labels = identity(plane.key)
    yield PLANE, labels[PLANE_NAMESPACE], labels[PLANE]
    for source in sources(plane):
        yield source.kind, Key(plane.metadata.namespace, source.name)
    for reference in (plane.spec.license_secret_ref, plane.spec.operator_access.token_secret_ref):
        if reference is not None:
            yield "Secret", Key(plane.metadata.namespace, reference.name)
    for namespace in wanted_elsewhere(plane):
        yield "Namespace", namespace
