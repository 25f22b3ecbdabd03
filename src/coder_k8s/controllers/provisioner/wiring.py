"""The controller of CoderProvisioner: its children, watches and permissions."""

from collections.abc import Iterable

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderProvisioner
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.dependents import planes_of_provisioner
from coder_k8s.controllers.pods import by_pod
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.wiring import base_rules, by_reference, controller_of
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import DEPLOYMENT, POD, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key
from coder_k8s.kube.rules import MANAGE, READ, Rule

from .objects import NAME as COMPONENT
from .reconcile import ProvisionerSteps

CHILDREN = (DEPLOYMENT, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, SECRET)

RULES = (
    *base_rules(PROVISIONER),
    Rule((CONTROL_PLANE.group,), (CONTROL_PLANE.plural,), READ),
    Rule(("",), (SERVICE.plural,), ("get",)),  # of a control plane that is being deleted
    Rule(("",), (SECRET.plural, SERVICE_ACCOUNT.plural), MANAGE),
    Rule((ROLE.group,), (ROLE.plural, ROLE_BINDING.plural), MANAGE),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), MANAGE),
    Rule(("",), (POD.plural,), (*READ, "delete")),
)


def build(runtime: Runtime) -> Controller:
    """The controller of CoderProvisioner."""
    context = Context(runtime, PROVISIONER, CHILDREN, read=(POD,))
    controller = controller_of(context, ProvisionerSteps(context))
    controller.watch(runtime.informer(CONTROL_PLANE), by_reference(context.objects, planes_of_provisioner))
    controller.watch(context.secrets, by_reference(context.objects, _secrets))
    controller.watch(context.children.cache(POD), by_pod(context.objects, COMPONENT))
    return controller


def _secrets(provisioner: CoderProvisioner) -> Iterable[Key]:
    if provisioner.spec.bootstrap is None:
        return []
    return [Key(provisioner.metadata.namespace, provisioner.spec.bootstrap.credentials_secret_ref.name)]
