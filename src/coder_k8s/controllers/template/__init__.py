"""The controller of CoderTemplate."""

from .wiring import build

__all__ = ["build"]
