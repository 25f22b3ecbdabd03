"""The objects that a template refers to, and the kinds of Flux sources, which a cluster may lack."""

from collections.abc import Iterable

import msgspec

from coder_k8s.api.template import CoderTemplate
from coder_k8s.kube.objects import Key, Kind, Object

FLUX = "source.toolkit.fluxcd.io"


class Artifact(msgspec.Struct, frozen=True):
    """What Flux fetched last: a compressed tar archive that it serves inside the cluster."""

    url: str = ""
    digest: str = ""
    revision: str = ""
    size: int | None = None


class FluxStatus(msgspec.Struct, frozen=True):
    """The status of a Flux source."""

    artifact: Artifact | None = None


class FluxSource(Object, kw_only=True):
    """A Flux source with the fields that a template needs."""

    status: FluxStatus = FluxStatus()


FLUX_KINDS = {
    kind.name: kind
    for kind in (
        Kind(FLUX, "v1", "GitRepository", "gitrepositories", FluxSource),
        Kind(FLUX, "v1", "OCIRepository", "ocirepositories", FluxSource),
        Kind(FLUX, "v1", "Bucket", "buckets", FluxSource),
    )
}


def references(template: CoderTemplate) -> Iterable[tuple[str, Key]]:
    """Return the kinds and names of all objects whose change can change the source or the variables of a template."""
    namespace, source = template.metadata.namespace, template.spec.source
    if source.config_map_ref is not None:
        yield "ConfigMap", Key(namespace, source.config_map_ref.name)
    if source.flux_ref is not None:
        yield source.flux_ref.kind, Key(namespace, source.flux_ref.name)
    for variable in template.spec.variables:
        if variable.value_from is not None:
            yield "Secret", Key(namespace, variable.value_from.secret_key_ref.name)
