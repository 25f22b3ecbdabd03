"""The controller of CoderControlPlane."""

from .wiring import build

__all__ = ["build"]
