"""The commands of the documentation do what it says, one page after the other, as a reader would go through them."""

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

BESIDE = (
    [DOCS / "how-to" / "provisioners.md", DOCS / "how-to" / "rotation.md"],
    [DOCS / "how-to" / "workspace-proxies.md"],
)
"""Pages that mostly wait for Coder to see something, beside which the pages after them are read."""
LAST = DOCS / "how-to" / "uninstall.md"
"""Takes away what all the others use."""
CLUSTER = DOCS / "getting-started" / "cluster.md"
WITHOUT_HELM = (
    (CLUSTER, "--kustomize ."),
    (CLUSTER, "kubectl apply --filename coder.yaml"),
    (LAST, "kubectl delete codercontrolplanes"),
    (LAST, "kubectl get coder"),
    (LAST, "--kustomize ."),
)
"""Blocks that install and uninstall once more, each by a part of its text."""


@pytest.mark.timeout(600)
async def test_commands(postgres: Postgres, audit: Path, tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="coder-k8s-") as folder,
        FullCluster(Path(folder), auditing(audit)) as cluster,
    ):
        async with docs_environment(cluster, postgres, tmp_path) as reader:
            try:
                await read(reader)
                assert not reader.defects
            finally:
                for seconds, place in sorted(reader.took, reverse=True):
                    print(f"{seconds:6.1f} s  {place}")  # noqa: T201


async def read(reader: DocsEnvironment) -> None:
    apart = [LAST, *(page for chain in BESIDE for page in chain)]
    async with asyncio.TaskGroup() as group:
        for page in pages():
            for chain in BESIDE:
                if page == chain[0]:
                    group.create_task(follow(reader, chain))
            if page not in apart:
                await follow(reader, [page])
    await follow(reader, [LAST])
    assert reader.left() == []
    for page, text in WITHOUT_HELM:
        await reader.run(next(block for block in blocks(page) if text in block.text and block.language == "sh"))
    assert reader.left() == []


async def follow(reader: DocsEnvironment, chain: list[Path]) -> None:
    for block in (block for page in chain for block in blocks(page)):
        if block.title:
            reader.write(block)
        if block.language == "sh" and not block.excuse:
            await reader.run(block)


NOT_RUN = [block for page in pages() for block in blocks(page) if block.excuse]
PROGRAMS = ("kubectl", "helm", "make", "docker", "coder", "coder-k8s")
FILES = re.compile(r"(?:--(?:filename|kustomize|patch-file)[ =]|helm (?:install|upgrade) \S+ )(\S+)")


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: f"{block} {block.excuse}")
def test_commands_that_are_not_run(block: Block) -> None:
    """They are commands of a shell at least, of programs that a reader has, on files that exist."""
    assert EXCUSES[block.excuse]
    shell = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert (shell.returncode, shell.stderr) == (0, "")
    commands = block.text.replace("\\\n", " ").splitlines()
    assert {command.split()[0] for command in commands} <= {*PROGRAMS}
    written = {each.title for page in pages() for each in blocks(page)}
    for name in FILES.findall(" ".join(commands)):
        assert name in written or (ROOT / name).exists(), name
