"""Start-up: the time until the command line and the operator are ready."""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from bench import samples
from bench.cluster import bench_cluster, leads
from bench.report import Section, table
from tests.support import eventually

TIMES = 9
LOOP = "for count in range(10**7): text = str(count)"


class Figures(msgspec.Struct, kw_only=True):
    """Medians of several runs, in seconds."""

    python: float
    """Python with an empty program."""
    loop: float
    """Python with a loop of ten million iterations, which shows the speed of its build and the processor."""
    version: float
    """`coder-k8s version`."""
    imports: float
    """Python with the imports of the operator."""
    ready: float
    """`coder-k8s controller` from exec to ready, in a cluster without Coder resources."""
    leading: float
    resident: float
    """Megabytes of memory after the start."""


async def run(times: int = TIMES) -> Figures:
    async with bench_cluster() as here:
        ready, leading, resident = [], [], []
        for _ in range(times):
            began = time.monotonic()
            with here.operator() as operator:
                await eventually(operator.is_ready, 60)
                ready.append(time.monotonic() - began)
                await leads(operator)
                leading.append(time.monotonic() - began)
                resident.append(samples.usage(operator.pid).resident)
    return Figures(
        python=_clock(times, "-c", "pass"),
        loop=_clock(times, "-c", LOOP),
        version=_clock(times, "-m", "coder_k8s", "version"),
        imports=_clock(times, "-c", "import coder_k8s.app"),
        ready=statistics.median(ready),
        leading=statistics.median(leading),
        resident=statistics.median(resident),
    )


def _clock(times: int, *arguments: str) -> float:
    """Return the median duration of Python with these arguments."""
    spent = []
    for _ in range(times):
        began = time.monotonic()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        spent.append(time.monotonic() - began)
    return statistics.median(spent)


def section(runs: Sequence[Figures]) -> Section:
    [run] = runs
    rows = [
        ("Python, empty program", f"{run.python * 1000:.0f}"),
        (f"Python, `{LOOP}`", f"{run.loop * 1000:.0f}"),
        ("`coder-k8s version`", f"{run.version * 1000:.0f}"),
        ("import of the operator", f"{run.imports * 1000:.0f}"),
        ("`coder-k8s controller`, ready", f"{run.ready * 1000:.0f}"),
        ("`coder-k8s controller`, leader", f"{run.leading * 1000:.0f}"),
    ]
    text = (
        f"Medians of several starts, measured from exec. After the start the operator uses {run.resident:.0f} MB. The "
        "loop shows how to interpret the CPU times on this page: it takes about 50% longer if Python was built without "
        "profile-guided optimization, which distributions and official images have.\n\n"
    )
    return Section(title="Start-up", text=text + table(["program", "ms"], rows))
