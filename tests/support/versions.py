"""Which Kubernetes the tests run on, where API servers answer differently."""

import json

from coder_k8s.dev.cluster import ClusterAccess


def minor(cluster: ClusterAccess) -> int:
    """The 30 of 1.30.14."""
    return int(json.loads(cluster.request("GET", "/version")[1])["minor"].rstrip("+"))
