"""The command `why`."""

from typing import Any

import click

from .common import CLUSTER, NAMESPACE, SESSION_TOKEN, options, run


@click.command()
@click.argument("name", metavar="JOB|WORKSPACE|TEMPLATE")
@options(*CLUSTER, NAMESPACE)
@click.option("--control-plane", metavar="NAME", help="Control plane. Defaults to the only one in the namespace.")
@SESSION_TOKEN
def why(name: str, control_plane: str | None, use_session_token: bool, **cluster: Any) -> None:
    """Show which provisioners can run a job, and which cannot.

    NAME is the ID of a job, the name of a workspace or template that a job waits for, a workspace as OWNER/NAME, or a
    template. For a workspace, its last build is explained; for a template, its future builds.

    Coder is queried through the API server: you need the permission to get services/proxy, and to read the Secret with
    the operator's token, unless you use --use-session-token.

    \b
    Examples:
      coder-k8s why gpu -n coder
      coder-k8s why jo/my-workspace -n coder
      coder-k8s why 2cc888df-b19c-4f74-a73f-fde5ba3eb962 -n coder
    """
    from coder_k8s.console.why import explain

    click.echo(run(cluster, lambda session: explain(session, name, control_plane, use_session_token=use_session_token)))
