"""How the controller of CoderWorkspaceProxy is put together, and what wakes it."""

from collections.abc import Iterable

from coder_k8s.api import CONTROL_PLANE, WORKSPACE_PROXY, CoderControlPlane, CoderWorkspaceProxy
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.cleanup import PROXY_FINALIZER, Cleanup
from coder_k8s.controllers.dependents import planes_of_proxy
from coder_k8s.controllers.labels import DIGEST, MANAGED
from coder_k8s.controllers.planes import ControlPlaneResolver
from coder_k8s.controllers.pods import by_pod
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.secrets import SecretReader
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.kube import finalizers
from coder_k8s.kube.apply import Applier
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import DEPLOYMENT, POD, SECRET, SECRET_METADATA, SERVICE
from coder_k8s.kube.objects import Key, PartialObject, Unstructured
from coder_k8s.kube.rules import Rule

from .metrics import ProxyMetrics
from .objects import NAME as LABEL
from .objects import secret_name
from .places import CoderdResolver
from .reconcile import Reconciler
from .registrar import Registrar
from .retirement import Retirement
from .tokens import Tokens
from .verdicts import Answers

NAME = "coderworkspaceproxy"
CHILDREN = (DEPLOYMENT, SERVICE, SECRET)

READ = ("get", "list", "watch")
MANAGE = (*READ, "create", "patch", "delete")
RULES = (
    Rule((WORKSPACE_PROXY.group,), (WORKSPACE_PROXY.plural,), (*READ, "patch")),
    Rule((WORKSPACE_PROXY.group,), (f"{WORKSPACE_PROXY.plural}/status",), ("patch",)),
    # An owner reference that blocks the owner's deletion asks for this right where that is enforced.
    Rule((WORKSPACE_PROXY.group,), (f"{WORKSPACE_PROXY.plural}/finalizers",), ("update",)),
    Rule((CONTROL_PLANE.group,), (CONTROL_PLANE.plural,), READ),
    Rule(("",), (SECRET.plural,), MANAGE),
    Rule(("",), (SERVICE.plural,), (*READ, "create", "patch")),
    Rule(("",), (POD.plural,), READ),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), MANAGE),
)


def build(runtime: Runtime) -> Controller:
    """The controller, with its informers wired to it."""
    proxies, planes = runtime.informer(WORKSPACE_PROXY), runtime.informer(CONTROL_PLANE)
    secrets = runtime.informer(SECRET_METADATA)
    caches = {kind: runtime.informer(kind, labels=MANAGED) for kind in (*CHILDREN, POD)}

    client, recorder, now = runtime.client, runtime.recorder, runtime.now

    async def hold(proxy: CoderWorkspaceProxy) -> CoderWorkspaceProxy:
        held = await finalizers.add(client, WORKSPACE_PROXY, proxy, PROXY_FINALIZER)
        proxies.record_write(held, NAME)
        return held

    children = Children(client, Applier(client, NAME, DIGEST), caches, WORKSPACE_PROXY)
    reader = SecretReader(client, secrets)
    places = CoderdResolver(ControlPlaneResolver(client, planes, reader, runtime.coderd), reader, runtime.coderd)
    tokens = Tokens(children, secrets)
    status = StatusWriter(client, WORKSPACE_PROXY, proxies, recorder, NAME, now, runtime.metrics)
    metrics = ProxyMetrics(runtime.metrics.registry)
    answers = Answers(now, Backoff(2.0, 120.0, runtime.rng.random))
    reconciler = Reconciler(
        client,
        proxies,
        children,
        reader,
        places=places,
        tokens=tokens,
        registrar=Registrar(proxies, tokens, status, recorder, metrics, answers, hold),
        retirement=Retirement(client, proxies, places, recorder, Cleanup(client, now, proxies)),
        answers=answers,
        status=status,
        metrics=metrics,
        writer=NAME,
    )
    controller = Controller(NAME, status.guard(reconciler.reconcile), metrics=runtime.metrics, workers=runtime.workers)

    by_plane = proxies.index(planes_of_proxy)
    by_secret = proxies.index(_secrets)

    def of_plane(plane: CoderControlPlane) -> Iterable[Key]:
        return by_plane[plane.key]

    def of_secret(secret: PartialObject) -> Iterable[Key]:
        return by_secret[secret.key]

    controller.watch(proxies)
    controller.watch(planes, of_plane)
    controller.watch(secrets, of_secret)
    for kind in CHILDREN:
        controller.watch(caches[kind], _of_child)
    controller.watch(caches[POD], by_pod(proxies, LABEL))
    return controller


def _of_child(child: Unstructured) -> Iterable[Key]:
    owner = child.controller
    if owner is None or owner.kind != WORKSPACE_PROXY.name:
        return []
    return [Key(child.metadata.namespace, owner.name)]


def _secrets(proxy: CoderWorkspaceProxy) -> Iterable[Key]:
    """The Secrets that somebody else keeps for it, and the one that may be in our way."""
    given, bootstrap = proxy.spec.proxy_session_token_secret_ref, proxy.spec.bootstrap
    names = [
        *([given.name] if given else [secret_name(proxy)]),
        *([bootstrap.credentials_secret_ref.name] if bootstrap else []),
    ]
    return [Key(proxy.metadata.namespace, name) for name in names]
