"""The controller of CoderWorkspaceProxy."""

from .setup import build

__all__ = ["build"]
