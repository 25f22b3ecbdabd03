"""The probes of a container of Coder."""

from typing import Annotated

from .markers import Schema
from .shared import AtLeastOne, Int32, Part


class Probe(Part, kw_only=True, frozen=True):
    """An HTTP probe of `/healthz`."""

    enabled: bool = True
    """Whether the pods have this probe."""
    initial_delay_seconds: Annotated[Int32, Schema(minimum=0)] = 0
    """Seconds after the start of the container before the first probe."""
    period_seconds: Annotated[Int32, AtLeastOne] = 10
    """Seconds between probes."""
    timeout_seconds: Annotated[Int32, AtLeastOne] = 1
    """Seconds after which the probe times out."""
    success_threshold: Annotated[Int32, AtLeastOne] = 1
    """Consecutive successes for the probe to be considered successful after a failure."""
    failure_threshold: Annotated[Int32, AtLeastOne] = 3
    """Consecutive failures for the probe to be considered failed."""


class LivenessProbe(Probe, kw_only=True, frozen=True):
    """An HTTP probe of `/healthz` that restarts the container."""

    enabled: bool = False
    success_threshold: Annotated[Int32, Schema(minimum=1, maximum=1)] = 1
    """Must be 1."""
