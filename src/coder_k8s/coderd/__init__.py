"""coderd: its HTTP API, and the operator's own user in its database."""
