"""How the controller of CoderProvisioner is put together, and what wakes it."""

from collections.abc import Iterable

from coder_k8s.api import CONTROL_PLANE, PROVISIONER, CoderControlPlane, CoderProvisioner
from coder_k8s.controllers.children import Children
from coder_k8s.controllers.cleanup import Cleanup
from coder_k8s.controllers.dependents import planes_of_provisioner
from coder_k8s.controllers.labels import DIGEST, MANAGED
from coder_k8s.controllers.planes import ControlPlaneResolver
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.secrets import SecretReader
from coder_k8s.controllers.status import StatusWriter
from coder_k8s.kube.apply import Applier
from coder_k8s.kube.backoff import Backoff
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import DEPLOYMENT, POD, ROLE, ROLE_BINDING, SECRET, SECRET_METADATA, SERVICE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Key, PartialObject, Unstructured
from coder_k8s.kube.rules import Rule

from .credentials import Credentials, EntitlementGate
from .keysecret import KeySecret
from .metrics import ProvisionerMetrics
from .reconcile import Reconciler
from .retirement import Retirement
from .rotation import Rotation

NAME = "coderprovisioner"
CHILDREN = (DEPLOYMENT, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, SECRET)

READ = ("get", "list", "watch")
RULES = (
    Rule((PROVISIONER.group,), (PROVISIONER.plural,), (*READ, "patch")),
    Rule((PROVISIONER.group,), (f"{PROVISIONER.plural}/status",), ("patch",)),
    Rule((PROVISIONER.group,), (f"{PROVISIONER.plural}/finalizers",), ("update",)),
    Rule((CONTROL_PLANE.group,), (CONTROL_PLANE.plural,), READ),
    Rule(("",), (SERVICE.plural,), ("get",)),  # of a control plane that is being deleted
    Rule(("",), (SECRET.plural, SERVICE_ACCOUNT.plural), (*READ, "create", "patch", "delete")),
    Rule((ROLE.group,), (ROLE.plural, ROLE_BINDING.plural), (*READ, "create", "patch", "delete")),
    Rule((DEPLOYMENT.group,), (DEPLOYMENT.plural,), (*READ, "create", "patch", "delete")),
    Rule(("",), (POD.plural,), (*READ, "delete")),
)


def build(runtime: Runtime) -> Controller:
    """The controller, with its informers wired to it."""
    provisioners, planes = runtime.informer(PROVISIONER), runtime.informer(CONTROL_PLANE)
    secrets = runtime.informer(SECRET_METADATA)
    caches = {kind: runtime.informer(kind, labels=MANAGED) for kind in CHILDREN}
    caches[POD] = runtime.informer(POD, labels=MANAGED)

    client, recorder, now = runtime.client, runtime.recorder, runtime.now
    children = Children(client, Applier(client, NAME, DIGEST), caches, PROVISIONER)
    reader, secret = SecretReader(client, secrets), KeySecret(children, secrets)
    credentials = Credentials(ControlPlaneResolver(client, planes, reader, runtime.coderd), reader, runtime.coderd)
    status = StatusWriter(client, PROVISIONER, provisioners, recorder, NAME, now, runtime.metrics)
    metrics, queries = ProvisionerMetrics(runtime.metrics.registry), runtime.queries
    cleanup = Cleanup(client, now, provisioners)
    reconciler = Reconciler(
        client,
        provisioners,
        children,
        recorder,
        now,
        credentials=credentials,
        gate=EntitlementGate(now, queries),
        rotation=Rotation(client, provisioners, secret, status, queries, recorder, metrics, now, runtime.rng),
        retirement=Retirement(provisioners, children, secret, credentials, queries, recorder, now, cleanup),
        queries=queries,
        status=status,
        metrics=metrics,
        backoff=Backoff(4.0, 120.0, runtime.rng.random),  # at least half of it is waited: 2 s to 2 min
        writer=NAME,
    )
    controller = Controller(NAME, status.guard(reconciler.reconcile), metrics=runtime.metrics, workers=runtime.workers)

    by_plane, by_secret = provisioners.index(planes_of_provisioner), provisioners.index(_secrets)

    def of_plane(plane: CoderControlPlane) -> Iterable[Key]:
        return by_plane[plane.key]

    def of_secret(secret: PartialObject) -> Iterable[Key]:
        return by_secret[secret.key]

    controller.watch(provisioners)
    controller.watch(planes, of_plane)
    controller.watch(secrets, of_secret)
    for kind in CHILDREN:
        controller.watch(caches[kind], _of_child)
    return controller


def _of_child(child: Unstructured) -> Iterable[Key]:
    owner = child.controller
    if owner is None or owner.kind != PROVISIONER.name:
        return []
    return [Key(child.metadata.namespace, owner.name)]


def _secrets(provisioner: CoderProvisioner) -> Iterable[Key]:
    if provisioner.spec.bootstrap is None:
        return []
    return [Key(provisioner.metadata.namespace, provisioner.spec.bootstrap.credentials_secret_ref.name)]
