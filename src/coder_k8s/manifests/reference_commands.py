"""The reference pages of the command line, generated from the commands."""

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module

import click

from .reference import table

NAME = "coder-k8s"
CONTROLLER = "controller"
VERBATIM = "\b\n"
"""Marks a paragraph that click does not rewrap."""


def flags_page() -> str:
    """Return the page with all flags and environment variables of the operator."""
    blocks = [
        "# Operator flags",
        f"Flags of `{NAME} {CONTROLLER}`, which runs the operator. You can also set each flag as an environment "
        "variable; the flag takes precedence.",
        _options(_program().commands[CONTROLLER]),
    ]
    return "\n\n".join(blocks) + "\n"


def commands_page() -> str:
    """Return the page with all commands and their options."""
    return "\n\n".join(["# Commands", *_command(_program(), [NAME])]) + "\n"


def _program() -> click.Group:
    # The layer above: imported dynamically, because only the generators need it.
    program: click.Group = import_module("coder_k8s.cli").main
    program.list_commands(click.Context(program))  # imports them
    return program


def _command(command: click.Command, path: Sequence[str]) -> Iterator[str]:
    """Yield the section of a command, and those of its subcommands."""
    context = click.Context(command, info_name=" ".join(path))
    if len(path) > 1:
        yield f"## {' '.join(path)}"
    yield f"```text\n{' '.join([*path, *command.collect_usage_pieces(context)])}\n```"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    if path == [NAME, CONTROLLER]:
        yield "The options are described in [operator flags](flags.md)."
    elif any(_shown(command)):
        yield _options(command)
    yield from _paragraphs(inspect.cleandoc(command.epilog or ""))
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from _command(inner, [*path, name])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in filter(None, text.split("\n\n")):
        if paragraph.startswith(VERBATIM):
            yield f"```text\n{paragraph.removeprefix(VERBATIM)}\n```"
        else:
            yield paragraph


def _shown(command: click.Command) -> Iterator[click.Option]:
    return (option for option in command.params if isinstance(option, click.Option) and not option.hidden)


def _options(command: click.Command) -> str:
    context = click.Context(command)
    options = list(_shown(command))
    rows = [
        [_names(option, context), _variable(option), _default(option, context), option.help or ""] for option in options
    ]
    if any(option.envvar for option in options):
        return table(["flag", "environment variable", "default", "description"], rows)
    return table(["flag", "default", "description"], [[name, default, text] for name, _, default, text in rows])


def _names(option: click.Option, context: click.Context) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    names = ", ".join(f"`{name}`" for name in (*option.opts[:-1], option.opts[-1] + value))
    return names + "".join(f", `{name}`" for name in option.secondary_opts)


def _variable(option: click.Option) -> str:
    return f"`{option.envvar}`" if option.envvar else ""


def _default(option: click.Option, context: click.Context) -> str:
    if option.required:
        return "**required**"
    default = option.get_help_extra(context).get("default")
    prefix = "--" if option.is_flag else ""  # the default of a switch is the name of a flag
    return f"`{prefix}{default}`" if default else ""
