"""Benchmarks of the operator with a real API server. `make bench` writes docs/performance.md."""
