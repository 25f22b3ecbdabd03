"""The command `check`."""

import sys
import time
from typing import Any

import click

from coder_k8s.parameters import Duration

from .common import CLUSTER, OPERATOR_NAMESPACE, options, paint, run

COLORS = {"ok": "green", "failed": "red", "skipped": "yellow"}


@click.command()
@options(*CLUSTER, OPERATOR_NAMESPACE)
@click.option(
    "--wait",
    type=Duration(),
    default="0s",
    show_default=True,
    help="Repeat the checks until none fails, for at most this long.",
)
def check(operator_namespace: str, wait: float, **cluster: Any) -> None:
    """Check that the operator is installed and works.

    Prints one line per check, for a failed one with what to do: API server (ready), CRDs (installed and of this
    version), operator (pods are ready), leader (a replica renews the Lease), permissions (of the operator's
    ServiceAccount), Gateway API (installed if an object needs it) and metrics (served). A check is skipped if you do
    not have the permissions that it needs. The exit code is 1 if a check fails.

    \b
    Examples:
      coder-k8s check
      coder-k8s check --wait 2m
      coder-k8s check --operator-namespace my-operators
    """
    from coder_k8s.console.checks import check_all
    from coder_k8s.console.render import printable

    deadline = time.monotonic() + wait
    results = run(cluster, lambda session: check_all(session, operator_namespace, deadline - time.monotonic()), wait)
    for name, outcome, message in results:
        click.echo(f"{paint(f'{outcome:<7}', COLORS[outcome])}  {name}: {printable(message)}")
    if any(result.outcome == "failed" for result in results):
        sys.exit(1)
