"""The API server rejects violations of every rule and limit of the CRDs, with the expected field and message."""

import json
import re
from typing import Any

import pytest

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.objects import Key, Kind, Manifest, Object
from tests.support.installation import CONFIG
from tests.support.manifests import parse
from tests.support.versions import minor

from .admission import EMBEDDED, KINDS, minimal, submit
from .limits import FORMATS_SINCE, Violation, violations

pytestmark = pytest.mark.usefixtures("crds")


def schema_of(kind: Kind[Object]) -> Manifest:
    crd = parse((CONFIG / "crd" / f"{kind.plural}.yaml").read_text())
    schema: Manifest = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_violations_of_every_limit_are_rejected(cluster: ClusterAccess, namespace: str, kind: Kind[Object]) -> None:
    _, stored = submit(cluster, namespace, minimal(kind))
    embedded = "|".join(field for of, field, _ in EMBEDDED if of is kind)
    inside = re.compile(rf"spec\.({embedded})(\[0\])?\.")
    differences, tested = [], 0
    older = minor(cluster) < FORMATS_SINCE
    for violation in violations(schema_of(kind)):
        if inside.match(violation.field):
            continue  # limits of types of Kubernetes
        if older and violation.message == "int32":
            continue
        tested += 1
        status, answer = send(cluster, namespace, kind, stored, violation)
        causes = [(cause["field"], cause["message"]) for cause in answer.get("details", {}).get("causes", [])]
        if status != 422 or not any(matches(violation, *cause, older=older) for cause in causes):
            differences.append(f"{violation.field}: {violation.message!r}: {status} {causes or answer}")
    assert not differences, "\n".join(differences)
    assert tested > 50


def matches(violation: Violation, field: str, message: str, *, older: bool) -> bool:
    """Whether an error is that of a violation. For numbers out of range, the field is only in the message."""
    in_status = violation.field.removeprefix("status.")
    if older:
        expected = (violation.message, _older_message(violation.message))
        return any(text in message for text in expected) and field in (violation.field, in_status)
    return violation.message in message and (field == violation.field or message.endswith(f" in {in_status}"))


def _older_message(message: str) -> str:
    return re.sub(r"may not be more than (\d+) bytes", r"may not be longer than \1", message).replace(
        "int64", "must be of type integer"
    )


def send(
    cluster: ClusterAccess, namespace: str, kind: Kind[Object], stored: Manifest, violation: Violation
) -> tuple[int, Any]:
    """Send a dry run; return the status and body of the response. The status of an object is a separate resource."""
    if violation.field.startswith("status"):
        path = kind.path(Key(namespace, "minimal"), "status")
        status, body = cluster.request("PUT", f"{path}?dryRun=All", stored | violation.content)
        return status, json.loads(body)
    bare = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "bad"}}
    return submit(cluster, namespace, bare | violation.content, keep=False)
