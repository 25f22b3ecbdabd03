"""The text and tables of docs/performance.md."""

from collections.abc import Iterable, Sequence

import msgspec

COMPARISON = """\
`make bench ARGS='--against "NAME=CRDS=COMMAND" --numbers 100,300'` compares this operator with any other one that has \
`CoderControlPlane` objects, for example an earlier version. `CRDS` is a file or folder with its CRDs, and `COMMAND` \
starts it. The environment variable `KUBECONFIG` contains the kubeconfig of an administrator; in the command, \
`{kubeconfig}` stands for its path. Give the complete path of the program, and not a shell script that starts it.

For each number, both operators run in turn on a new cluster: start, create the control planes, restart. The control \
planes have `operatorAccess.disabled: true`, and nothing else in their spec. An operator is done when each of them has \
a status, a Deployment and a Service, and the operator did not write and hardly used the CPU for 5 seconds. Leases are \
deleted before each start, and requests for Leases and dry runs do not count as writes. The table is printed, with the \
ratio of this operator to the other one; `build/bench` has the figures. A number that is given twice is measured \
twice; if the ratios differ, the machine is too busy."""

CHANGES = """\
Results of 2026-11-16 and earlier are of a version with aiohttp. Each change was measured next to the code before it, \
in one run:

- The HTTP client on `httptools` (`coder_k8s/http`) instead of aiohttp: 26% less CPU per control plane and 11 MB less \
memory, with 200 control planes.
- The database driver is imported when a control plane needs it: 10% fewer instructions for all imports and 3 MB less \
memory. No garbage collection during the imports: another 10%.
- These two, with less work for each request, message and decoded object: 12% and 27% less CPU per control plane, and \
3 MB less memory, in two runs with 100 control planes on a busy machine.
- Modules are compiled before a measurement, as in the image. Without that, compiling took 30% of the CPU time for \
all imports.

Four versions in turn, each four times on a new cluster, with 300 control planes. The machine was busy (load average \
16 to 28 on 2 cores), so CPU times are more than twice those of a quiet machine:

| version | CPU ms each, median | lowest | highest | RSS MB, idle | RSS MB |
| --- | ---: | ---: | ---: | ---: | ---: |
| before all kinds had one reconciler | 10.2 | 9.4 | 11.6 | 55 | 62 |
| before the HTTP client | 10.0 | 8.8 | 12.5 | 56 | 64 |
| with the HTTP client | 9.3 | 8.2 | 10.2 | 44 | 53 |
| 2026-11-17 | 8.9 | 7.1 | 10.1 | 43 | 52 |

The common reconciler, and what was added with it, cost no CPU time and 2 MB. The HTTP client saves 11 MB; the 26% \
less CPU of the first measurement were 7% here, with ranges that overlap. Each control plane takes 30 KB, with its \
children.

Of the CPU time for a change of an object that no control plane references, decoding and caching its metadata take \
9 µs (the lowest of 15 measurements of 5,000 events). The rest is the connection. All imports take 0.24 s of CPU time \
(the lowest of 7), so the operator cannot be ready within 0.2 s."""


class Verdict(msgspec.Struct, kw_only=True):
    """A target and the measured result."""

    name: str
    target: str
    found: str
    met: bool
    limit: str = ""
    """Explanation of a missed target."""


class Section(msgspec.Struct, kw_only=True):
    """The section of one scenario."""

    title: str
    text: str
    verdicts: list[Verdict] = []
    plots: dict[str, str] = {}
    """SVG by file name."""


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; all columns except the first are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def page(machine: str, sections: Sequence[Section]) -> str:
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    missed = [verdict for verdict in verdicts if not verdict.met]
    parts = [
        "# Performance",
        "Resource usage of the operator, measured with a real kube-apiserver and etcd. They run on the same machine "
        "as the operator and the program that simulates users. `make bench` runs the measurements and writes this "
        "page; the raw results are in `bench/results`. Do not compare results of different machines; compare ratios "
        "within one run.",
        f"Measured on {machine}.",
        "## Targets",
        table(
            ["metric", "target", "measured", "result"],
            [(each.name, each.target, each.found, "met" if each.met else "**missed**") for each in verdicts],
        ),
    ]
    if missed:
        parts += ["Causes of missed targets:", "\n".join(f"- {each.name}: {each.limit}" for each in missed)]
    for section in sections:
        parts += [f"## {section.title}", section.text]
        parts += [f"![{name}](performance/{name}.svg)" for name in section.plots]
    parts += ["## Changes", CHANGES, "## Compare with another operator", COMPARISON]
    return "\n\n".join(parts) + "\n"
