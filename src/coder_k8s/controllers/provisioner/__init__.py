"""The controller of CoderProvisioner."""

from .wiring import build

__all__ = ["build"]
