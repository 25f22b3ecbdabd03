"""The commands of the README do what it says."""

import re
import shlex
from pathlib import Path

from coder_k8s.dev.cluster import Cluster
from tests.e2e.operator_process import Start
from tests.support import eventually

ROOT = Path(__file__).parents[2]


def commands(heading: str) -> list[list[str]]:
    """The commands of the first block under a heading."""
    section = (ROOT / "README.md").read_text().split(f"## {heading}\n")[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [shlex.split(line) for line in block[1].splitlines()]


async def test_try_it(fresh_cluster: Cluster, launch: Start) -> None:
    make, *kubectl, controller = commands("Try it")
    assert make == ["make", "venv"], "what runs these tests has been set up by make"
    for program, *arguments in kubectl:
        assert program == "kubectl"
        fresh_cluster.kubectl(*(str(ROOT / word) if word.startswith("config/") else word for word in arguments))
    assert controller[:2] == [".venv/bin/coder-k8s", "controller"]
    flags = [flag for flag in controller[2:] if flag != "--log-format=console"]
    operator = launch(fresh_cluster.kubeconfig, *flags)
    await eventually(operator.leads)
    assert await operator.is_ready()


def test_test_it() -> None:
    (command,) = commands("Test it")
    assert command == ["make", "test"]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")


def test_every_file_that_the_texts_link_to_is_there() -> None:
    for text in ("README.md", "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / text).read_text()):
            assert (ROOT / link).exists(), link
