"""The operator as a process of its own, and whether it has looked at everything."""

import os
import re
import sys
from pathlib import Path

from coder_k8s.manifests import rbac

from .processes import Process, answer, free_port
from .samples import PLANE

COUNTED = re.compile(r"^controller_runtime_reconcile_total\{controller=\"(\w+)\".*\} [1-9]", re.MULTILINE)


class Operator(Process):
    """`coder-k8s controller` under its own identity, led to a port of this machine instead of coderd's Service."""

    def __init__(self, kubeconfig: Path, coderd_port: int, log: Path) -> None:
        self._health, self.metrics_port = free_port(), free_port()
        service = f"{PLANE.name}.{PLANE.namespace}.svc.cluster.local:80"
        command = [
            *(sys.executable, "-m", "coder_k8s", "controller"),
            f"--kubeconfig={kubeconfig}",
            f"--coderd-connect-to={service}=127.0.0.1:{coderd_port}",
            f"--leader-election-namespace={rbac.NAMESPACE}",
            "--no-leader-elect",  # a Lease that a killed run held would keep the next one waiting
            f"--health-probe-bind-address=127.0.0.1:{self._health}",
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
            "--log-format=console",
        ]
        super().__init__(command, log, self._answers, env=dict(os.environ))
        self.name = "operator"

    def _answers(self) -> bool:
        return answer(self._health, "/readyz") is not None

    def has_looked(self, controllers: int) -> bool:
        """Whether so many of its controllers have made a pass: what is told from earlier runs may no longer be true."""
        return len(that_looked(answer(self.metrics_port, "/metrics") or "")) >= controllers


def that_looked(metrics: str) -> set[str]:
    """The controllers that have made a pass, by the metrics of the operator."""
    return {match[1] for match in COUNTED.finditer(metrics)}
