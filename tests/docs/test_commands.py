"""Runs the commands of the documentation, in the order of its navigation."""

import asyncio
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from coder_k8s.dev.full_cluster import FullCluster
from coder_k8s.dev.postgres import Postgres
from tests.docs.environment import DocsEnvironment, docs_environment
from tests.docs.pages import DOCS, EXCUSES, ROOT, Block, blocks, pages
from tests.security.audit import auditing

PARALLEL = (
    [DOCS / "how-to" / name for name in ("provisioners.md", "autoscaling.md", "rotation.md")],
    [DOCS / "how-to" / "workspace-proxies.md"],
)
"""Pages that mostly wait for Coder; they run at the same time as the pages after them."""
LAST = DOCS / "how-to" / "uninstall.md"
"""Deletes what the other pages use."""
CLUSTER = DOCS / "getting-started" / "cluster.md"
WITHOUT_HELM = (
    (CLUSTER, "--kustomize ."),
    (CLUSTER, "kubectl apply --filename coder.yaml"),
    (LAST, "kubectl delete codercontrolplanes"),
    (LAST, "kubectl get coder"),
    (LAST, "--kustomize ."),
)
"""Blocks that install and uninstall again, each identified by a part of its text."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_commands(postgres: Postgres, audit: Path, tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder,
        FullCluster(Path(folder), auditing(audit)) as cluster,
    ):
        async with docs_environment(cluster, postgres, tmp_path) as environment:
            try:
                await run_pages(environment)
                assert not environment.defects
            finally:
                for seconds, place in sorted(environment.durations, reverse=True):
                    print(f"{seconds:6.1f} s  {place}")  # noqa: T201


async def run_pages(environment: DocsEnvironment) -> None:
    separate = [LAST, *(page for chain in PARALLEL for page in chain)]
    async with asyncio.TaskGroup() as group:
        for page in pages():
            for chain in PARALLEL:
                if page == chain[0]:
                    group.create_task(run_chain(environment, chain))
            if page not in separate:
                await run_chain(environment, [page])
    await run_chain(environment, [LAST])
    assert environment.left() == []
    for page, text in WITHOUT_HELM:
        await environment.run(next(block for block in blocks(page) if text in block.text and block.language == "sh"))
    assert environment.left() == []


async def run_chain(environment: DocsEnvironment, chain: list[Path]) -> None:
    for block in (block for page in chain for block in blocks(page)):
        if block.title:
            environment.write(block)
        if block.language == "sh" and not block.excuse:
            await environment.run(block)


NOT_RUN = [block for page in pages() for block in blocks(page) if block.excuse]
PROGRAMS = ("kubectl", "helm", "make", "docker", "coder", "coder-k8s", "kubeconform", "pipx")
FILES = re.compile(r"(?:--(?:filename|kustomize|patch-file)[ =]|helm (?:install|upgrade) \S+ )(\S+)")


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: f"{block} {block.excuse}")
def test_commands_that_are_not_run(block: Block) -> None:
    """They have valid shell syntax, and use known programs and existing files."""
    assert EXCUSES[block.excuse]
    shell = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert (shell.returncode, shell.stderr) == (0, "")
    commands = block.text.replace("\\\n", " ").splitlines()
    assert {command.split()[0] for command in commands} <= {*PROGRAMS}
    written = {each.title for page in pages() for each in blocks(page)}
    for name in FILES.findall(" ".join(commands)):
        assert name in written or (ROOT / name).exists(), name
