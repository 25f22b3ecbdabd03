"""The files of a support bundle, with everything redacted that may be a secret."""

import hashlib
import platform
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from coder_k8s import __version__
from coder_k8s.controllers.secrets import values
from coder_k8s.kube.objects import Key, Manifest, key_of

from .bundle import Bundle
from .redaction import REDACTED, Redaction
from .scrubbing import Scrubber

ROOT = "coder-k8s-report"
README = """\
Coder resources in the cluster at {at}.

versions.yaml    versions of the command line, of Kubernetes and of Coder
status.txt       output of `kubectl coder status`
objects/         Coder resources, their children, and the operator
sources.yaml     Secrets and ConfigMaps that they reference: keys and sizes, no values
events.yaml      events of these objects
operator/        logs of the operator, if it runs in the cluster
logs/            logs of Coder and the provisioner daemons
problems.txt     what was skipped, and why

Values of Secrets, environment variables, arguments and annotations are redacted. {redacted} marks each redaction, also
in messages and logs. Review the files before you share them.
"""
SHORT = 8
"""Redacted values that are shorter are not searched in free text, because they can be part of any word."""

LONGEST_FILE = 200


def files(bundle: Bundle, status: str, at: str) -> dict[str, str]:
    """Return the files of a report by path."""
    redact = Redaction()
    documents: dict[str, Any] = {path_of(each): redact(each) for each in bundle.objects}
    documents["events.yaml"] = [redact(event) for event in bundle.events]
    documents |= {"sources.yaml": _sources(bundle), "versions.yaml": _versions(bundle)}
    texts = {**bundle.logs, "status.txt": status}
    if bundle.problems:
        texts["problems.txt"] = "\n".join(bundle.problems)

    secrets = {*_secrets(bundle), *(value for value in redact.values if len(value) >= SHORT)}
    corpus = "\0".join([*_strings(list(documents.values())), *texts.values()])
    scrub = Scrubber(secrets, _names(bundle), corpus)
    return {
        "README.txt": README.format(at=at, redacted=REDACTED),
        **{path: _yaml(scrub.document(document)) for path, document in documents.items()},
        **{path: scrub.text(text) for path, text in texts.items()},
    }


def write(path: Path, content: dict[str, str]) -> None:
    """Write a zip file that only the user can read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(content.items()):
            archive.writestr(f"{ROOT}/{name}", text)


def path_of(of: Manifest) -> str:
    """Return the path of an object. The name of a Role may contain any character but `/` and `%`, and be very long."""
    key = key_of(of)
    file = quote(f"{of['kind'].lower()}-{key.name}", safe="")
    if len(file) > LONGEST_FILE:
        file = f"{file[:LONGEST_FILE]}-{hashlib.sha256(key.name.encode()).hexdigest()[:8]}"
    return f"objects/{key.namespace}/{file}.yaml"


def _yaml(document: Any) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100_000)
    return text


def _sources(bundle: Bundle) -> list[dict[str, Any]]:
    """Return keys and value sizes of the Secrets and ConfigMaps that objects reference or own."""
    named = {Key(key_of(each).namespace, text) for each in bundle.objects for text in _strings(each)}
    owners = {each["metadata"].get("uid") for each in bundle.objects}
    return [
        {
            "kind": each["kind"],
            "namespace": key_of(each).namespace,
            "name": key_of(each).name,
            "type": each.get("type", ""),
            "bytes": {name: len(value) for name, value in sorted(values(each).items())},
        }
        for each in bundle.sources
        if key_of(each) in named or any(owner["uid"] in owners for owner in each["metadata"].get("ownerReferences", []))
    ]


def _secrets(bundle: Bundle) -> set[str]:
    """Return the values of all Secrets, decoded and as base64."""
    secrets = [each for each in bundle.sources if each["kind"] == "Secret"]
    plain = {value.decode(errors="replace") for each in secrets for value in values(each).values()}
    return plain | {value for each in secrets for value in each.get("data", {}).values()}


def _names(bundle: Bundle) -> set[str]:
    """Return the names and namespaces of objects, which are not redacted even if a secret value is equal."""
    keys = [key_of(each) for each in [*bundle.objects, *bundle.sources]]
    return {word for key in keys for word in (key.namespace, key.name) if word}


def _strings(document: Any) -> set[str]:
    """Return all strings in a document."""
    if isinstance(document, str):
        return {document}
    if isinstance(document, dict | list):
        inner = [*document, *document.values()] if isinstance(document, dict) else document
        return {text for item in inner for text in _strings(item)}
    return set()


def _versions(bundle: Bundle) -> dict[str, Any]:
    coderd = {
        str(key_of(each)): each.get("status", {}).get("version", "")
        for each in bundle.objects
        if each["kind"] == "CoderControlPlane"
    }
    return {
        "coder-k8s": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
        **bundle.versions,
        "coder": coderd,
    }
