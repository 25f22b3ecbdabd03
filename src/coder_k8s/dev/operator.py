"""The operator as a separate process."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from coder_k8s.manifests import rbac

from .processes import Process, answer, free_port
from .samples import PLANE

NO_ELECTION = ("--no-leader-elect",)
LONG_LEASE = ("--leader-election-lease-duration=24h", "--leader-election-renew-deadline=23h")
"""For one operator at a time, which keeps the Lease while the machine is suspended."""
COUNTED = re.compile(r"^controller_runtime_reconcile_total\{controller=\"(\w+)\".*\} [1-9]", re.MULTILINE)


class Operator(Process):
    """Runs `coder-k8s controller` as its own ServiceAccount, connected to a local port instead of coderd's Service."""

    def __init__(self, kubeconfig: Path, coderd_port: int, log: Path, election: Sequence[str] = NO_ELECTION) -> None:
        self._health, self.metrics_port = free_port(), free_port()
        service = f"{PLANE.name}.{PLANE.namespace}.svc.cluster.local:80"
        command = [
            *(sys.executable, "-m", "coder_k8s", "controller"),
            f"--kubeconfig={kubeconfig}",
            f"--coderd-connect-to={service}=127.0.0.1:{coderd_port}",
            f"--leader-election-namespace={rbac.NAMESPACE}",
            *election,
            f"--health-probe-bind-address=127.0.0.1:{self._health}",
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
            "--log-format=console",
        ]
        super().__init__(command, log, self._responds, env=dict(os.environ))
        self.name = "operator"

    def _responds(self) -> bool:
        return answer(self._health, "/readyz") is not None

    def has_reconciled(self, controllers: int) -> bool:
        """Return whether this many controllers have reconciled, because the status of earlier runs may be outdated."""
        return len(controllers_reconciled(answer(self.metrics_port, "/metrics") or "")) >= controllers


def controllers_reconciled(metrics: str) -> set[str]:
    """Return the controllers that have reconciled, from the metrics of the operator."""
    return {match[1] for match in COUNTED.finditer(metrics)}
