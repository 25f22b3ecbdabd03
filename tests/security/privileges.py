"""Checks at the end of a run that the generated roles contain exactly the permissions that the operator uses.

The audit logs of the API servers contain the requests of the operator's ServiceAccount. The API server rejects requests
without permission, so a missing rule fails a test. A permission that comes from another role fails the run. So does a
rule that no test of a complete run uses.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from coder_k8s.controllers.permissions import full_access
from tests.support.installation import CONFIG
from tests.support.selection import has_all_tests

from .audit import entries, is_operator, resource

ROLES = ("operator.yaml", "leader-election.yaml", "namespaced/operator.yaml")
GRANTED_TO_CODER = (full_access("", "pods", "persistentvolumeclaims"), full_access("apps", "deployments"))
"""Permissions that Coder gets for workspaces. The operator must hold them to grant them."""
OWNERSHIP = "/finalizers"
"""An owner reference with blockOwnerDeletion needs this permission where that is enforced; see its test."""


class Right(NamedTuple):
    """A verb on a resource."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def used(requests: Iterable[dict[str, Any]]) -> set[Right]:
    """The permissions that requests of the operator used."""
    allowed = (
        entry["objectRef"] | {"verb": entry["verb"]}
        for entry in requests
        if is_operator(entry)
        and "objectRef" in entry
        and entry["annotations"].get("authorization.k8s.io/decision") == "allow"
        and not entry["userAgent"].startswith("kubectl/")  # a user who checks the operator's permissions
    )
    return {Right(each["verb"], each.get("apiGroup", ""), resource(each)) for each in allowed}


def granted(rules: Iterable[dict[str, Any]]) -> set[Right]:
    return {
        Right(verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights_of_role(name: str) -> set[Right]:
    """The permissions of a generated role."""
    role, _ = yaml.safe_load_all((CONFIG / "rbac" / name).read_text())
    return granted(role["rules"])


def unused(rights: set[Right], used: set[Right]) -> set[Right]:
    """The permissions that no request used."""
    return {
        right
        for right in rights - used - granted(GRANTED_TO_CODER)
        if not (right.verb == "update" and right.resource.endswith(OWNERSHIP))
    }


class LeastPrivilege:
    """Fails a run if a test uses a permission that no role contains.

    A run of all tests also fails if a role contains a permission that no test uses.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._findings: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        found = used(entries(self._folder))
        held = {name: rights_of_role(name) for name in ROLES}
        self._findings = [f"in no role: {right}" for right in sorted(found - set().union(*held.values()))]
        if exitstatus == pytest.ExitCode.OK and has_all_tests(session.config):
            self._findings += [f"{name}: {right}" for name in ROLES for right in sorted(unused(held[name], found))]
        if self._findings:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._findings:
            terminalreporter.section("permissions of the operator that no test uses, or that are in no role", red=True)
            terminalreporter.write_line("\n".join(self._findings))
