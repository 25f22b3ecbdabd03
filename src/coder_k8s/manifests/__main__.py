"""`python -m coder_k8s.manifests`: write the generated files, or check that they are up to date."""

from pathlib import Path

import click

from .files import generated, outdated, write


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if a file is stale.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Root directory of the project. Defaults to the current directory.",
)
def main(check: bool, root: Path) -> None:
    """Write the generated files: CRDs, roles, install manifests, chart files and reference pages."""
    files = generated()
    if not check:
        write(root, files)
    elif stale := outdated(root, files):
        raise click.ClickException("\n".join(["stale; run `make generate`:", *(f"  {name}" for name in stale)]))


if __name__ == "__main__":
    main()
