"""The preflight: a Job with the new image, beside the pods that serve.

It tries to reset the password of a user that does not exist. Before it looks for the user, Coder compares the schema of
the database with its own, and does not migrate it. Then it prints the version of Coder. It fails in every case, and the
end of its log becomes the termination message of the container, so that no permission to read logs is needed.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec

from coder_k8s.api import CONTROL_PLANE, CoderControlPlane
from coder_k8s.controllers.controlplane.database import VARIABLE
from coder_k8s.controllers.controlplane.deployment import PodInputs, pod
from coder_k8s.controllers.images import pull_policy
from coder_k8s.controllers.labels import metadata
from coder_k8s.controllers.names import derived, hashed
from coder_k8s.kube.objects import Manifest, Unstructured

from .observations import Schema, Verdict

COMPONENT = "coder-preflight"
CONTAINER = "preflight"
DEADLINE = 600
"""Seconds, most of them for the pull of the image."""
KEEP = 3600
"""Seconds after which Kubernetes deletes a finished Job that the operator did not."""
REQUESTS = {"cpu": "10m", "memory": "64Mi"}
UNSHARED = frozenset(("volumes", "topologySpreadConstraints", "affinity", "containers"))
"""Fields of the pod that the Job does not take over as they are."""
PRIVATE_VOLUMES = ("persistentVolumeClaim", "ephemeral", "hostPath")
"""Volumes that may not be shared with a running pod."""

VERSION = re.compile(r'\{[^{}]*"version":\s*"([^"]+)"[^{}]*\}')
NO_DATABASE = "no URL of a database"
PROBES = (
    ("retrieving user: sql: no rows", Schema.SAME),
    ("get previous migration", Schema.NEWER),
    ("but later version", Schema.OLDER),
    ("get migration version: no migration", Schema.EMPTY),
    (NO_DATABASE, Schema.UNKNOWN),
)
ERROR_LENGTH = 300
LINE_LENGTH = 1000
"""Characters of the result; a termination message has at most 2048 bytes."""
HIDDEN = re.compile(r'"(?:[^"\\]|\\.)*[@=](?:[^"\\]|\\.)*"|\S*(?:://|@)\S*')
"""What may be the URL of the database, or a part of it with its password."""
URL_FLAG = "--postgres-url"
DATABASE_FLAGS = {URL_FLAG: URL_FLAG, "--postgres-auth": "--postgres-connection-auth"}
"""Flags of `coder server` about its database, and their names for `coder reset-password`."""


class Preflight:
    """The Job of a control plane. It is computed when a step needs it: most reconciles update nothing."""

    def __init__(self, plane: CoderControlPlane, inject_access_url: bool) -> None:
        self._plane = plane
        self._inject_access_url = inject_access_url

    @cached_property
    def inputs(self) -> str:
        return inputs(self._plane, self._inject_access_url)

    @property
    def name(self) -> str:
        """It has the hash of its pods, so that another image or environment has another Job."""
        return derived(self._plane.metadata.name, suffix=f"-preflight-{self.inputs}")

    @property
    def job(self) -> Manifest:
        return job(self._plane, self._inject_access_url, self.name)


def job(plane: CoderControlPlane, inject_access_url: bool, name: str) -> Manifest:
    spec = _pod(plane, inject_access_url)
    labels = metadata(CONTROL_PLANE, plane, COMPONENT, name)
    return {
        "metadata": labels,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE,
            "ttlSecondsAfterFinished": KEEP,
            "template": {"metadata": {"labels": labels["labels"]}, "spec": spec},
        },
    }


def inputs(plane: CoderControlPlane, inject_access_url: bool) -> str:
    """The hash of what the preflight and the decision after it depend on: the pods, and how they are replaced."""
    pods = (_pod(plane, inject_access_url), pod(plane, PodInputs(inject_access_url)))
    parts = msgspec.json.encode((*pods, plane.spec.update), order="deterministic")
    return hashed(plane.metadata.uid, parts.decode())


def read(manifest: Manifest, pods: list[Unstructured]) -> Verdict | None:
    """What a Job found; `None` while it runs.

    | Job, and its pod                           | found                                                   |
    |--------------------------------------------|---------------------------------------------------------|
    | has no result yet                          | nothing                                                 |
    | its container has exited                   | version and schema, from the termination message        |
    | failed without a container that has exited | why: such as the deadline                               |
    """
    ended = [each for each in (_terminated(pod) for pod in pods) if each is not None]
    if ended:
        return parse(str(ended[-1].get("message") or ended[-1].get("reason", "")))
    conditions = (manifest.get("status") or {}).get("conditions") or []
    failed = next((each for each in conditions if each["type"] == "Failed" and each["status"] == "True"), None)
    return Verdict(error=f"the Job failed: {failed.get('message', '')}") if failed else None


def parse(message: str) -> Verdict:
    """What the termination message of the container says."""
    version = VERSION.search(message)
    if version is None:
        return Verdict()
    lines = [line.strip() for line in VERSION.sub("", message, count=1).splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    for text, schema in PROBES:
        if text in last:
            return Verdict(version[1], schema)
    error = HIDDEN.sub("[redacted]", last)[:ERROR_LENGTH] or "the check of the database printed nothing"
    return Verdict(version[1], error=error)


def _terminated(pod: Unstructured) -> Manifest | None:
    statuses = (pod.manifest.get("status") or {}).get("containerStatuses") or []
    found: Manifest | None = next(
        (
            each["state"]["terminated"]
            for each in statuses
            if each["name"] == CONTAINER and "terminated" in each["state"]
        ),
        None,
    )
    return found


def _pod(plane: CoderControlPlane, inject_access_url: bool) -> Manifest:
    """The pod of the Deployment without what only a server needs, and with a small request of resources."""
    spec = pod(plane, PodInputs(inject_access_url))
    [server] = spec["containers"]
    private = {each["name"] for each in spec.get("volumes", []) if set(PRIVATE_VOLUMES) & set(each)}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": plane.spec.image,
        "imagePullPolicy": pull_policy(plane.spec.image),
        "command": _command(plane),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": REQUESTS, **_limits(plane)},
    }
    for field in ("env", "envFrom", "securityContext"):
        if field in server:
            container[field] = server[field]
    if mounts := [each for each in server.get("volumeMounts", []) if each["name"] not in private]:
        container["volumeMounts"] = mounts
    kept = {name: value for name, value in spec.items() if name not in UNSHARED}
    if volumes := [each for each in spec.get("volumes", []) if each["name"] not in private]:
        kept["volumes"] = volumes
    if node := (spec.get("affinity") or {}).get("nodeAffinity"):  # rules about other pods could leave no node
        kept["affinity"] = {"nodeAffinity": node}
    return {**kept, "automountServiceAccountToken": False, "restartPolicy": "Never", "containers": [container]}


def _command(plane: CoderControlPlane) -> list[str]:
    """The shell command. Without a URL of a database, it does not check one: Coder may start one of its own.

    | URL of the database                        | schema is checked                   |
    |--------------------------------------------|-------------------------------------|
    | in `extraArgs`                             | yes                                 |
    | in a variable of `extraEnv` or `envFrom`   | yes; the shell checks whether it is |
    | in a file of Coder, or not set             | no                                  |
    """
    flags = list(_database_flags(plane.spec.extra_args))
    user = f"preflight-{hashed(plane.metadata.uid, plane.metadata.name)}"
    probe = f'/opt/coder reset-password "$@" {user} </dev/null 2>&1 | tail -n 1 | cut -c 1-{LINE_LENGTH}'
    if not any(flag.startswith(f"{URL_FLAG}=") for flag in flags):
        probe = f'if [ -z "${VARIABLE}" ]; then echo "{NO_DATABASE}"; else {probe}; fi'
    auth = 'export CODER_PG_CONNECTION_AUTH="${CODER_PG_AUTH:-password}"'
    script = f"{auth}; {probe}; /opt/coder version -o json; exit 1"
    return ["sh", "-c", script, CONTAINER, *flags]


def _database_flags(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments about the database, as `coder reset-password` has them."""
    for argument, following in pairwise([*arguments, ""]):
        flag, equals, value = argument.partition("=")
        if flag in DATABASE_FLAGS:
            yield f"{DATABASE_FLAGS[flag]}={value if equals else following}"


def _limits(plane: CoderControlPlane) -> Manifest:
    limits = plane.spec.resources.get("limits")
    return {"limits": limits} if limits else {}
