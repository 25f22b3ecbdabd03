"""The command `status`."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from .common import ALL_NAMESPACES, CLUSTER, NAMESPACE, OPERATOR_NAMESPACE, complete_name, options, paint, run

if TYPE_CHECKING:
    from coder_k8s.console.session import Session
    from coder_k8s.console.tree import Tree

NOT_READY = 3
FORMAT = """\
\b
-o json and -o yaml print version, podsListed, operator and items.
operator has:
  namespace, version, leader, lastSeen, replicas, readyReplicas
  state                    Running, NotLeading, NotReady, NotFound, Unknown
  message                  why it is not Running
An item has:
  kind, namespace, name    of the object
  exists                   false if it is referenced but does not exist
  ready, reason, message   the condition Ready: "True", "False" or "Unknown"
  stalled, paused          whether user action is required; whether paused
  deleting, phase, replicas, readyReplicas
  details                  by kind: version, url, licenseTier,
                           health, unservedJobs;
                           organizationName, provisionerKeyName,
                           retiringKeys, daemons;
                           registered, proxyName, coderURL
  conditions               type, status, reason and message of those
                           that are not satisfied, or report a problem
                           of Coder itself
  pods                     name, ready, phase, reason, message, restarts
  children                 its provisioners and proxies, also items
"""


@click.command(epilog=FORMAT)
@click.argument("target", metavar="[[KIND/]NAME]", required=False, shell_complete=complete_name)
@options(*CLUSTER, NAMESPACE, ALL_NAMESPACES, OPERATOR_NAMESPACE)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Output format.")
@click.option("-w", "--watch", is_flag=True, help="Show the status again after each change, until Ctrl-C.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if an object is not Ready.")
def status(
    target: str | None, output: str, watch: bool, exit_code: bool, operator_namespace: str, **cluster: Any
) -> None:
    """Show the Coder resources, their pods, and what is not ready.

    The first line shows the operator: its pods, version, leader, and when the leader last renewed its Lease. With NAME,
    show only this object and its children. The exit code is 0 even if an object is not Ready, unless --exit-code is
    set; 1 if the cluster cannot be queried.

    \b
    Examples:
      coder-k8s status -n coder
      coder-k8s status cprov/gpu -n coder --watch
      coder-k8s status -A --exit-code
      coder-k8s status coder -n coder -o yaml
    """
    from coder_k8s.console.status import load_tree

    if watch and exit_code:
        raise click.UsageError("--watch and --exit-code are mutually exclusive")

    async def work(session: "Session") -> "Tree":
        if watch:
            await _watch(session, target, operator_namespace, output)
        tree = await load_tree(session, target, operator_namespace)
        click.echo(_render(tree, output, session))
        return tree

    try:
        tree = run(cluster, work)
    except KeyboardInterrupt:
        if not watch:
            raise
        return
    if exit_code and not tree.ready:
        sys.exit(NOT_READY)


async def _watch(session: "Session", target: str | None, operator_namespace: str, output: str) -> None:
    """Show the tree after each change: on a terminal instead of the last one, otherwise below it."""
    from contextlib import aclosing

    from coder_k8s.console.status import watch_trees

    separator = {"text": "", "json": "", "yaml": "---"}[output]
    last: object = None
    async with aclosing(watch_trees(session, target, operator_namespace)) as trees:
        async for tree, error in trees:
            terminal = sys.stdout.isatty()
            shown = (tree if terminal else tree.without_times(), bool(error))
            if shown == last:
                continue
            if terminal:
                click.clear()
            elif last is not None:
                click.echo(separator)
            last = shown
            click.echo(_render(tree, output, session))
            if error:
                click.echo(f"This may be out of date: {error}", err=True)


def _render(tree: "Tree", output: str, session: "Session") -> str:
    from coder_k8s.console import render

    if output == "json":
        return render.as_json(tree)
    if output == "yaml":
        return render.as_yaml(tree)
    text = render.as_text(tree, paint, datetime.now(UTC))
    if tree.items:
        return text
    hint = " (use -A for all namespaces)" if session.namespace else ""
    return f"{text}\nNo Coder resources found in {session.where}{hint}."
