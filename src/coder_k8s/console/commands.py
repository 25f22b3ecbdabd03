"""The commands for users. Each command imports what it needs, so that other commands start fast."""

import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coder_k8s.parameters import Duration

if TYPE_CHECKING:
    from .bundle import Bundle
    from .session import Session
    from .tree import Tree

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PROGRAM = "coder-k8s"
COMPLETE_VARIABLE = "_CODER_K8S_COMPLETE"
NOT_READY = 3

CLUSTER = (
    click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Path to the kubeconfig file."),
    click.option("--context", metavar="NAME", help="Context in the kubeconfig. Defaults to the current context."),
    click.option("-n", "--namespace", metavar="NAME", help="Namespace. Defaults to the namespace of the context."),
)
ALL_NAMESPACES = click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")


def options(*wanted: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(wanted):
            command = option(command)
        return command

    return decorate


def run(cluster: dict[str, Any], work: Callable[["Session"], Awaitable[T]]) -> T:
    """Run a function in the cluster that the options select. An error is one line."""
    import asyncio

    from coder_k8s.kube.discovery import NotReachable
    from coder_k8s.kube.errors import KubeError

    from .session import ClusterTarget, CommandFailed, connect

    async def connected() -> T:
        async with connect(ClusterTarget(**cluster)) as session:
            return await work(session)

    try:
        return asyncio.run(connected())
    except (KubeError, NotReachable, CommandFailed) as error:
        raise click.ClickException(" ".join(str(error).split())) from None


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of objects for shell completion; none if the cluster is not reachable."""
    from .objects import names

    cluster = {name: ctx.params.get(name) for name in ("kubeconfig", "context", "namespace")}
    try:
        found = run(cluster, names)
    except click.ClickException:
        return []
    return [name for name in found if name.startswith(incomplete)]


target_argument = click.argument("target", metavar="[KIND/]NAME", shell_complete=complete_name)


@click.command()
@click.argument("target", metavar="[[KIND/]NAME]", required=False, shell_complete=complete_name)
@options(*CLUSTER, ALL_NAMESPACES)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if an object is not Ready.")
def status(target: str | None, output: str, exit_code: bool, **cluster: Any) -> None:
    """Show control planes with their provisioners, proxies and pods, and the reason if an object is not Ready.

    With NAME, show only this object and its children. The exit code is 0 even if an object is not Ready, unless
    --exit-code is set; 1 if the cluster cannot be queried.

    \b
    -o json prints {"version": 1, "podsListed": BOOL, "items": [NODE, ...]}. A NODE has:
      kind, namespace, name    of the object
      exists                   false for a control plane that is referenced but does not exist
      ready, reason, message   the condition Ready: "True", "False" or "Unknown"
      stalled, paused          whether user action is required, and whether the object is paused
      deleting, phase, replicas, readyReplicas
      details                  by kind: version, url, licenseTier; organizationName,
                               provisionerKeyName, retiringKeys, daemons; registered, proxyName, coderURL
      conditions               conditions that are not satisfied: type, status, reason, message
      pods                     name, ready, phase, reason, message, restarts
      children                 the NODEs of its provisioners and proxies
    """
    from . import render
    from .status import load_tree

    async def work(session: "Session") -> tuple["Tree", str]:
        return await load_tree(session, target), session.where

    tree, where = run(cluster, work)
    if output == "json":
        click.echo(render.as_json(tree))
    else:
        hint = "" if cluster["all_namespaces"] else " (use -A for all namespaces)"
        text = render.as_text(tree, _paint if _use_colors() else render.plain)
        click.echo(text or f"No Coder resources found in {where}{hint}.")
    if exit_code and not tree.ready:
        sys.exit(NOT_READY)


@click.command()
@target_argument
@options(*CLUSTER)
@click.option("--wait", is_flag=True, help="Wait until the new key is in use and the old key is deleted.")
@click.option("--timeout", type=Duration(), default="15m", show_default=True, help="Maximum time to wait.")
def rotate(target: str, wait: bool, timeout: float, **cluster: Any) -> None:
    """Rotate the key of a provisioner, without interrupting builds.

    If a rotation is already pending, no second one is requested.
    """
    from . import changes
    from .objects import parse_target

    async def work(session: "Session") -> None:
        before, line = await changes.rotate(session, parse_target(target), datetime.now(UTC))
        click.echo(line)
        if wait:
            await changes.follow(session, before, timeout, click.echo)

    run(cluster, work)


@click.command()
@target_argument
@options(*CLUSTER)
def pause(target: str, **cluster: Any) -> None:
    """Pause reconciliation of an object. Its deletion also waits until you resume."""
    from . import changes
    from .objects import parse_target

    click.echo(run(cluster, lambda session: changes.pause(session, parse_target(target))))


@click.command()
@target_argument
@options(*CLUSTER)
def resume(target: str, **cluster: Any) -> None:
    """Resume reconciliation of a paused object."""
    from . import changes
    from .objects import parse_target

    click.echo(run(cluster, lambda session: changes.resume(session, parse_target(target))))


@click.command()
@options(*CLUSTER, ALL_NAMESPACES)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File to write. Defaults to coder-k8s-report-TIME.zip in the current directory.",
)
@click.option(
    "--operator-namespace",
    metavar="NAME",
    default="coder-system",
    show_default=True,
    help="Namespace of the operator, to read its log.",
)
def report(output: Path | None, operator_namespace: str, **cluster: Any) -> None:
    """Write a support bundle without secrets.

    It contains the Coder resources and their children, their events, the log of the operator, and versions. For
    Secrets, it contains only names, keys and sizes. Values of environment variables, arguments and annotations are
    redacted, and so is everything in messages and logs that equals or looks like a secret. Review it before you share
    it.
    """
    from . import report as reports
    from .bundle import gather
    from .render import as_text, plain
    from .status import load_tree

    async def work(session: "Session") -> tuple["Bundle", str]:
        text = as_text(await load_tree(session, None), plain)
        return await gather(session, operator_namespace), text

    now = datetime.now(UTC)
    bundle, text = run(cluster, work)
    path = output or Path(f"coder-k8s-report-{now:%Y%m%dT%H%M%SZ}.zip")
    content = reports.files(bundle, text, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    try:
        reports.write(path, content)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    click.echo(f"{path}: {len(content)} files about {len(bundle.objects)} objects")
    for problem in bundle.problems:
        click.echo(problem, err=True)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell completion script.

    \b
    bash: source <(coder-k8s completion bash)
    zsh:  source <(coder-k8s completion zsh)
    fish: coder-k8s completion fish | source

    kubectl completes `kubectl coder` if kubectl_complete-coder is on the PATH.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    complete = get_completion_class(shell)
    assert complete is not None  # noqa: S101 - click has all three
    click.echo(complete(root, {}, PROGRAM, COMPLETE_VARIABLE).source())


ALL = (status, rotate, pause, resume, report, completion)


def _use_colors() -> bool:
    """Return whether colors are enabled; click removes them if the output is not a terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(text: str, color: str) -> str:
    return click.style(text, bold=True) if color == "bold" else click.style(text, fg=color)
