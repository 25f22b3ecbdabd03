"""The command `update`."""

from typing import TYPE_CHECKING, Any

import click

from coder_k8s.parameters import Duration

from .common import CLUSTER, NAMESPACE, complete_name, options, run

if TYPE_CHECKING:
    from coder_k8s.console.session import Session


@click.command()
@click.argument("name", shell_complete=complete_name)
@click.argument("image")
@options(*CLUSTER, NAMESPACE)
@click.option("--dry-run", is_flag=True, help="Check the image with a Job and print the plan, without an update.")
@click.option("--timeout", type=Duration(), default="10m", show_default=True, help="Maximum time of the Job.")
def update(name: str, image: str, dry_run: bool, timeout: float, **cluster: Any) -> None:
    """Update a control plane to another image of Coder.

    With --dry-run, the exit code is 1 if the update would be refused.

    \b
    Examples:
      coder-k8s update coder ghcr.io/coder/coder:v2.36.1 -n coder --dry-run
      coder-k8s update coder ghcr.io/coder/coder:v2.36.1 -n coder
    """
    from coder_k8s.console import updates

    async def work(session: "Session") -> bool:
        if dry_run:
            return await updates.dry_run(session, name, image, timeout, click.echo)
        click.echo(await updates.start(session, name, image))
        return True

    if not run(cluster, work):
        raise click.exceptions.Exit(1)
