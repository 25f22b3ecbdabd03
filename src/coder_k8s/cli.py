"""The command line. Each command imports what it needs, so that other commands start fast."""

import dataclasses
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from coder_k8s import __version__
from coder_k8s.parameters import Duration, NameList
from coder_k8s.settings import ENV_PREFIX, Flag, InvalidSettings, Names, Seconds, Settings, flag_of

F = TypeVar("F", bound=Callable[..., Any])

NO_FILES = 4
"""The completion directive of kubectl (cobra) that disables file name completion."""


class Program(click.Group):
    """The commands. Those for users are imported when one of them, or a list of all, is needed: not by the operator."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self.load()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self.load()
        return super().list_commands(ctx)

    def load(self) -> None:
        """Import all commands."""
        from coder_k8s.console import commands
        from coder_k8s.dev.command import dev

        for command in (dev, *commands.ALL):
            self.add_command(command)


def flags_of(settings: type[Settings]) -> Callable[[F], F]:
    """Return a decorator that adds one option per field of the settings."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    hints = get_type_hints(settings, include_extras=True)
    options = [_option(field, *get_args(hints[field.name])) for field in dataclasses.fields(settings)]
    return decorate


def _option(field: dataclasses.Field[Any], of: Any, flag: Flag) -> Callable[[F], F]:
    name, default = flag_of(field.name), field.default
    if of is bool:
        name = f"{name}/--no-{name.removeprefix('--')}"
    if of is Seconds:
        default = f"{default:g}s"
    return click.option(
        name,
        field.name,
        type=_type(of),
        default=default,
        show_default=default not in (None, ()),
        metavar=flag.metavar,
        help=flag.help,
        envvar=ENV_PREFIX + field.name.upper(),
    )


def _type(of: Any) -> click.ParamType[Any] | type:
    if get_origin(of) is Literal:
        return click.Choice(get_args(of))
    if of == Path | None:
        return click.Path(dir_okay=False, path_type=Path)
    known: dict[Any, click.ParamType[Any] | type] = {Seconds: Duration(), Names: NameList(), bool: bool, int: int}
    return known.get(of, str)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="coder-k8s", message="%(prog)s %(version)s")
def main() -> None:
    """Run Coder on Kubernetes: control planes, external provisioners and workspace proxies.

    \b
    Examples:
      coder-k8s status -A
      coder-k8s check
      coder-k8s report -n coder
    """


@main.command()
@flags_of(Settings)
def controller(**flags: Any) -> None:
    """Run the operator.

    Every flag can also be set by an environment variable: --log-level is CODER_K8S_LOG_LEVEL.

    After SIGTERM the operator finishes in-flight reconciles and exits with 0. It exits with 1 if the cluster is not
    reachable or the operator loses its Lease, and with 2 if a flag is invalid.

    \b
    Examples:
      coder-k8s controller --log-format=console --log-level=debug
      coder-k8s controller --watch-namespaces=coder,team-a
    """
    try:
        settings = Settings(**flags)
    except InvalidSettings as error:
        raise click.UsageError(str(error)) from None

    gc.disable()  # the imports create hardly any garbage, and the search for it takes a tenth of their time
    from coder_k8s import app

    gc.freeze()  # modules stay, so the search can skip them from now on
    gc.set_threshold(10_000)  # almost all objects are freed without a search
    gc.enable()
    try:
        sys.exit(app.main(settings))
    except app.STARTUP_ERRORS as error:
        raise click.ClickException(str(error)) from None


@main.command()
def version() -> None:
    """Print the versions of coder-k8s and Python, and the platform.

    \b
    Examples:
      coder-k8s version
      coder-k8s --version
    """
    import platform

    click.echo(f"coder-k8s {__version__}")
    click.echo(f"python    {platform.python_version()}")
    click.echo(f"platform  {platform.system().lower()}/{platform.machine()}")


def plugin() -> None:
    """Run the command line as the kubectl plugin `kubectl coder`."""
    main(prog_name="kubectl coder")


def complete_plugin() -> None:
    """Print completions of `kubectl coder` for kubectl: one per line, then a directive."""
    from click.shell_completion import ShellComplete

    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(main, {}, "kubectl coder", "").get_completions(words, incomplete)
    for each in found:
        click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    click.echo(f":{NO_FILES}")
