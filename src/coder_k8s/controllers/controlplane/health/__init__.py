"""The health of a control plane, as Coder's own health check reports it."""
