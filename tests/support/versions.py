"""The Kubernetes version of the tests, for cases in which API servers respond differently."""

import json

from coder_k8s.dev.cluster import ClusterAccess


def minor(cluster: ClusterAccess) -> int:
    """The minor version: 30 for 1.30.14."""
    return int(json.loads(cluster.request("GET", "/version")[1])["minor"].rstrip("+"))
