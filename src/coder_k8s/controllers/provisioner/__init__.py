"""The controller of CoderProvisioner."""

from .setup import build

__all__ = ["build"]
