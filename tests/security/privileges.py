"""Whether the generated roles hold exactly what the operator uses: told at the end of a run of all tests.

The API servers of a run write down what the operator's ServiceAccount asks of them. What it may not do is refused
there, so a rule that is missing fails some test. A rule that nothing uses fails the run: only all tests together can
tell. So does a right that it has from somewhere else.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from coder_k8s.controllers.permissions import full_access
from tests.support.installation import CONFIG

from .audit import entries, is_operators, resource

ROLES = ("operator.yaml", "leader-election.yaml", "namespaced/operator.yaml")
TO_PASS_ON = (full_access("", "pods", "persistentvolumeclaims"), full_access("apps", "deployments"))
"""What Coder gets for its workspaces: the API server lets nobody grant what they do not hold."""
OWNERSHIP = "/finalizers"
"""To name an owner whose deletion waits asks for this right of a subresource where that is enforced; see its test."""


class Right(NamedTuple):
    """A verb on a resource."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def used(requests: Iterable[dict[str, Any]]) -> set[Right]:
    """The rights that some request of the operator made use of."""
    allowed = (
        entry["objectRef"] | {"verb": entry["verb"]}
        for entry in requests
        if is_operators(entry)
        and "objectRef" in entry
        and entry["annotations"].get("authorization.k8s.io/decision") == "allow"
        and not entry["userAgent"].startswith("kubectl/")  # a person who asks what the operator may do
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


def of_role(name: str) -> set[Right]:
    """What a generated role holds."""
    role, _ = yaml.safe_load_all((CONFIG / "rbac" / name).read_text())
    return granted(role["rules"])


def needless(rights: set[Right], made_use_of: set[Right]) -> set[Right]:
    """Those that nothing uses."""
    return {
        right
        for right in rights - made_use_of - granted(TO_PASS_ON)
        if not (right.verb == "update" and right.resource.endswith(OWNERSHIP))
    }


class LeastPrivilege:
    """Fails a run of all tests when the roles hold what no test made the operator use, or lack what one did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.OK or not _all_tests(session.config):
            return
        found = used(entries(self._folder))
        held = {name: of_role(name) for name in ROLES}
        self._told = [f"{name}: {right}" for name in ROLES for right in sorted(needless(held[name], found))]
        self._told += [f"in no role: {right}" for right in sorted(found - set().union(*held.values()))]
        if self._told:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._told:
            terminalreporter.section("rights of the operator that no test needs, or that are in no role", red=True)
            terminalreporter.write_line("\n".join(self._told))


def _all_tests(config: pytest.Config) -> bool:
    """Whether nothing was left out."""
    chosen = (config.option.keyword, config.option.deselect, config.getoption("lf", False), config.option.collectonly)
    everywhere = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return everywhere and config.option.markexpr == "not campaign" and not any(chosen)
