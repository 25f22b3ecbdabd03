"""The reference of the command line, from the commands themselves."""

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module

import click

from .reference import table

NAME = "coder-k8s"
CONTROLLER = "controller"
AS_IT_IS = "\b\n"
"""How click marks a paragraph whose lines are not to be joined."""


def flags_page() -> str:
    """Every flag and environment variable of the operator."""
    blocks = [
        "# Flags",
        f"Of `{NAME} {CONTROLLER}`, which runs the operator. Each flag can be given as an environment variable "
        "instead; a flag wins over it.",
        _options(_program().commands[CONTROLLER]),
    ]
    return "\n\n".join(blocks) + "\n"


def commands_page() -> str:
    """Every command with what can be given to it."""
    return "\n\n".join(["# Commands", *_command(_program(), [NAME])]) + "\n"


def _program() -> click.Group:
    # Generators look at the whole program from outside: it is above them, so it is not imported as a part of them.
    program: click.Group = import_module("coder_k8s.cli").main
    return program


def _command(command: click.Command, path: Sequence[str]) -> Iterator[str]:
    """A section for a command, and for those that it consists of."""
    context = click.Context(command, info_name=" ".join(path))
    if len(path) > 1:
        yield f"## {' '.join(path)}"
    yield f"```text\n{' '.join([*path, *command.collect_usage_pieces(context)])}\n```"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    if path == [NAME, CONTROLLER]:
        yield "Its options are in [flags](flags.md)."
    elif any(_shown(command)):
        yield _options(command)
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from _command(inner, [*path, name])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(AS_IT_IS):
            yield f"```text\n{paragraph.removeprefix(AS_IT_IS)}\n```"
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
        return table(["flag", "environment variable", "default", "meaning"], rows)
    return table(["flag", "default", "meaning"], [[name, default, text] for name, _, default, text in rows])


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
    return f"`{default}`" if default else ""
