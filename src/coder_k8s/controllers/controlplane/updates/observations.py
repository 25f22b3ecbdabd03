"""What the steps of an update observe."""

from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

import msgspec


class Schema(Enum):
    """The schema of the database, compared with that of the new image."""

    SAME = auto()
    OLDER = auto()
    """The new image migrates it."""
    NEWER = auto()
    """The new image cannot use it."""
    EMPTY = auto()
    """Coder has never started with this database."""
    UNKNOWN = auto()
    """The image was not asked, because its environment has no URL of a database."""


class Verdict(NamedTuple):
    """What the preflight found about the new image."""

    version: str = ""
    schema: Schema = Schema.UNKNOWN
    error: str = ""
    """Why the image cannot be used; empty if it can."""


class Backup(msgspec.Struct, frozen=True):
    """The backup that an update requires."""

    done: str = ""
    """Name of the completed backup."""
    error: str = ""
    """Why there is none and none is in progress."""
    waived: bool = False
    """Whether the spec requires none."""


class Verification(msgspec.Struct, frozen=True):
    """What the pod of the new image reports about itself."""

    version: str = ""
    """Empty while the pod cannot be queried."""
    expected: bool = True
    """Whether this is the version that the preflight found, or the tag of the image can move."""
    access: bool = True
    """Whether the operator has access to Coder's API, as far as the spec wants it."""


class Seen(NamedTuple):
    """The control plane, its Deployment and its pods; the last part is gathered only in steps that use it."""

    now: datetime
    image: str
    """`spec.image`."""
    replicas: int = 1
    """`spec.replicas`."""
    strategy: str = "Auto"
    inputs: str = ""
    """Hash of what the preflight depends on, besides the image."""
    running: str = ""
    """`status.image`: the image of the last complete rollout."""
    version: str = ""
    """`status.version`."""
    live_image: str = ""
    """Image of the Deployment; empty if it does not exist."""
    live_replicas: int = 0
    """`spec.replicas` of the Deployment."""
    has_pods: bool = False
    """Whether there are pods, including those that stop."""

    verdict: Verdict | None = None
    """Of the preflight; `None` while it runs."""
    invalid: str = ""
    """Why the API server rejects the Deployment."""
    unpulled: str = ""
    """Why the pod of the preflight does not start."""
    window_open: bool = True
    backup: Backup = Backup()
    drained: bool = True
    undrained: str = ""
    """Why builds may fail if the pods stop now."""
    readable: bool = True
    """Whether Coder reports which builds run."""
    drain_timeout: float = 1800.0
    abort: bool = False
    """Whether a drain that takes too long aborts the update."""
    stopped: bool = False
    """Whether the Deployment has no replicas and no pod is left, read from the API server."""
    ready: bool = False
    """Whether a pod of the new image is ready."""
    crashing: str = ""
    """Why a pod of the new image exits again and again."""
    migration_timeout: float = 1800.0
    schema: int = 0
    """Number of the schema in the database; 0 if it is not known."""
    dirty: bool = False
    """Whether a migration of the database failed in the middle."""
    verification: Verification = Verification()
    probed: bool = True
    """Whether a pod is ready only when Coder serves, which it does after the migration."""
    complete: bool = False
    """Whether all wanted pods of the new image are ready, and no others exist."""
    fleet: bool = False
    """Whether the provisioners of the control plane run the new image."""
