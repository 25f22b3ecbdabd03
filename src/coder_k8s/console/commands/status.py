"""The command `status`."""

import sys
from typing import TYPE_CHECKING, Any

import click

from .common import ALL_NAMESPACES, CLUSTER, NAMESPACE, complete_name, options, paint, run

if TYPE_CHECKING:
    from coder_k8s.console.session import Session
    from coder_k8s.console.tree import Tree

NOT_READY = 3


@click.command()
@click.argument("target", metavar="[[KIND/]NAME]", required=False, shell_complete=complete_name)
@options(*CLUSTER, NAMESPACE, ALL_NAMESPACES)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if an object is not Ready.")
def status(target: str | None, output: str, exit_code: bool, **cluster: Any) -> None:
    """Show the Coder resources, their pods, and what is not ready.

    With NAME, show only this object and its children. The exit code is 0 even if an object is not Ready, unless
    --exit-code is set; 1 if the cluster cannot be queried.

    \b
    Examples:
      coder-k8s status -n coder
      coder-k8s status cprov/gpu -n coder
      coder-k8s status -A --exit-code

    \b
    -o json prints {"version": 1, "podsListed": BOOL, "items": [NODE, ...]}.
    A NODE has:
      kind, namespace, name    of the object
      exists                   false if it is referenced but does not exist
      ready, reason, message   the condition Ready: "True", "False" or "Unknown"
      stalled, paused          whether user action is required; whether paused
      deleting, phase, replicas, readyReplicas
      details                  by kind: version, url, licenseTier;
                               organizationName, provisionerKeyName,
                               retiringKeys, daemons;
                               registered, proxyName, coderURL
      conditions               type, status, reason and message of those
                               that are not satisfied
      pods                     name, ready, phase, reason, message, restarts
      children                 the NODEs of its provisioners and proxies
    """
    from coder_k8s.console import render
    from coder_k8s.console.status import load_tree

    async def work(session: "Session") -> tuple["Tree", str]:
        return await load_tree(session, target), session.where

    tree, where = run(cluster, work)
    if output == "json":
        click.echo(render.as_json(tree))
    else:
        hint = "" if cluster["all_namespaces"] else " (use -A for all namespaces)"
        click.echo(render.as_text(tree, paint) or f"No Coder resources found in {where}{hint}.")
    if exit_code and not tree.ready:
        sys.exit(NOT_READY)
