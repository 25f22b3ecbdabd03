"""Every rule and every limit of the generated schemas refuses what breaks it, at its field and with its words."""

import json
import re
from typing import Any

import pytest
import yaml

from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.kube.objects import Key, Kind, Manifest, Object
from tests.support.installation import CONFIG
from tests.support.versions import minor

from .admission import EMBEDDED, KINDS, minimal, submit
from .limits import FORMATS_SINCE, Breach, breaches

pytestmark = pytest.mark.usefixtures("crds")


def schema_of(kind: Kind[Object]) -> Manifest:
    crd = yaml.safe_load((CONFIG / "crd" / f"{kind.plural}.yaml").read_text())
    schema: Manifest = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_every_limit_refuses_what_breaks_it(cluster: ClusterAccess, namespace: str, kind: Kind[Object]) -> None:
    _, stored = submit(cluster, namespace, minimal(kind))
    embedded = "|".join(field for of, field, _ in EMBEDDED if of is kind)
    inside = re.compile(rf"spec\.({embedded})(\[0\])?\.")
    differences, asked = [], 0
    older = minor(cluster) < FORMATS_SINCE
    for breach in breaches(schema_of(kind)):
        if inside.match(breach.field):
            continue  # Kubernetes' own limits of its own types
        if older and breach.words == "int32":
            continue
        asked += 1
        status, answer = send(cluster, namespace, kind, stored, breach)
        causes = [(cause["field"], cause["message"]) for cause in answer.get("details", {}).get("causes", [])]
        if status != 422 or not any(tells(breach, *cause, older=older) for cause in causes):
            differences.append(f"{breach.field}: {breach.words!r}: {status} {causes or answer}")
    assert not differences, "\n".join(differences)
    assert asked > 50


def tells(breach: Breach, field: str, words: str, *, older: bool) -> bool:
    """Where a number does not fit, the API server names its field in the words alone, and without `status`."""
    in_status = breach.field.removeprefix("status.")
    if older:
        return (breach.words in words or _older_words(breach.words) in words) and field in (breach.field, in_status)
    return breach.words in words and (field == breach.field or words.endswith(f" in {in_status}"))


def _older_words(words: str) -> str:
    return re.sub(r"may not be more than (\d+) bytes", r"may not be longer than \1", words).replace(
        "int64", "must be of type integer"
    )


def send(
    cluster: ClusterAccess, namespace: str, kind: Kind[Object], stored: Manifest, breach: Breach
) -> tuple[int, Any]:
    """Status and answer; nothing is kept. The status of an object is its own resource."""
    if breach.field.startswith("status"):
        path = kind.path(Key(namespace, "minimal"), "status")
        status, body = cluster.request("PUT", f"{path}?dryRun=All", stored | breach.content)
        return status, json.loads(body)
    bare = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "bad"}}
    return submit(cluster, namespace, bare | breach.content, keep=False)
