"""The command `coder-k8s dev`. It imports what it needs when it runs, so that other commands start fast."""

import sys
from importlib.util import find_spec
from pathlib import Path

import click

from coder_k8s.parameters import Duration


@click.command()
@click.option("--check", is_flag=True, help="Exit when all samples are Ready, or print which are not and exit with 1.")
@click.option("--timeout", type=Duration(), default="3m", show_default=True, help="Maximum time that --check waits.")
@click.option("--fresh", is_flag=True, help="Delete the state of earlier runs first.")
@click.option(
    "--coder",
    metavar="PATH|build[:VERSION]",
    help="Run a real Coder instead of the simulator: this program, or one that is built from source once.",
)
@click.option(*("--simulator", "--stand-in"), is_flag=True, help="Use the simulator of coderd. This is the default.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Directory of the state. Defaults to coder-k8s/dev in $XDG_STATE_HOME or ~/.local/state.",
)
def dev(check: bool, timeout: float, fresh: bool, coder: str | None, simulator: bool, folder: Path | None) -> None:
    """Run the complete product locally, with a sample of each kind.

    Starts a real Kubernetes API server with its controllers and scheduler, PostgreSQL, and the operator, on free ports
    of the loopback address. Ctrl-C stops all of them. The next run restores the content of the cluster.

    By default, a simulator replaces Coder, and pods run nothing. With --coder, pods run a real Coder as processes.
    Without a license, it has no provisioners and proxies, so the only sample is a control plane.

    \b
    Examples:
      coder-k8s dev
      coder-k8s dev --fresh --check
      coder-k8s dev --coder build
      coder-k8s dev --coder build:2.30.0
      coder-k8s dev --coder /usr/local/bin/coder
    """
    if coder and simulator:
        raise click.UsageError("--coder and --simulator are mutually exclusive")
    if find_spec("cryptography") is None:
        raise click.ClickException("additional packages are required: run pip install 'coder-k8s[dev]'")

    from coder_k8s.dev import run
    from coder_k8s.dev.coder_source import CoderSource

    try:
        source = CoderSource.parse(coder) if coder else None
        options = run.Options(check=check, fresh=fresh, coder=source, folder=folder, timeout=timeout)
        sys.exit(run.run(options))
    except run.CannotRun as error:
        raise click.ClickException(str(error)) from None
