"""A fourth kind: a Digest publishes the digest of a Secret value in a ConfigMap. CONTRIBUTING explains its parts."""

import hashlib
from enum import StrEnum

import msgspec

from coder_k8s.api import VERSION, CoderObject, reasons
from coder_k8s.api.markers import Resource
from coder_k8s.api.shared import Part, SecretKey, Status
from coder_k8s.controllers.context import Context
from coder_k8s.controllers.labels import metadata
from coder_k8s.controllers.reconciler import Steps
from coder_k8s.controllers.rejections import as_condition
from coder_k8s.controllers.report import StatusReport
from coder_k8s.controllers.runtime import Runtime
from coder_k8s.controllers.wiring import by_reference, controller_of
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.installation import install_crds
from coder_k8s.kube.controller import Controller
from coder_k8s.kube.kinds import CONFIG_MAP, SECRET
from coder_k8s.kube.objects import Key, Kind
from tests.support import eventually
from tests.support.operators import Operator

FINALIZER = "digests.example.com/cleanup"
Condition = StrEnum("Condition", {"PUBLISHED": "Published"})


class DigestSpec(Part, kw_only=True, frozen=True):
    secret_ref: SecretKey
    """Secret value to publish the digest of."""


class DigestStatus(Status, kw_only=True):
    digest: str = ""
    """Published digest."""


class Digest(CoderObject, kw_only=True):
    spec: DigestSpec
    """Desired state."""
    status: DigestStatus = msgspec.field(default_factory=DigestStatus)
    """Observed state, set by the operator."""


DIGEST = Kind("digests.example.com", VERSION, "Digest", "digests", Digest)
RESOURCE = Resource(DIGEST, "dig", "digest", (), Condition, {Condition.PUBLISHED: (reasons.APPLIED,)}, ())


class DigestSteps(Steps[Digest, DigestStatus]):
    conditions = frozenset(Condition)

    def __init__(self, context: Context[Digest], external: set[Key]) -> None:
        self._context, self._external, self.finalize = context, external, {FINALIZER: self._clean_up}

    async def steps(self, seen: Digest, report: StatusReport[DigestStatus]) -> Digest:
        seen = await self._context.finalizers.add(seen, FINALIZER)
        self._external |= {seen.key}
        where, name = seen.spec.secret_ref, seen.metadata.name
        text = await self._context.reader.read(Key(seen.key.namespace, where.name), where.key)
        report.status.digest = digest = hashlib.sha256(text.encode()).hexdigest() if text else ""
        wanted = {"metadata": metadata(DIGEST, seen, "digest", name), "data": {"digest": digest}}
        if not text:
            report.add(Condition.PUBLISHED, False, reasons.SECRET_MISSING, f"No {where.key} in Secret {where.name}")
        elif await as_condition(self._context.children.apply(CONFIG_MAP, seen, wanted), report, Condition.PUBLISHED):
            report.add(Condition.PUBLISHED, True, reasons.APPLIED, f"ConfigMap {name} has the digest")
        return seen

    async def _clean_up(self, seen: Digest) -> None:
        self._external.discard(seen.key)


def build(runtime: Runtime, external: set[Key]) -> Controller:
    context = Context(runtime, DIGEST, (CONFIG_MAP,))
    controller = controller_of(context, lambda: DigestSteps(context, external))
    secrets = by_reference(context.objects, lambda digest: [Key(digest.key.namespace, digest.spec.secret_ref.name)])
    controller.watch(context.secrets, secrets)
    return controller


async def test_a_fourth_kind(cluster: ClusterAccess, namespace: str) -> None:
    install_crds(cluster, [RESOURCE])
    external, key = set[Key](), Key(namespace, "demo")
    async with Operator(cluster.kubeconfig, [namespace], lambda runtime: build(runtime, external)) as operator:
        runtime = operator.runtime
        client, digests, children = runtime.client, runtime.informer(DIGEST), runtime.informer(CONFIG_MAP)
        await client.create(
            DIGEST, {"metadata": msgspec.structs.asdict(key), "spec": {"secretRef": {"name": "demo", "key": "text"}}}
        )
        await eventually(
            lambda: [it.reason for seen in digests for it in seen.status.conditions][3:] == ["SecretMissing"]
        )
        await client.create(SECRET, {"metadata": msgspec.structs.asdict(key), "stringData": {"text": "hello"}})
        await eventually(lambda: [it.reason for seen in digests for it in seen.status.conditions][3:] == ["Applied"])
        await client.delete(CONFIG_MAP, first := await client.get(CONFIG_MAP, key))
        await eventually(lambda: (now := children.get(key)) and now.metadata.uid != first.metadata.uid)
        assert external == {key}
        await client.delete(DIGEST, await client.get(DIGEST, key))
        await eventually(lambda: digests.get(key) is None and not external)
