"""A small controller runtime: it knows Kubernetes and nothing of what is built on it."""
