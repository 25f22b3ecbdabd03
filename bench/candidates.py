"""The operators that a comparison runs: this one, and any other one that has control planes."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coder_k8s.dev.processes import Process
from tests.support.installation import NAMESPACE

from .cluster import CRDS, BenchCluster

KUBECONFIG = "{kubeconfig}"
FORMAT = "NAME=CRDS=COMMAND"


class InvalidCandidate(Exception):
    """The argument does not describe an operator."""


@dataclass(frozen=True)
class Candidate:
    """An operator: its name in the table, its CRDs and its command line."""

    name: str
    crds: Path
    command: tuple[str, ...]
    """`{kubeconfig}` stands for the path of the kubeconfig, which is also in the environment variable `KUBECONFIG`."""

    @contextmanager
    def running(self, here: BenchCluster) -> Iterator[Process]:
        """Run the operator as administrator until the context ends.

        Its Leases are deleted first, so that it does not wait until the Lease of an earlier process expires.
        """
        here.cluster.kubectl("delete", "leases", "--all", "--all-namespaces")
        kubeconfig = here.cluster.kubeconfig
        command = [word.replace(KUBECONFIG, str(kubeconfig)) for word in self.command]
        process = Process(command, here.folder / "candidate.log", env={**os.environ, "KUBECONFIG": str(kubeconfig)})
        process.start()
        try:
            yield process
        finally:
            process.stop()


def this_operator() -> Candidate:
    flags = (
        f"--kubeconfig={KUBECONFIG}",
        "--health-probe-bind-address=127.0.0.1:0",
        "--metrics-bind-address=127.0.0.1:0",
        f"--leader-election-namespace={NAMESPACE}",
    )
    return Candidate("coder-k8s", CRDS, (sys.executable, "-m", "coder_k8s", "controller", *flags))


def parse(text: str) -> Candidate:
    """Return the operator of `NAME=CRDS=COMMAND`."""
    name, _, rest = text.partition("=")
    crds, _, command = rest.partition("=")
    if not (name and crds and command.strip()):
        raise InvalidCandidate(f"expected {FORMAT}, not: {text}")
    if not Path(crds).exists():
        raise InvalidCandidate(f"there are no CRDs at {crds}")
    return Candidate(name, Path(crds), tuple(shlex.split(command)))
