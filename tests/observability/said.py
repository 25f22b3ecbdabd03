"""What the controllers can say: every reason that reaches a condition or an event, read from their source.

A reason is nearly always a word in the call that says it. Where it comes from elsewhere, a table here tells from where,
and whatever is neither raises `Unclear`: nothing new is said unnoticed.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from coder_k8s import controllers
from coder_k8s.api import reasons as reason_constants
from coder_k8s.api.conditions import (
    CommonCondition,
    ControlPlaneCondition,
    WorkspaceProxyCondition,
)
from coder_k8s.coderd.errors import AccessError
from coder_k8s.controllers.workspaceproxy.verdicts import STATES

FOLDER = Path(controllers.__file__ or "").parent
LICENSE, ENTITLEMENTS = ControlPlaneCondition.LICENSE_APPLIED, ControlPlaneCondition.ENTITLEMENTS_KNOWN
REGISTERED, HEALTHY = WorkspaceProxyCondition.REGISTERED, WorkspaceProxyCondition.PROXY_HEALTHY

VERDICTS: dict[str, tuple[Any, ...]] = {
    "controlplane.access": (ControlPlaneCondition.OPERATOR_ACCESS_READY,),
    "controlplane.license": (LICENSE,),
    "controlplane.entitlements": (ENTITLEMENTS,),
    "controlplane.verdicts": (LICENSE, ENTITLEMENTS),
    "controlplane.verdicts.judge_token": (ControlPlaneCondition.OPERATOR_ACCESS_READY,),
    "controlplane.verdicts.judge_generated": (ControlPlaneCondition.OPERATOR_ACCESS_READY,),
    "controlplane.rbac": (ControlPlaneCondition.WORKSPACE_RBAC_READY,),
    "workspaceproxy.registrar": (REGISTERED,),
    "workspaceproxy.verdicts.registered_as": (REGISTERED,),
    "workspaceproxy.verdicts.NOT_MANAGED": (REGISTERED, HEALTHY),
    "workspaceproxy.verdicts.NOT_ASKED": (HEALTHY,),
    "workspaceproxy.verdicts.health": (HEALTHY,),
    "workspaceproxy.verdicts.refusal": (REGISTERED,),
    "workspaceproxy.verdicts.name_taken": (REGISTERED,),
}
"""Which conditions a Verdict or Refusal becomes, by where it is made."""

PASSED_ON: dict[str, tuple[str, ...]] = {
    "trouble.reason": tuple(error.reason for error in AccessError.__subclasses__()),
    "STATES.get(found.status.status)": tuple(STATES.values()),
    "f'Proxy{healthy.reason}'": tuple(f"Proxy{state}" for state in STATES.values()),
    # These are found where they are made.
    **dict.fromkeys(("verdict.reason", "first.reason", "culprit.reason", "new.reason", "reason"), ()),
}
"""What a reason that is no word in the source can be."""

REASON = {
    "add": 2,
    "retain": 1,
    "_retain": 1,
    "Finding": 2,
    "_stall": 2,
    "stall": 0,
    "interrupt": 0,
    "Verdict": 1,
    "Refusal": 0,
}
"""Which argument of a call is the reason."""
OTHERS = ("finalizers.add",)
"""Calls of the same names that say nothing."""
TOLD_BY = {"tell_pods": 1, "told": 1}
"""Which argument of these is the condition that they speak of."""


class Unclear(Exception):
    """The tables above do not tell where something comes from."""


class Saying(NamedTuple):
    """A call that says something, and the function or constant that it is in."""

    call: ast.Call
    name: str
    scope: ast.stmt


class Source:
    """A module of the controllers."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
        self.tree = ast.parse(path.read_text())

    @cached_property
    def module(self) -> ModuleType:
        return import_module(f"{controllers.__name__}.{self.name}")

    def sayings(self, names: Iterable[str], within: str = "") -> Iterator[Saying]:
        for scope in self._scopes(self.tree):
            for node in ast.walk(scope):
                if isinstance(node, ast.Call) and (name := _called(node)) in names and within in ("", _name(scope)):
                    yield Saying(node, name, scope)

    def words(self, given: ast.expr, scope: ast.AST) -> set[str]:
        """All that an expression can be."""
        match given:
            case ast.Constant(value=str(word)):
                return {word}
            case ast.Attribute(value=ast.Name(id="reasons"), attr=constant):
                return {str(getattr(reason_constants, constant))}
            case ast.IfExp(body=one, orelse=other):
                return self.words(one, scope) | self.words(other, scope)
            case ast.Name(id=name) if values := list(_assigned(scope, name)):
                return set().union(*(self.words(value, scope) for value in values))
        text = ast.unparse(given)
        if text not in PASSED_ON:
            raise Unclear(f"{self.name}: what can {text} be?")
        return set(PASSED_ON[text])

    def conditions(self, given: ast.expr, scope: ast.AST) -> set[Any]:
        """The conditions that an expression names; none for a parameter, whose callers are asked instead."""
        match given:
            case ast.IfExp(body=one, orelse=other):
                return self.conditions(one, scope) | self.conditions(other, scope)
            case ast.Attribute(value=ast.Name(id=enum), attr=member):
                return {getattr(getattr(self.module, enum), member)}
            case ast.Name(id=name) if values := list(_assigned(scope, name)):
                return set().union(*(self.conditions(value, scope) for value in values))
            case ast.Name(id="condition" | "type_"):
                return set()
            case ast.Name(id=name):
                found = getattr(self.module, name)
                common = {condition.value: condition for condition in CommonCondition}
                return {common.get(found, found) if type(found) is str else found}
        raise Unclear(f"{self.name}: which condition is {ast.unparse(given)}?")

    @staticmethod
    def _scopes(tree: ast.AST) -> Iterator[ast.stmt]:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.ClassDef):
                yield from Source._scopes(node)
            elif isinstance(node, ast.stmt):
                yield node


