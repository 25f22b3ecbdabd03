"""Generators of CRDs, roles, install manifests, chart files and reference pages. Not imported at run time."""
