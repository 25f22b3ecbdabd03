"""The command `diff`."""

from typing import Any

import click

from .common import CLUSTER, NAMESPACE, SESSION_TOKEN, complete_name, options, run


@click.command()
@click.argument("name", shell_complete=complete_name)
@options(*CLUSTER, NAMESPACE)
@click.option("--content", is_flag=True, help="Show the lines of files that differ.")
@SESSION_TOKEN
def diff(name: str, content: bool, use_session_token: bool, **cluster: Any) -> None:
    """Show how a template in Coder differs from its CoderTemplate.

    Shows files, settings and access that differ, and what the operator would do. Values of variables are not shown.

    Coder and the source controller of Flux are queried through the API server: you need the permission to get
    services/proxy, to read the Secrets with variables and, unless you use --use-session-token, the Secret with the
    operator's token.

    \b
    Examples:
      coder-k8s diff go -n coder
      coder-k8s diff go -n coder --content
    """
    from coder_k8s.console.template_diff import show

    click.echo(run(cluster, lambda session: show(session, name, content=content, use_session_token=use_session_token)))
