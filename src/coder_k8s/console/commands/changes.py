"""The commands `rotate`, `pause` and `resume`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from coder_k8s.parameters import Duration

from .common import CLUSTER, NAMESPACE, options, run, target_argument

if TYPE_CHECKING:
    from coder_k8s.console.session import Session


@click.command()
@target_argument
@options(*CLUSTER, NAMESPACE)
@click.option("--wait", is_flag=True, help="Wait until the new key is in use and the old key is deleted.")
@click.option("--timeout", type=Duration(), default="15m", show_default=True, help="Maximum time to wait.")
def rotate(target: str, wait: bool, timeout: float, **cluster: Any) -> None:
    """Rotate the key of a provisioner without interrupting builds.

    If a rotation is already pending, no second one is requested.

    \b
    Examples:
      coder-k8s rotate gpu -n coder
      coder-k8s rotate gpu -n coder --wait --timeout 30m
    """
    from coder_k8s.console import changes
    from coder_k8s.console.objects import parse_target

    async def work(session: "Session") -> None:
        before, line = await changes.rotate(session, parse_target(target), datetime.now(UTC))
        click.echo(line)
        if wait:
            await changes.follow(session, before, timeout, click.echo)

    run(cluster, work)


@click.command()
@target_argument
@options(*CLUSTER, NAMESPACE)
def pause(target: str, **cluster: Any) -> None:
    """Pause reconciliation of an object.

    The operator makes no changes for a paused object. Its deletion also waits until you resume.

    \b
    Examples:
      coder-k8s pause codercontrolplane/coder -n coder
      coder-k8s pause cprov/gpu -n coder
    """
    from coder_k8s.console import changes
    from coder_k8s.console.objects import parse_target

    click.echo(run(cluster, lambda session: changes.pause(session, parse_target(target))))


@click.command()
@target_argument
@options(*CLUSTER, NAMESPACE)
def resume(target: str, **cluster: Any) -> None:
    """Resume reconciliation of a paused object.

    \b
    Examples:
      coder-k8s resume codercontrolplane/coder -n coder
    """
    from coder_k8s.console import changes
    from coder_k8s.console.objects import parse_target

    click.echo(run(cluster, lambda session: changes.resume(session, parse_target(target))))
