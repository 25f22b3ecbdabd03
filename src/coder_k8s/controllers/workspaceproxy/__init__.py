"""The controller of CoderWorkspaceProxy."""

from .wiring import build

__all__ = ["build"]
