"""Render a tree as text, JSON or YAML."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby

import msgspec
import yaml

from coder_k8s.api import PROVISIONER, RESOURCES
from coder_k8s.api.markers import Resource

from .details import facts
from .operator import OperatorNode, age
from .tree import Node, PodNode, Tree

Paint = Callable[[str, str], str]
"""Applies a color or style to a text."""


class Entry(msgspec.Struct):
    """A line of the drawing, with notes and child entries below it."""

    text: str
    notes: list[str] = []
    entries: list["Entry"] = []


def as_json(tree: Tree) -> str:
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode()


def as_yaml(tree: Tree) -> str:
    text: str = yaml.safe_dump(msgspec.to_builtins(tree), sort_keys=False, allow_unicode=True, width=100_000)
    return text.rstrip()


def as_text(tree: Tree, paint: Paint, now: datetime) -> str:
    """Return the operator, then each namespace with its objects as lines of text."""
    lines = [_operator(tree.operator, paint, now)] if tree.operator else []
    for namespace, nodes in groupby(tree.items, key=lambda node: node.namespace):
        lines += [paint(f"namespace {namespace}", "bold"), *_draw([_entry(node, paint) for node in nodes])]
    if not tree.pods_listed:
        lines.append("Pods are not shown: you do not have permission to list them.")
    return "\n".join(lines)


def plain(text: str, _: str) -> str:
    return text


def _operator(node: OperatorNode, paint: Paint, now: datetime) -> str:
    color = {"Running": "green", "Unknown": "yellow"}.get(node.state, "red")
    states = {"NotLeading": "not leading", "NotReady": "not ready", "NotFound": "not found"}
    state = paint(states.get(node.state, node.state.lower()), color)
    facts = [
        f"{node.ready_replicas}/{node.replicas} pods" if node.replicas else "",
        node.version,
        f"leader {node.leader}" if node.leader else "",
        f"last seen {seen}" if (seen := age(node, now)) else "",
        node.message,
    ]
    text = printable(", ".join(fact for fact in facts if fact))
    return f"operator {paint(node.namespace, 'bold')}  {state}  {text}".rstrip()


def _draw(entries: list[Entry]) -> Iterator[str]:
    for position, entry in enumerate(entries):
        last = position == len(entries) - 1
        yield f"{'└─' if last else '├─'} {entry.text}"
        below = "   " if last else "│  "
        stem = "│ " if entry.entries else "  "
        yield from (f"{below}{stem}  {note}" for note in entry.notes)
        yield from (below + line for line in _draw(entry.entries))


def _entry(node: Node, paint: Paint) -> Entry:
    text = printable(", ".join(fact for fact in _facts(node) if fact))
    head = f"{_resource(node).noun} {paint(node.name, 'bold')}  {paint(_state(node), _color(node))}"
    word = "daemon" if node.kind == PROVISIONER.name else "pod"
    pods = [_pod(word, pod, paint) for pod in node.pods]
    return Entry(
        text=f"{head}  {text}" if text else head,
        notes=list(_notes(node)),
        entries=[*pods, *(_entry(child, paint) for child in node.children)],
    )


def _resource(node: Node) -> Resource:
    return next(each for each in RESOURCES if each.kind.name == node.kind)


def _state(node: Node) -> str:
    if not node.exists:
        return "missing"
    if node.deleting:
        return "deletion paused" if node.paused else "deleting"
    if node.paused:
        return "paused"
    if node.ready == "True":
        return "Ready"
    return "stalled" if node.stalled else "not ready"


def _color(node: Node) -> str:
    if node.ready == "True":
        return "green"
    return "red" if node.stalled or not node.exists else "yellow"


def _facts(node: Node) -> Iterator[str]:
    if not node.exists:
        return
    if _resource(node).has_pods:
        yield f"{node.ready_replicas}/{node.replicas} pods"
    yield from facts(node.kind, node.details)


def _notes(node: Node) -> Iterator[str]:
    """Yield why an object is not ready: the summary, then every condition with another reason or message."""
    if node.ready != "True":
        yield _reason(node.reason, node.message)
    for each in node.conditions:
        if (each.reason, each.message) != (node.reason, node.message):
            yield f"{each.type}: {_reason(each.reason, each.message)}"


def _pod(word: str, pod: PodNode, paint: Paint) -> Entry:
    state = paint("ready", "green") if pod.ready else paint("not ready", "yellow")
    facts = [pod.phase if pod.phase != "Running" else "", f"{pod.restarts} restarts" if pod.restarts else ""]
    text = "  ".join([f"{word} {pod.name}", state, *(fact for fact in facts if fact)])
    return Entry(text, [_reason(pod.reason, pod.message)] if pod.reason else [])


def _reason(reason: str, message: str) -> str:
    return printable(f"{reason}: {message}" if message else reason)


def printable(text: str) -> str:
    """Replace control characters by spaces, because messages can contain text from anywhere."""
    return "".join(character if character.isprintable() else " " for character in text)
