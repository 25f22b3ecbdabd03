"""The controller of CoderProvisioner."""

from .reconcile import Reconciler

__all__ = ["Reconciler"]
