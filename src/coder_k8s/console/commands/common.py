"""What the commands share: options, completion of names, and the connection to the cluster."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from coder_k8s.console.session import Session

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

CLUSTER = (
    click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Path to the kubeconfig file."),
    click.option("--context", metavar="NAME", help="Context in the kubeconfig. Defaults to the current context."),
)
NAMESPACE = click.option(
    *("-n", "--namespace"), metavar="NAME", help="Namespace. Defaults to the namespace of the context."
)
ALL_NAMESPACES = click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
SESSION_TOKEN = click.option(
    "--use-session-token",
    is_flag=True,
    help="Send the token in CODER_SESSION_TOKEN to the pods of this control plane, instead of the operator's token.",
)
OPERATOR_NAMESPACE = click.option(
    "--operator-namespace", metavar="NAME", default="coder-system", show_default=True, help="Namespace of the operator."
)


def options(*wanted: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(wanted):
            command = option(command)
        return command

    return decorate


def run(cluster: dict[str, Any], work: Callable[["Session"], Awaitable[T]], wait: float = 0) -> T:
    """Run a function in the cluster that the options select, which may take `wait` seconds to respond.

    An error is one line; what the libraries log is not shown.
    """
    import asyncio
    import logging

    from coder_k8s.console.session import ClusterTarget, CommandFailed, connect
    from coder_k8s.kube.discovery import NotReachable
    from coder_k8s.kube.errors import KubeError

    async def connected() -> T:
        async with connect(ClusterTarget(**cluster), wait) as session:
            return await work(session)

    logging.getLogger("coder_k8s").addHandler(logging.NullHandler())
    try:
        return asyncio.run(connected())
    except (KubeError, NotReachable, CommandFailed) as error:
        raise click.ClickException(" ".join(str(error).split())) from None


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of objects for shell completion; none if the cluster is not reachable."""
    from coder_k8s.console.objects import names

    cluster = {name: ctx.params.get(name) for name in ("kubeconfig", "context", "namespace")}
    try:
        found = run(cluster, names)
    except click.ClickException:
        return []
    return [name for name in found if name.startswith(incomplete)]


target_argument = click.argument("target", metavar="[KIND/]NAME", shell_complete=complete_name)


def use_colors() -> bool:
    """Return whether colors are enabled; click removes them if the output is not a terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, color: str) -> str:
    """Apply a color or style to a text, if colors are enabled."""
    if not use_colors():
        return text
    return click.style(text, bold=True) if color == "bold" else click.style(text, fg=color)
