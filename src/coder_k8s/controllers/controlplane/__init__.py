"""The controller of CoderControlPlane."""

from .setup import build

__all__ = ["build"]
