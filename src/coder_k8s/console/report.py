"""A support bundle that may leave the house: files of text, from which everything that may be secret is taken."""

import base64
import platform
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from coder_k8s.kube.objects import Manifest, key_of

from .bundle import Bundle
from .redaction import WITHHELD, Redaction
from .scrubbing import Scrubber

ROOT = "coder-k8s-report"
README = """\
What coder-k8s manages, as the cluster had it at {at}.

versions.yaml    of the operator's command line, of Kubernetes and of Coder
status.txt       what is ready and what is not, and why
objects/         the objects of Coder, what belongs to them, and the operator itself
sources.yaml     the Secrets and ConfigMaps that they name: keys and sizes, no values
events.yaml      what happened to them
operator/        the log of the operator, if it runs in the cluster
problems.txt     what could not be read, if there is anything

Values of Secrets, of environment variables, of arguments and of annotations are not in here. {withheld} stands where
something was taken out, also in messages and logs. Look through it all the same before you give it away.
"""
SHORT = 8
"""A shorter value that was withheld is not looked for in free text: it may be a part of any word."""


def files(bundle: Bundle, status: str, at: str) -> dict[str, str]:
    """The files of a report by their paths."""
    redact = Redaction()
    documents: dict[str, Any] = {_path(each): redact(each) for each in bundle.objects}
    documents["events.yaml"] = [redact(event) for event in bundle.events]
    documents |= {"sources.yaml": _sources(bundle), "versions.yaml": _versions(bundle)}
    texts = {**bundle.logs, "status.txt": status}
    if bundle.problems:
        texts["problems.txt"] = "\n".join(bundle.problems)

    secrets = {*_secrets(bundle), *(value for value in redact.withheld if len(value) >= SHORT)}
    corpus = "\0".join([*_texts(list(documents.values())), *texts.values()])
    scrub = Scrubber(secrets, _names(bundle), corpus)
    return {
        "README.txt": README.format(at=at, withheld=WITHHELD),
        **{path: _yaml(scrub.everywhere(document)) for path, document in documents.items()},
        **{path: scrub.text(text) for path, text in texts.items()},
    }


def write(path: Path, content: dict[str, str]) -> None:
    """A zip file that nobody else can read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(content.items()):
            archive.writestr(f"{ROOT}/{name}", text)


def _path(of: Manifest) -> str:
    namespace, name = key_of(of)
    return f"objects/{namespace}/{of['kind'].lower()}-{name}.yaml"


def _yaml(document: Any) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100_000)
    return text


def _sources(bundle: Bundle) -> list[dict[str, Any]]:
    """Of the Secrets and ConfigMaps that an object names: which keys they have, and how long the values are."""
    named = {(key_of(each).namespace, text) for each in bundle.objects for text in _texts(each)}
    owners = {each["metadata"].get("uid") for each in bundle.objects}
    return [
        {
            "kind": each["kind"],
            "namespace": key_of(each).namespace,
            "name": key_of(each).name,
            "type": each.get("type", ""),
            "bytes": {name: len(value) for name, value in sorted(_values(each).items())},
        }
        for each in bundle.sources
        if tuple(key_of(each)) in named
        or any(owner["uid"] in owners for owner in each["metadata"].get("ownerReferences", []))
    ]


def _values(source: Manifest) -> dict[str, bytes]:
    """What is in a Secret or ConfigMap."""
    data: dict[str, str] = source.get("data", {})
    if source["kind"] == "Secret":
        return {name: base64.b64decode(value) for name, value in data.items()}
    binary: dict[str, str] = source.get("binaryData", {})
    return {name: value.encode() for name, value in data.items()} | {
        name: base64.b64decode(value) for name, value in binary.items()
    }


def _secrets(bundle: Bundle) -> set[str]:
    """Every value of a Secret, whether an object names it or not, as it is and as Kubernetes shows it."""
    secrets = [each for each in bundle.sources if each["kind"] == "Secret"]
    values = {value.decode(errors="replace") for each in secrets for value in _values(each).values()}
    return values | {value for each in secrets for value in each.get("data", {}).values()}


def _names(bundle: Bundle) -> set[str]:
    """What everybody may know, should a value happen to be the same."""
    return {word for each in [*bundle.objects, *bundle.sources] for word in key_of(each) if word}


def _texts(document: Any) -> set[str]:
    """All texts in a document."""
    if isinstance(document, str):
        return {document}
    if isinstance(document, dict | list):
        inner = [*document, *document.values()] if isinstance(document, dict) else document
        return {text for item in inner for text in _texts(item)}
    return set()


def _versions(bundle: Bundle) -> dict[str, Any]:
    coderd = {
        str(key_of(each)): each.get("status", {}).get("version", "")
        for each in bundle.objects
        if each["kind"] == "CoderControlPlane"
    }
    return {
        "coder-k8s": metadata.version("coder-k8s"),
        "python": platform.python_version(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
        **bundle.versions,
        "coder": coderd,
    }
