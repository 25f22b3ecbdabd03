"""The command `simulate`."""

from pathlib import Path

import click

NAMES = ("morning", "workshop", "prebuilds", "night", "shared")


@click.command()
@click.option(
    "--trace",
    "names",
    multiple=True,
    type=click.Choice(NAMES),
    help="Built-in trace to simulate. Can be repeated. Defaults to all.",
)
@click.option(
    "--jobs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV file with your own jobs, instead of a built-in trace.",
)
@click.option("--max-replicas", type=click.IntRange(1), default=20, show_default=True, help="maxReplicas with --jobs.")
@click.option("--min-replicas", type=click.IntRange(0), default=1, show_default=True, help="minReplicas with --jobs.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Runs of each trace.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a chart to this file.")
def simulate(
    names: tuple[str, ...], jobs: Path | None, max_replicas: int, min_replicas: int, seeds: int, svg: Path | None
) -> None:
    """Compare autoscaling of provisioners with HPA and KEDA.

    Simulates them, and prints how long jobs wait, pod-hours, lost builds and changes of the number of pods: for a
    static size, a HorizontalPodAutoscaler, KEDA and coder-k8s. Needs no cluster. A file for --jobs has the columns
    created_at, duration_seconds and, optionally, tags (a=b;c=d).

    \b
    Examples:
      coder-k8s simulate
      coder-k8s simulate --trace morning --seeds 10 --svg morning.svg
      coder-k8s simulate --jobs jobs.csv --max-replicas 40
    """
    from coder_k8s.simulation.chart import draw
    from coder_k8s.simulation.report import compare, table
    from coder_k8s.simulation.traces import TRACES, InvalidTrace, read_csv

    try:
        given = read_csv(jobs, max_replicas, min_replicas) if jobs else None
    except InvalidTrace as error:
        raise click.ClickException(str(error)) from None
    if given is not None:
        found = [compare(given.name, lambda _: given, seeds)]
    else:
        found = [compare(name, TRACES[name], seeds) for name in names or NAMES]
    click.echo(table(row for each in found for row in each.rows))
    if svg is not None:
        svg.write_text(draw(found))
