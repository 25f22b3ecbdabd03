"""Generators of what is derived from the code: CRDs, roles and the API reference. Never imported at run time."""
