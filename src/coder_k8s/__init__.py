"""A Kubernetes operator for Coder."""

__version__ = "0.1.0"
