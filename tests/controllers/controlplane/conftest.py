"""A control plane with a database."""

from tests.support.controlplanes import database, demo

__all__ = ["database", "demo"]
