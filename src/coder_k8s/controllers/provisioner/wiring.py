"""The controller of CoderProvisioner: its children, watches and permissions."""

from collections.abc import Iterable, Sequence
from typing import Any

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderProvisioner
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.dependents import planes_of_provisioner
from coder_k8s.controllers.pods import by_pod
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.wiring import base_rules, controller_of, watch_references
from coder_k8s.controllers.workspace_rbac import WorkspaceRBAC
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import (
    DEPLOYMENT,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from coder_k8s.kube.objects import Key
from coder_k8s.kube.rules import MANAGE, READ, Rule

from .metrics import ProvisionerMetrics
from .objects import NAME as COMPONENT
from .rbac import ROLES
from .scaling_metrics import ScalingMetrics

CHILDREN = (DEPLOYMENT, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, SECRET, POD_DISRUPTION_BUDGET)

RULES = (
    *base_rules(PROVISIONER),
    Rule((CONTROL_PLANE.group,), (CONTROL_PLANE.plural,), READ),
    Rule(("",), (SERVICE.plural,), ("get",)),  # of a control plane that is being deleted
    Rule(("",), (SECRET.plural, SERVICE_ACCOUNT.plural), MANAGE),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), MANAGE),
    Rule(("",), (POD.plural,), (*READ, "delete", "patch")),  # protects pods with a running build
    Rule(
        (POD_DISRUPTION_BUDGET.group,), (POD_DISRUPTION_BUDGET.plural,), ("list", "watch", "create", "patch", "delete")
    ),
)


def build(runtime: Runtime, allow_workspace_namespaces: Sequence[str] = ()) -> Controller:
    """The controller of CoderProvisioner."""
    context = Context(runtime, PROVISIONER, CHILDREN, read=(POD,))
    rbac = WorkspaceRBAC(context, ROLES, allow_workspace_namespaces)
    metrics = ProvisionerMetrics(runtime.metrics.registry), ScalingMetrics(runtime.metrics.registry)

    def load() -> Steps[CoderProvisioner, Any]:
        from .reconcile import ProvisionerSteps

        return ProvisionerSteps(context, rbac, *metrics)

    controller = controller_of(context, load)
    rbac.watch(controller)
    watch_references(controller, context, planes_of_provisioner, _secrets)
    controller.watch(context.children.cache(POD), by_pod(context.objects, COMPONENT))
    return controller


def _secrets(provisioner: CoderProvisioner) -> Iterable[Key]:
    if provisioner.spec.bootstrap is None:
        return []
    return [Key(provisioner.metadata.namespace, provisioner.spec.bootstrap.credentials_secret_ref.name)]
