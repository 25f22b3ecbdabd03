"""Audit logs of the API servers of a run, for checks at the end of the run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import yaml

from coder_k8s.kube import deep_json
from tests.support.installation import NAMESPACE, SERVICE_ACCOUNT

OPERATOR = f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"
WRITES = ["create", "update", "patch"]
DELETIONS = ["delete", "deletecollection"]
RULES = [
    {"level": "Request", "verbs": WRITES, "resources": [{"group": "", "resources": ["secrets"]}]},
    {"level": "Request", "verbs": [*WRITES, *DELETIONS], "users": [OPERATOR]},
    {"level": "Metadata", "users": [OPERATOR]},
    {"level": "None"},
]
"""Every write of a Secret, and all requests of the operator, with the bodies of its writes and deletions."""
LIMIT = 1 << 14
"""Larger entries have no body, because large Secrets of tests would fill the disk."""


def auditing(folder: Path) -> list[str]:
    """Arguments of an API server that write its audit log into the folder."""
    folder.mkdir(exist_ok=True)
    name = uuid4().hex
    policy = folder / f"{name}.yaml"
    written = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": RULES}
    policy.write_text(yaml.safe_dump(written))
    truncation = ["--audit-log-truncate-enabled", f"--audit-log-truncate-max-event-size={LIMIT}"]
    return [f"--audit-policy-file={policy}", f"--audit-log-path={folder / name}.log", *truncation]


def entries(folder: Path, containing: bytes = b"") -> Iterator[dict[str, Any]]:
    """The entries whose lines contain this. A killed API server can leave an incomplete line."""
    for log in folder.glob("*.log"):
        for line in log.read_bytes().splitlines():
            if containing not in line:
                continue
            try:
                yield deep_json.decode(msgspec.json.decode, line)
            except msgspec.DecodeError:
                continue


def is_operator(entry: dict[str, Any]) -> bool:
    by: str = entry["user"]["username"]
    return by == OPERATOR


def resource(reference: dict[str, Any]) -> str:
    """The resource of a request, with its subresource."""
    return "/".join(reference[part] for part in ("resource", "subresource") if reference.get(part))


def place(entry: dict[str, Any]) -> str:
    """The verb and the object of a request."""
    of = entry.get("objectRef", {})
    return f"{entry['verb']} {resource(of)} {of.get('namespace', '')}/{of.get('name', '')}"
