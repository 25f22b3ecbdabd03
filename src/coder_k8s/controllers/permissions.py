"""Permissions that Coder needs in a namespace to run workspaces."""

from coder_k8s.kube.objects import Manifest

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def full_access(group: str, *resources: str) -> Manifest:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(VERBS)}
