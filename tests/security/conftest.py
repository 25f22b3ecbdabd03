from tests.e2e.conftest import admin, launch, lease_namespace, start

__all__ = ["admin", "launch", "lease_namespace", "start"]
