"""The controller of CoderControlPlane."""

from .reconcile import Reconciler

__all__ = ["Reconciler"]
