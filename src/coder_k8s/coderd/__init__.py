"""Clients for coderd's HTTP API and for the operator's user in its database."""
