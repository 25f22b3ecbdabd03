"""The controller of CoderTemplate: its watches and permissions."""

from collections.abc import Callable, Iterable
from typing import Any

from coder_k8s.api import CONTROL_PLANE
from coder_k8s.api.template import TEMPLATE, CoderTemplate
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.dependents import planes_of_template
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.wiring import base_rules, by_reference, controller_of
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import CONFIG_MAP_METADATA, SECRET, SERVICE
from coder_k8s.kube.objects import Key, Object
from coder_k8s.kube.rules import READ, Rule

from .metrics import TemplateMetrics
from .references import FLUX, FLUX_KINDS, references

RULES = (
    *base_rules(TEMPLATE),
    Rule((CONTROL_PLANE.group,), (CONTROL_PLANE.plural,), READ),
    Rule(("",), (SECRET.plural,), READ),
    Rule(("",), (CONFIG_MAP_METADATA.plural,), READ),
    Rule(("",), (SERVICE.plural,), ("get",)),  # of Flux artifacts
    Rule((FLUX,), tuple(kind.plural for kind in FLUX_KINDS.values()), READ),
)


def build(runtime: Runtime) -> Controller:
    """The controller of CoderTemplate."""
    context = Context(runtime, TEMPLATE, ())
    metrics = TemplateMetrics(runtime.metrics.registry)

    def load() -> Steps[CoderTemplate, Any]:
        from .reconcile import TemplateSteps

        return TemplateSteps(context, metrics)

    controller = controller_of(context, load)
    controller.watch(runtime.informer(CONTROL_PLANE), by_reference(context.objects, planes_of_template))
    referrers = context.objects.index(references)

    def of_kind(kind: str) -> Callable[[Object], Iterable[Key]]:
        return lambda other: referrers[kind, other.key]

    controller.watch(context.secrets, of_kind("Secret"))
    controller.watch(runtime.informer(CONFIG_MAP_METADATA), of_kind("ConfigMap"))
    for name, kind in FLUX_KINDS.items():
        controller.watch(runtime.informer(kind, optional=True), of_kind(name))
    return controller
