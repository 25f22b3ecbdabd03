"""The command `completion`."""

import click

PROGRAM = "coder-k8s"
COMPLETE_VARIABLE = "_CODER_K8S_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell completion script.

    kubectl completes `kubectl coder` if kubectl_complete-coder is on the PATH.

    \b
    Examples:
      source <(coder-k8s completion bash)
      source <(coder-k8s completion zsh)
      coder-k8s completion fish | source
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    complete = get_completion_class(shell)
    assert complete is not None  # noqa: S101 - click has all three
    click.echo(complete(root, {}, PROGRAM, COMPLETE_VARIABLE).source())
