"""The command `coder-k8s dev`; what it needs is imported when it runs."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from coder_k8s.parameters import Duration


@click.command()
@click.option("--check", is_flag=True, help="End when all samples are Ready, or say which are not and exit with 1.")
@click.option("--timeout", type=Duration(), default="3m", show_default=True, help="How long --check waits for that.")
@click.option("--fresh", is_flag=True, help="Forget all that earlier runs left in the folder.")
@click.option(
    "--coder",
    type=click.Path(exists=True, dir_okay=False, executable=True, resolve_path=True, path_type=Path),
    help="A `coder` to run as coderd; without it the one on PATH, else a stand-in.",
)
@click.option("--stand-in", is_flag=True, help="Use the stand-in for coderd although there is a `coder` on PATH.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Where everything is kept. Without it: coder-k8s/dev below $XDG_STATE_HOME or ~/.local/state.",
)
def dev(check: bool, timeout: float, fresh: bool, coder: Path | None, stand_in: bool, folder: Path | None) -> None:
    """Run the whole product on this machine, with samples of every kind.

    A real Kubernetes API server with its controllers and scheduler, PostgreSQL, coderd or a stand-in for it, and the
    operator: all on free ports of the loopback address, all gone after Ctrl-C. What was in the cluster is there again
    at the next start. The pods run nothing: kwok plays the node.
    """
    if coder and stand_in:
        raise click.UsageError("--coder and --stand-in exclude each other")
    if find_spec("cryptography") is None:
        raise click.ClickException("this needs more than the operator does: pip install 'coder-k8s[dev]'")

    from coder_k8s.dev import run

    on_path = shutil.which("coder")
    if on_path and not stand_in:
        coder = coder or Path(on_path)
    options = run.Options(check=check, fresh=fresh, coder=coder, folder=folder, timeout=timeout)
    try:
        sys.exit(run.run(options))
    except run.CannotRun as trouble:
        raise click.ClickException(str(trouble)) from None
