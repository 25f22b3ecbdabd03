"""Features of a pod that have no effect on a node that runs processes."""

from collections.abc import Iterator

from coder_k8s.kube.objects import Manifest

from .volumes import SUPPORTED

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
IGNORED = ("readinessGates", "activeDeadlineSeconds")
ACCESS_VOLUME = "kube-api-access-"
"""The volume that every pod gets; processes do not use the API of the cluster."""


def unsupported(pod: Manifest) -> list[str]:
    """Return what the node ignores, as the user has to know.

    | feature                                             | effect                       |
    |-----------------------------------------------------|------------------------------|
    | volume other than `emptyDir`, Secret and ConfigMap  | an empty folder              |
    | mount path that no argument and no variable names   | the process does not see it  |
    | probe other than `httpGet`                          | counts as successful         |
    | `lifecycle` hook                                    | does not run                 |
    | init container with `restartPolicy`                 | must exit, as any other      |
    | `readinessGates`, `activeDeadlineSeconds`           | ignored                      |
    """
    return [*_of_pod(pod["spec"]), *_of_containers(pod["spec"])]


def _of_pod(spec: Manifest) -> Iterator[str]:
    for volume in spec.get("volumes", []):
        kinds = [field for field in volume if field != "name"]
        if not volume["name"].startswith(ACCESS_VOLUME) and not SUPPORTED & set(kinds):
            yield f"volume {volume['name']} ({', '.join(kinds)})"
    yield from (field for field in IGNORED if spec.get(field))


def _of_containers(spec: Manifest) -> Iterator[str]:
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        for name in PROBES:
            if name in container and "httpGet" not in container[name]:
                yield f"{name} of container {container['name']} without httpGet"
        yield from (f"mount {path} of container {container['name']}" for path in _unseen(container))
        if "lifecycle" in container:
            yield f"lifecycle of container {container['name']}"
        if "restartPolicy" in container:
            yield f"restartPolicy of container {container['name']}"


def _unseen(container: Manifest) -> Iterator[str]:
    """Yield the mount paths that the node cannot replace, because no word of the container has them."""
    values = [entry.get("value", "") for entry in container.get("env", [])]
    text = "\n".join([*container.get("command", []), *container.get("args", []), *values])
    for mount in container.get("volumeMounts", []):
        if not mount["name"].startswith(ACCESS_VOLUME) and mount["mountPath"] not in text:
            yield mount["mountPath"]
