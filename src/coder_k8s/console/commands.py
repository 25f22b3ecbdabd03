"""The commands for people. What they need is imported when one of them runs."""

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

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PROGRAM = "coder-k8s"
COMPLETE_VARIABLE = "_CODER_K8S_COMPLETE"
NOT_READY = 3

CLUSTER = (
    click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="How to reach the cluster."),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig, if not the current one."),
    click.option("-n", "--namespace", metavar="NAME", help="The namespace, if not that of the context."),
)
EVERYWHERE = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces.")


def options(*wanted: Callable[[F], F]) -> Callable[[F], F]:
    """Several options, in their order."""

    def decorate(command: F) -> F:
        for option in reversed(wanted):
            command = option(command)
        return command

    return decorate


def ask(where: dict[str, Any], work: Callable[["Session"], Awaitable[T]]) -> T:
    """Do something in the cluster that the options name; what keeps it from being done is one line."""
    import asyncio

    from coder_k8s.kube.discovery import NotReachable
    from coder_k8s.kube.errors import KubeError

    from .session import ClusterTarget, Refused, visit

    async def visiting() -> T:
        async with visit(ClusterTarget(**where)) as session:
            return await work(session)

    try:
        return asyncio.run(visiting())
    except (KubeError, NotReachable, Refused) as trouble:
        raise click.ClickException(" ".join(str(trouble).split())) from None


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The names of objects for the shell; none where there is no cluster to ask."""
    from .objects import names

    where = {name: ctx.params.get(name) for name in ("kubeconfig", "context", "namespace")}
    try:
        found = ask(where, names)
    except click.ClickException:
        return []
    return [name for name in found if name.startswith(incomplete)]


target_argument = click.argument("target", metavar="[KIND/]NAME", shell_complete=complete_name)


@click.command()
@click.argument("target", metavar="[[KIND/]NAME]", required=False, shell_complete=complete_name)
@options(*CLUSTER, EVERYWHERE)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="For people or for scripts.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 when something is not Ready.")
def status(target: str | None, output: str, exit_code: bool, **where: Any) -> None:
    """Show control planes with their provisioners, proxies and pods, and why something is not Ready.

    NAME shows what belongs to one object only. The exit code is 0 also when something is not Ready, unless
    --exit-code is given; it is 1 when the cluster does not tell.

    \b
    -o json prints {"version": 1, "podsListed": BOOL, "items": [NODE, ...]}. A NODE has:
      kind, namespace, name    of the object
      exists                   false for a control plane that others refer to, but that is not there
      ready, reason, message   the condition Ready: "True", "False" or "Unknown"
      stalled, paused          whether somebody must act, and whether somebody paused it
      deleting, phase, replicas, readyReplicas
      details                  of the kind: version, url, licenseTier; organizationName,
                               provisionerKeyName, retiringKeys, daemons; registered, proxyName, coderURL
      conditions               those that do not hold: type, status, reason, message
      pods                     name, ready, phase, reason, message, restarts
      children                 the NODEs of its provisioners and proxies
    """
    from . import render
    from .status import look

    tree = ask(where, lambda session: look(session, target))
    if output == "json":
        click.echo(render.as_json(tree))
    else:
        click.echo(render.as_text(tree, _paint if _coloured() else render.plain) or "There is nothing of Coder here.")
    if exit_code and not tree.ready:
        sys.exit(NOT_READY)


@click.command()
@target_argument
@options(*CLUSTER)
@click.option("--wait", is_flag=True, help="Wait until the new key is in use and the old one is gone.")
@click.option("--timeout", type=Duration(), default="15m", show_default=True, help="How long to wait.")
def rotate(target: str, wait: bool, timeout: float, **where: Any) -> None:
    """Replace the key of a provisioner, without interrupting a build.

    A key that was asked for and is not there yet is not asked for again.
    """
    from . import changes
    from .objects import parse_target

    async def work(session: "Session") -> None:
        before, said = await changes.rotate(session, parse_target(target), datetime.now(UTC))
        click.echo(said)
        if wait:
            await changes.follow(session, before, timeout, click.echo)

    ask(where, work)


@click.command()
@target_argument
@options(*CLUSTER)
def pause(target: str, **where: Any) -> None:
    """Let the operator write nothing more about an object, its deletion included."""
    from . import changes
    from .objects import parse_target

    click.echo(ask(where, lambda session: changes.pause(session, parse_target(target))))


@click.command()
@target_argument
@options(*CLUSTER)
def resume(target: str, **where: Any) -> None:
    """Let the operator go on with an object that was paused."""
    from . import changes
    from .objects import parse_target

    click.echo(ask(where, lambda session: changes.resume(session, parse_target(target))))


@click.command()
@options(*CLUSTER, EVERYWHERE)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="The file to write. Without it: coder-k8s-report-TIME.zip in this folder.",
)
@click.option(
    "--operator-namespace",
    metavar="NAME",
    default="coder-system",
    show_default=True,
    help="Where the operator runs, for its log.",
)
def report(output: Path | None, operator_namespace: str, **where: Any) -> None:
    """Write a support bundle without secrets.

    It has the objects of Coder and what belongs to them, their events, the log of the operator and versions. Of Secrets
    it has names, keys and sizes. Values of environment variables, arguments and annotations are taken out, and whatever
    equals or looks like a secret in messages and logs too. Look through it all the same before you give it away.
    """
    from . import report as reports
    from .bundle import gather
    from .render import as_text, plain
    from .status import look

    async def work(session: "Session") -> tuple["Bundle", str]:
        told = as_text(await look(session, None), plain)
        return await gather(session, operator_namespace), told

    now = datetime.now(UTC)
    bundle, told = ask(where, work)
    path = output or Path(f"coder-k8s-report-{now:%Y%m%dT%H%M%SZ}.zip")
    content = reports.files(bundle, told, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    try:
        reports.write(path, content)
    except OSError as trouble:
        raise click.ClickException(f"cannot write {path}: {trouble.strerror}") from None
    click.echo(f"{path}: {len(content)} files about {len(bundle.objects)} objects")
    for problem in bundle.problems:
        click.echo(f"not in it: {problem}", err=True)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of a shell for coder-k8s.

    \b
    bash: source <(coder-k8s completion bash)
    zsh:  source <(coder-k8s completion zsh)
    fish: coder-k8s completion fish | source

    kubectl completes `kubectl coder` by itself where kubectl_complete-coder is on the PATH.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    complete = get_completion_class(shell)
    assert complete is not None  # noqa: S101 - click knows the three
    click.echo(complete(root, {}, PROGRAM, COMPLETE_VARIABLE).source())


ALL = (status, rotate, pause, resume, report, completion)


def _coloured() -> bool:
    """Whether somebody who looks at a terminal wants colours; click itself sends none anywhere else."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(text: str, colour: str) -> str:
    return click.style(text, bold=True) if colour == "bold" else click.style(text, fg=colour)
