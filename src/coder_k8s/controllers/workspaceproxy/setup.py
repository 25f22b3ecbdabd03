"""How the controller of CoderWorkspaceProxy is put together, and what wakes it."""

from coder_k8s.api import WORKSPACE_PROXY
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.kube.controller import Controller

from .reconcile import Reconciler

NAME = "coderworkspaceproxy"


def build(runtime: Runtime) -> Controller:
    """The controller, with its informers wired to it."""
    proxies = runtime.informer(WORKSPACE_PROXY)
    controller = Controller(NAME, Reconciler(proxies).reconcile, metrics=runtime.metrics, workers=runtime.workers)
    controller.watch(proxies)
    return controller
