"""What the operator costs, measured on a real API server: `make bench` writes docs/performance.md."""
