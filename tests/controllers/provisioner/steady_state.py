"""The steady state of an operator, comparable with that of another run."""

from urllib.parse import urlsplit

from coder_k8s.api import CoderProvisioner
from tests.support.children import lines
from tests.support.crash_scenarios import State
from tests.support.rotations import REQUEST, RotationNamespace


async def state(site: RotationNamespace) -> State:
    """The objects that the operator writes in Kubernetes; `differences` of the scenario checks the rest."""
    provisioner, children = await site.provisioner(), await site.children()
    if provisioner is None:
        return {"children": lines(children, "nobody"), "conditions": {}, "finalizers": []}
    words = _placeholders(provisioner)
    return {
        "children": {tuple(_plain(part, words) for part in line) for line in lines(children, provisioner.metadata.uid)},
        "conditions": {each.type: (each.status, each.reason) for each in provisioner.status.conditions},
        "finalizers": provisioner.metadata.finalizers,
    }


def _placeholders(provisioner: CoderProvisioner) -> dict[str, str]:
    """The values that differ in every run, and their placeholders."""
    named = {
        provisioner.metadata.name: "NAME",
        provisioner.spec.key.secret_name: "SECRET",
        provisioner.metadata.annotations.get(REQUEST, ""): "REQUEST",
        f":{urlsplit(provisioner.status.control_plane_url).port or ''}": ":PORT",
    }
    return {word: meaning for word, meaning in named.items() if word.strip(":")}


def _plain(text: str, words: dict[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text
