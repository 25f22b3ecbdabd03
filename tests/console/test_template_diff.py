"""`diff` shows how a template in Coder differs from its object, without the values of variables."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from coder_k8s.api import TEMPLATE, CoderTemplate
from coder_k8s.cli import main
from coder_k8s.coderd.templates import ImportedVersion, ManagedTemplate
from coder_k8s.coderd.types import Template
from coder_k8s.console.template_diff import Current, Planned, text
from coder_k8s.controllers.template.access import Entry, plan_access
from coder_k8s.controllers.template.archive import archive
from coder_k8s.controllers.template.identity import message_of
from coder_k8s.controllers.template.settings import plan
from coder_k8s.controllers.template.sources import Source
from coder_k8s.dev.cluster import ClusterAccess
from coder_k8s.dev.coderd_server import CoderdServer
from coder_k8s.dev.coderd_server.templates import DEFAULTS
from tests.console.coder_proxy import ApiServerWithCoder, make_plane
from tests.console.manifests import put, template
from tests.support.clock import Clock
from tests.support.installation import restricted_kubeconfig

MAIN = b"one\ntwo\nthree\n"
SECRET = "a-value-that-is-not-shown"


def made(**spec: Any) -> CoderTemplate:
    manifest = template("go", "demo", {"source": {"inline": {"files": {"main.tf": ""}}}, **spec})
    return msgspec.convert(manifest, CoderTemplate)


def current(of: CoderTemplate, source: Source, files: dict[str, bytes]) -> Current:
    """The template as Coder has it after an import of the source, but with these files."""
    job = {"id": "j", "created_at": "2026-03-01T12:00:00Z", "status": "succeeded", "tags": {}}
    version = {"id": "v", "name": "abc-1", "job": job, "created_at": "2026-03-01T12:00:00Z"}
    imported = {**version, "message": message_of(of, source.digest, "r")}
    managed = ManagedTemplate(Template("t", "go", "o", "v"), {**DEFAULTS, "name": "go"})
    return Current(managed, msgspec.convert(imported, ImportedVersion), files)


def lines(
    of: CoderTemplate, source: Source, found: Current | None, planned: Planned | None = None, **options: Any
) -> list[str]:
    return list(text(of, "coder", source, found, planned or Planned(), **options))


SOURCE = Source("r", {"main.tf": MAIN}, {"password": SECRET}, {})


def test_no_difference() -> None:
    of = made()
    assert lines(of, SOURCE, current(of, SOURCE, {"main.tf": MAIN})) == [
        "Template go in organization coder, active version abc-1",
        "Result: nothing would change.",
    ]


def test_files() -> None:
    of = made()
    source = Source("r", {"main.tf": b"one\n2\nthree\n", "new.tf": b"", "x.png": b"\xff", ".env": b"x"}, {}, {})
    found = current(of, SOURCE, {"main.tf": MAIN, "old.tf": b"", "x.png": b"\xfe"})
    shown = lines(of, source, found)
    assert shown[1:] == [
        "Files",
        "  ~ main.tf (+1 -1)",
        "  + new.tf",
        "  - old.tf",
        "  ~ x.png",
        "Result: a version with these files would be imported, unless Coder has one.",
    ]
    content = lines(of, source, found, content=True)[3:8]
    assert [line.strip() for line in content] == ["@@ -1,3 +1,3 @@", "one", "-two", "+2", "three"]


def test_variables_and_tags() -> None:
    of = made()
    shown = lines(of, replace(SOURCE, variables={"password": f"{SECRET}-2"}), current(of, SOURCE, {"main.tf": MAIN}))
    assert shown[1:3] == ["Variables or tags", "  differ from those of the active version"]
    assert SECRET not in "".join(shown)


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        ({}, "a version with these files would be imported, and the template created."),
        ({"managementPolicy": "Observe"}, "the template is only observed, so that nothing would change."),
    ],
)
def test_a_template_that_does_not_exist(spec: Any, result: str) -> None:
    assert lines(made(**spec), SOURCE, None) == [
        "Template go in organization coder, which does not exist in Coder",
        "Files",
        "  + main.tf",
        f"Result: {result}",
    ]


def test_manual_promotion() -> None:
    of = made(promotion={"policy": "Manual"})
    shown = lines(of, SOURCE, current(of, SOURCE, {}))
    assert (
        shown[-1] == "Result: a version with these files would be imported, and not made active, unless Coder has one."
    )


def test_settings() -> None:
    settings = {"displayName": "Go", "requireActiveVersion": True}
    schedule = {"deleteDormantAfter": "1h", "failureTTL": "1h"}
    of = made(settings={**settings, "schedule": schedule})
    found = current(of, SOURCE, {"main.tf": MAIN})
    planned = plan(of.spec.settings, found.template.settings, {"advanced_template_scheduling"}, "go")
    assert lines(of, SOURCE, found, Planned(planned))[1:] == [
        "Settings",
        '  displayName: "" -> "Go"',
        "  schedule.failureTTL: 0 -> 3600000",
        "  requireActiveVersion: not covered by the license, and not applied",
        "  schedule.deleteDormantAfter: would delete workspaces, and needs schedule.allowWorkspaceDeletion",
        "Result: settings or access would be changed.",
    ]


def test_access() -> None:
    of = made(access={"groups": [{"name": "nobody", "role": "Use"}], "users": [{"name": "alice", "role": "Admin"}]})
    found = current(of, SOURCE, {"main.tf": MAIN})
    assert of.spec.access is not None
    roles = {"o": Entry("Everyone", "use"), "g": Entry("old", "use")}
    access = plan_access(of.spec.access, "o", (roles, {"Everyone": "o"}), ({}, {"alice": "a"}))
    assert lines(of, SOURCE, found, Planned(access=access))[1:] == [
        "Access",
        "  group old: removed",
        "  user alice: admin",
        "  group nobody: does not exist in Coder",
        "Result: settings or access would be changed.",
    ]


@pytest.fixture
async def coderd() -> AsyncIterator[CoderdServer]:
    async with CoderdServer(now=Clock()) as server:
        yield server


async def test_the_command(
    cluster: ClusterAccess, crds: None, namespace: str, coderd: CoderdServer, tmp_path: Path
) -> None:
    make_plane(cluster, namespace, coderd.state.token)
    spec = {"source": {"configMapRef": {"name": "files"}}, "settings": {"displayName": "Plain"}}
    put(cluster, TEMPLATE, namespace, template("plain", "demo", spec))
    state = coderd.state
    version = state.templates.versions[state.templates.templates[state.templates.add_template("plain")].active]
    file = state.queue.job(version.job).file
    state.templates.files[file] = (state.owner.id, "")
    state.templates.archives[file] = archive({"main.tf": MAIN})
    user = restricted_kubeconfig(cluster, namespace, tmp_path / "user", "cluster-admin")
    async with ApiServerWithCoder(cluster, namespace, coderd) as server:
        env = {"KUBECONFIG": str(server.kubeconfig(user, tmp_path / "forwarded")), "CODER_SESSION_TOKEN": ""}
        cli = CliRunner(env=env)
        missing = await asyncio.to_thread(cli.invoke, main, ["diff", "plain"])
        assert missing.exit_code == 1
        assert "ConfigMap files does not exist; create it, or correct source.configMapRef.name" in missing.output
        cluster.kubectl("create", "configmap", "files", "--from-literal=main.tf=one", "-n", namespace)
        result = await asyncio.to_thread(cli.invoke, main, ["diff", "plain"])
    assert (
        result.output
        == """\
Template plain in organization coder, active version v1
Files
  ~ main.tf (+0 -2)
Settings
  displayName: "" -> "Plain"
Result: a version with these files would be imported, unless Coder has one.
"""
    )
