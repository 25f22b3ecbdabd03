"""Generators of what is derived from the code: CRDs, roles, ways to install, references. Never imported at run time."""
