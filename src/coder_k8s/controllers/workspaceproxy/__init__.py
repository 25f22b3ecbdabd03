"""The controller of CoderWorkspaceProxy."""

from .reconcile import Reconciler

__all__ = ["Reconciler"]
