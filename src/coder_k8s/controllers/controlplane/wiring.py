"""The controller of CoderControlPlane: its children, watches and permissions."""

from collections.abc import Iterable, Sequence

from coder_k8s.api import (
    CONTROL_PLANE,
    PROVISIONER,
    TEMPLATE,
    WORKSPACE_PROXY,
    CoderControlPlane,
    CoderProvisioner,
    CoderWorkspaceProxy,
)
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.dependents import planes_of_provisioner, planes_of_proxy, planes_to_delete_from
from coder_k8s.controllers.pods import by_pod
from coder_k8s.controllers.resolver import CoderdResolver
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.wiring import base_rules, controller_of
from coder_k8s.controllers.workspace_rbac import WorkspaceRBAC
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import (
    BACKUP,
    CONFIG_MAP_METADATA,
    DEPLOYMENT,
    HTTP_ROUTE,
    INGRESS,
    JOB,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from coder_k8s.kube.objects import Key, PartialObject
from coder_k8s.kube.rules import MANAGE, READ, Rule

from .access import OperatorAccess
from .coderd import CoderdSteps
from .deletion import Deletion
from .entitlements import EntitlementWatcher
from .health.metrics import HealthMetrics
from .health.watcher import HealthWatcher
from .jobs.watcher import JobsWatcher
from .license import LicenseApplier
from .metrics import LicenseMetrics
from .objects import NAME as COMPONENT
from .rbac import ROLES
from .reconcile import ControlPlaneSteps
from .revocation import Revocation
from .sources import Sources, sources
from .updates.fleet import Fleet, depends_on_provisioners
from .updates.metrics import UpdateMetrics
from .updates.preflight import COMPONENT as PREFLIGHT
from .updates.updater import Updater, is_updating

CHILDREN = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, INGRESS, HTTP_ROUTE, SECRET, JOB)

RULES = (
    *base_rules(CONTROL_PLANE),
    Rule(("",), (SERVICE.plural,), (*READ, "create", "patch")),
    Rule(("",), (SERVICE_ACCOUNT.plural,), MANAGE),
    Rule((INGRESS.group,), (INGRESS.plural,), MANAGE),
    Rule((HTTP_ROUTE.group,), (HTTP_ROUTE.plural,), MANAGE),
    Rule(("",), (SECRET.plural,), MANAGE),
    Rule(("",), (CONFIG_MAP_METADATA.plural,), READ),
    Rule((JOB.group,), (JOB.plural,), ("list", "watch", "create", "delete")),
    Rule((BACKUP.group,), (BACKUP.plural,), ("list", "create")),
)


def build(runtime: Runtime, allow_workspace_namespaces: Sequence[str] = ()) -> Controller:
    """The controller of CoderControlPlane."""
    context = Context(runtime, CONTROL_PLANE, CHILDREN, read=(POD,), optional=(HTTP_ROUTE,))
    rbac = WorkspaceRBAC(context, ROLES, allow_workspace_namespaces)
    revocation = Revocation(context)
    dependents = (runtime.informer(PROVISIONER), runtime.informer(WORKSPACE_PROXY), runtime.informer(TEMPLATE))
    deletion = Deletion(context, *dependents, revocation)
    fleet = Fleet(CoderdResolver(context), runtime.informer(PROVISIONER), context.children)
    steps = ControlPlaneSteps(
        context,
        Sources(context.client, context.secrets, runtime.informer(CONFIG_MAP_METADATA)),
        rbac,
        CoderdSteps(
            OperatorAccess(context, revocation),
            LicenseApplier(context),
            EntitlementWatcher(context.recorder, LicenseMetrics(runtime.metrics.registry), context.now),
            HealthWatcher(context.recorder, HealthMetrics(runtime.metrics.registry), context.now),
            JobsWatcher(context),
            deletion,
            runtime.informer(PROVISIONER),
        ),
        deletion,
        Updater(context, fleet, UpdateMetrics(runtime.metrics.registry)),
    )
    controller = controller_of(context, lambda: steps)
    rbac.watch(controller)
    _watch_references(controller, context)
    _watch_dependents(controller, context, deletion)
    return controller


def _watch_references(controller: Controller, context: Context[CoderControlPlane]) -> None:
    """Watch the Secrets and ConfigMaps of a control plane, and its pods."""
    referrers = context.objects.index(_references)

    def of_secret(secret: PartialObject) -> Iterable[Key]:
        return referrers["Secret", secret.key]

    def of_config_map(config_map: PartialObject) -> Iterable[Key]:
        return referrers["ConfigMap", config_map.key]

    controller.watch(context.secrets, of_secret)
    controller.watch(context.runtime.informer(CONFIG_MAP_METADATA), of_config_map)
    for component in (COMPONENT, PREFLIGHT):
        controller.watch(context.children.cache(POD), by_pod(context.objects, component, is_updating))


def _watch_dependents(controller: Controller, context: Context[CoderControlPlane], deletion: Deletion) -> None:
    """Watch what refers to a control plane; only its creation and deletion require a reconcile of a control plane."""

    def is_affected(key: Key) -> bool:
        plane = context.objects.get(key)
        return plane is not None and (deletion.is_affected(plane) or depends_on_provisioners(plane))

    def of_provisioner(provisioner: CoderProvisioner) -> Iterable[Key]:
        return filter(is_affected, planes_of_provisioner(provisioner))

    def of_proxy(proxy: CoderWorkspaceProxy) -> Iterable[Key]:
        return filter(is_affected, planes_of_proxy(proxy))

    controller.watch(context.runtime.informer(PROVISIONER), of_provisioner)
    controller.watch(context.runtime.informer(WORKSPACE_PROXY), of_proxy)
    controller.watch(
        context.runtime.informer(TEMPLATE), lambda template: filter(is_affected, planes_to_delete_from(template))
    )


def _references(plane: CoderControlPlane) -> Iterable[tuple[object, ...]]:
    """The Secrets and ConfigMaps of a control plane."""
    for source in sources(plane):
        yield source.kind, Key(plane.metadata.namespace, source.name)
    for reference in (plane.spec.license_secret_ref, plane.spec.operator_access.token_secret_ref):
        if reference is not None:
            yield "Secret", Key(plane.metadata.namespace, reference.name)