SOURCES = {source.name: source for source in map(Source, sorted(FOLDER.rglob("*.py"))) if "__init__" not in source.name}


def reasons() -> set[tuple[str, str, str]]:
    """Every condition with a reason that it can have, under the name of its enum: equal texts are equal members."""
    found = (pair for source in SOURCES.values() for pair in reasons_of(source))
    return {(type(condition).__name__, str(condition), reason) for condition, reason in found}


def events() -> set[tuple[str, str, str]]:
    """Every event: kind, type and reason; of one that is told about all kinds the kind is empty."""
    found = set()
    for source in SOURCES.values():
        for call, name, scope in source.sayings(("normal", "warning")):
            if ast.unparse(call.func).startswith("log."):
                continue
            about = ast.unparse(call.args[0])
            kind = "" if about == "self._kind" else getattr(source.module, about).name
            found |= {(kind, name.capitalize(), reason) for reason in source.words(call.args[2], scope)}
    status = SOURCES["status"]
    for call, _, scope in status.sayings(("tell",)):
        found |= {("", "Normal", reason) for reason in status.words(call.args[2], scope)}
    return found


def reasons_of(source: Source) -> Iterator[tuple[Any, str]]:
    for call, name, scope in source.sayings(REASON):
        if ast.unparse(call.func).endswith(OTHERS) or (source.name, name) == ("provisioner.reconcile", "Refusal"):
            continue
        if len(call.args) <= REASON[name]:
            raise Unclear(f"{source.name}: what is the reason in {ast.unparse(call)}?")
        yield from (
            (condition, word)
            for word in source.words(call.args[REASON[name]], scope)
            for condition in _conditions(source, name, call, scope)
        )
    for call, name, scope in source.sayings(TOLD_BY):
        about = call.args[TOLD_BY[name]] if len(call.args) > TOLD_BY[name] else None
        conditions = {CommonCondition.STALLED} if about is None else source.conditions(about, scope)
        yield from ((condition, word) for condition in conditions for word in _told_by(name))


def _conditions(source: Source, name: str, call: ast.Call, scope: ast.stmt) -> Iterable[Any]:
    match name:
        case "add" | "Finding" | "retain":
            return source.conditions(call.args[0], scope)
        case "stall":
            return (CommonCondition.STALLED,)
        case "interrupt":
            return (CommonCondition.READY,)
        case "_stall":
            return ()
        case "_retain":  # all that needs a coderd
            return (ControlPlaneCondition.OPERATOR_ACCESS_READY, LICENSE, ENTITLEMENTS)
    place = f"{source.name}.{_name(scope)}"
    if found := VERDICTS.get(place) or VERDICTS.get(source.name):
        return found
    raise Unclear(f"which condition does a {name} of {place} become?")


def _told_by(name: str) -> set[str]:
    """The reasons that a function gives to the condition which it is called with."""
    source = SOURCES["rollout" if name == "tell_pods" else "refusals"]
    found = source.sayings(REASON, within=name)
    return set().union(*(source.words(call.args[REASON[said]], scope) for call, said, scope in found))


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _name(scope: ast.AST) -> str:
    match scope:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return getattr(scope, "name", "")


def _assigned(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=known)], value=value) if known == name and value is not None:
                yield value
