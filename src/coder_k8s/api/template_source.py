"""Where the files of a CoderTemplate come from."""

from typing import Annotated, ClassVar

from .markers import Check, Schema
from .shared import NotEmpty, ObjectName, Part

INLINE_LIMIT = 256 * 1024
"""Characters of all inline files together."""
FILES_LIMIT = 500


class InlineSource(Part, kw_only=True, frozen=True):
    """Files in the object itself."""

    files: Annotated[
        dict[str, Annotated[str, Schema(maxLength=INLINE_LIMIT)]],
        Schema(minProperties=1, maxProperties=FILES_LIMIT),
        Check(
            f"self.map(name, size(self[name])).sum() <= {INLINE_LIMIT}",
            "all files together must not exceed 256 KiB: use configMapRef or fluxRef",
        ),
    ]
    """Content of each file by its relative path, such as `main.tf`; at most 256 KiB together."""


class ConfigMapRef(Part, kw_only=True, frozen=True):
    """A ConfigMap in the same namespace."""

    name: Annotated[ObjectName, NotEmpty]
    """Name of the ConfigMap. Each key is the path of a file, with `__` in place of `/`."""


class FluxRef(Part, kw_only=True, frozen=True):
    """A source of Flux in the same namespace."""

    kind: Annotated[str, Schema(enum=["GitRepository", "OCIRepository", "Bucket"])]
    """Kind of the source."""
    name: Annotated[ObjectName, NotEmpty]
    """Name of the source."""
    path: Annotated[
        str,
        Schema(maxLength=256),
        Check(
            "self == '' || (!self.startsWith('/') && !self.split('/').exists(part, part == '..'))",
            "must be a relative path without '..', such as ./templates/go",
        ),
    ] = ""
    """Directory of the template in the source. Defaults to its root."""


class Source(Part, kw_only=True, frozen=True):
    """The files of a template."""

    checks: ClassVar[tuple[Check, ...]] = (
        Check(
            "[has(self.inline), has(self.configMapRef), has(self.fluxRef)].filter(given, given).size() == 1",
            "set exactly one of inline, configMapRef and fluxRef",
        ),
    )

    inline: InlineSource | None = None
    """Files in this object."""
    config_map_ref: ConfigMapRef | None = None
    """Files in a ConfigMap."""
    flux_ref: FluxRef | None = None
    """Files in the artifact of a Flux source."""
