"""The controller of CoderWorkspaceProxy: its children, watches and permissions."""

from collections.abc import Iterable
from typing import Any

from coder_k8s.api import CONTROL_PLANE, WORKSPACE_PROXY, CoderWorkspaceProxy
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.dependents import planes_of_proxy
from coder_k8s.controllers.pods import by_pod
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.wiring import base_rules, controller_of, watch_references
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SECRET, SERVICE
from coder_k8s.kube.objects import Key
from coder_k8s.kube.rules import MANAGE, READ, Rule

from .metrics import ProxyMetrics
from .objects import NAME as COMPONENT
from .objects import secret_name

CHILDREN = (DEPLOYMENT, SERVICE, SECRET)

RULES = (
    *base_rules(WORKSPACE_PROXY),
    Rule((CONTROL_PLANE.group,), (CONTROL_PLANE.plural,), READ),
    Rule(("",), (SECRET.plural,), MANAGE),
    Rule(("",), (SERVICE.plural,), (*READ, "create", "patch")),
    Rule(("",), (POD.plural,), READ),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), MANAGE),
)


def build(runtime: Runtime) -> Controller:
    """The controller of CoderWorkspaceProxy."""
    context = Context(runtime, WORKSPACE_PROXY, CHILDREN, read=(POD,))
    metrics = ProxyMetrics(runtime.metrics.registry)

    def load() -> Steps[CoderWorkspaceProxy, Any]:
        from .reconcile import ProxySteps

        return ProxySteps(context, metrics)

    controller = controller_of(context, load)
    watch_references(controller, context, planes_of_proxy, _secrets)
    controller.watch(context.children.cache(POD), by_pod(context.objects, COMPONENT))
    return controller


def _secrets(proxy: CoderWorkspaceProxy) -> Iterable[Key]:
    """The Secrets that users provide, and the generated Secret, which may belong to another owner."""
    given, bootstrap = proxy.spec.proxy_session_token_secret_ref, proxy.spec.bootstrap
    names = [
        *([given.name] if given else [secret_name(proxy)]),
        *([bootstrap.credentials_secret_ref.name] if bootstrap else []),
    ]
    return [Key(proxy.metadata.namespace, name) for name in names]
