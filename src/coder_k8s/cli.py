"""The command line. What a command needs is imported by that command, so that the others stay quick."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from coder_k8s.console import commands
from coder_k8s.dev.command import dev
from coder_k8s.parameters import NameList, TimeSpan
from coder_k8s.settings import ENV_PREFIX, BadSettings, Flag, Names, Seconds, Settings, flag_of

F = TypeVar("F", bound=Callable[..., Any])

NO_FILES = 4
"""kubectl's word for: offer no file names beside these."""


def flags_of(settings: type[Settings]) -> Callable[[F], F]:
    """One option for each field, in their order."""

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
    known: dict[Any, click.ParamType[Any] | type] = {Seconds: TimeSpan(), Names: NameList(), bool: bool, int: int}
    return known.get(of, str)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Run Coder on Kubernetes: control planes, external provisioners and workspace proxies."""


@main.command()
@flags_of(Settings)
def controller(**flags: Any) -> None:
    """Run the operator.

    Each flag can be given as an environment variable instead: --log-level is CODER_K8S_LOG_LEVEL.

    SIGTERM finishes what is under way and exits with 0. Exit code 1 means that it cannot work, or no longer: the
    cluster cannot be reached, or another process leads now. 2 means that a flag is wrong.
    """
    try:
        settings = Settings(**flags)
    except BadSettings as trouble:
        raise click.UsageError(str(trouble)) from None

    from coder_k8s import app

    try:
        sys.exit(app.main(settings))
    except app.CannotRun as trouble:
        raise click.ClickException(str(trouble)) from None


for command in (dev, *commands.ALL):
    main.add_command(command)


@main.command()
def version() -> None:
    """Print the version."""
    import platform
    from importlib import metadata

    click.echo(f"coder-k8s {metadata.version('coder-k8s')}")
    click.echo(f"python    {platform.python_version()}")
    click.echo(f"platform  {platform.system().lower()}/{platform.machine()}")


def plugin() -> None:
    """`kubectl coder`: the same commands under the name by which they were called."""
    main(prog_name="kubectl coder")


def complete_plugin() -> None:
    """What kubectl asks to complete `kubectl coder`: an answer per line, then how to use them."""
    from click.shell_completion import ShellComplete

    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(main, {}, "kubectl coder", "").get_completions(words, incomplete)
    for each in found:
        click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    click.echo(f":{NO_FILES}")
