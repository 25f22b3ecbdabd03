"""The command `report`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import ALL_NAMESPACES, CLUSTER, NAMESPACE, OPERATOR_NAMESPACE, options, run

if TYPE_CHECKING:
    from coder_k8s.console.bundle import Bundle
    from coder_k8s.console.session import Session


@click.command()
@options(*CLUSTER, NAMESPACE, ALL_NAMESPACES, OPERATOR_NAMESPACE)
@click.option(
    *("-o", "--output"),
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File to write. Defaults to coder-k8s-report-TIME.zip in the current directory.",
)
def report(output: Path | None, operator_namespace: str, **cluster: Any) -> None:
    """Write a support bundle without secrets.

    It contains the Coder resources and their children, their events, the logs of the operator, Coder and the
    provisioner daemons, and versions. For Secrets, it contains only names, keys and sizes. Values of environment
    variables, arguments and annotations are redacted, and so is everything in messages and logs that equals or looks
    like a secret. Of each log, it contains the last 10000 lines or 1 MiB. Review it before you share it.

    \b
    Examples:
      coder-k8s report -n coder
      coder-k8s report --all-namespaces -o report.zip
    """
    from coder_k8s.console import report as reports
    from coder_k8s.console.bundle import gather
    from coder_k8s.console.render import as_text, plain
    from coder_k8s.console.status import load_tree

    async def work(session: "Session") -> tuple["Bundle", str]:
        text = as_text(await load_tree(session, None, operator_namespace), plain, now)
        return await gather(session, operator_namespace), text

    now = datetime.now(UTC)
    bundle, text = run(cluster, work)
    path = output or Path(f"coder-k8s-report-{now:%Y%m%dT%H%M%SZ}.zip")
    content = reports.files(bundle, text, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    try:
        reports.write(path, content)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    click.echo(f"{path}: {len(content)} files about {len(bundle.objects)} objects")
    for problem in bundle.problems:
        click.echo(problem, err=True)
