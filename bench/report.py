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
Converge and Storm were measured after the last of these changes, the other sections on the same day before it.

`c401f66` is the version with aiohttp, and without health, updates, autoscaling and templates. It and this operator in \
turn with `--against` (see below), three times with 300 control planes (medians) and once with 2,000:

| metric | control planes | coder-k8s | c401f66 | ratio |
| --- | ---: | ---: | ---: | ---: |
| CPU to start, s | 300 | 0.12 | 0.24 | 0.50 |
| RSS after the start, MB | 300 | 38 | 53 | 0.71 |
| wall time to converge, s | 300 | 2.9 | 3.1 | 0.94 |
| operator CPU per object, ms | 300 | 1.73 | 2.93 | 0.58 |
| API server CPU per object, ms | 300 | 15.3 | 14.8 | 1.01 |
| writes per object | 300 | 6.00 | 6.00 | 1.00 |
| RSS with all objects, MB | 300 | 47 | 60 | 0.78 |
| CPU to restart, s | 300 | 0.24 | 0.36 | 0.69 |
| writes after a restart | 300 | 0 | 0 | 1.00 |
| wall time to converge, s | 2000 | 22.0 | 22.3 | 0.99 |
| operator CPU per object, ms | 2000 | 2.00 | 3.14 | 0.64 |
| API server CPU per object, ms | 2000 | 16.5 | 15.7 | 1.05 |
| RSS with all objects, MB | 2000 | 80 | 95 | 0.85 |
| CPU to restart, s | 2000 | 0.93 | 1.06 | 0.88 |

Three more runs with 2,000, without restarts, while the machine was busy: 2.65 and 4.13 ms (medians), a ratio of 0.64 \
again.

What made the difference. Each change was measured in turn with the version before it, on new clusters with 300 \
control planes:

- The HTTP client on `httptools` (`coder_k8s/http`) instead of aiohttp: 23% less CPU per control plane, and 13 MB less \
memory.
- While many messages arrive from the API server, the event loop pauses until about eight of them can be read, for \
half of the duration of a fast request at most, and never for more than 30 ms: 21% less CPU, after the same time. A \
reconcile of a single control plane is not delayed. Slow requests hardly count, because the creation of a Role waits \
for 100 ms: with the rights of the operator and `--workers=8`, 300 control planes then take 10 instead of 14 s, and \
the same CPU (one run each).
- 32 reconciles at a time: with 16 and 8, it takes 1.07 and 1.19 times the CPU, and 1.03 and 1.16 times as long. At \
most half of them are for changes of other objects. Before this limit, a user's change in a storm took 0.84 to 1.69 s \
at p99, one run of each number.
- Fewer log lines, one timer for each connection, no comparison of a write with its result, no reference cycle for \
each response, and values that cached objects share: 11% less CPU, relative to that of the API server, and 1 MB less \
memory; with 2,000 control planes, 14 MB less.
- Keys of objects are Structs, log records have only what a line contains, headers are encoded once for many requests, \
one parser reads all responses of a connection, and watch events are decoded once: 11% less CPU. The body of a failed \
response is freed at once: after 150 lists of 8 MB that were cut off, the peak is 58 MB instead of 292 MB.
- The event loop is not looked up for each request, which takes a system call in Python 3.11, and a Deployment is \
decoded less often, and only the fields that are needed: 5% less CPU with 300 control planes, and no difference in one \
run with 2,000.
- Pods and Roles are found by one index entry instead of the intersection of their labels, and a finalizer that an \
object does not have is not checked: 3% fewer instructions for a new control plane, and 3% less CPU with 1,000 of them \
(medians of six runs each).
- Lookups of children and of metrics take the same time with any number of control planes.
- Start: imports on demand, metrics without prometheus_client, Structs instead of named tuples and data classes, no \
garbage collection during the imports, and lists that share five connections before the watches start. `c401f66` and \
this operator, 15 starts each in turn while the machine was busy: ready after 0.42 and 0.29 s (medians).

What did not pay off:

- Cython for `http` and `kube`: 12% more CPU, and 6 MB more memory. TLS session resumption: as expensive as a complete \
handshake. Longer pauses and larger batches: the same CPU, but slower. One buffer that all connections read into: the \
same CPU.
- A later Python. Three runs each in turn, with Debian's builds (the CPU time is exact to 3%):

| Python | CPU, relative to 3.11 | RSS MB, idle | RSS MB, 300 control planes |
| --- | ---: | ---: | ---: |
| 3.11.2 | 1.00 | 38 | 47 |
| 3.13.5 | 0.97 | 42 | 51 |
| 3.14.8 | 1.00 | 46 | 55 |
| 3.14.8, JIT compiler | 1.03 | 46 | 55 |
| 3.15.0 | 1.00 | 46 | 56 |
| 3.15.0, JIT compiler | 1.00 | 47 | 56 |

Half of the CPU time of a write is the change from one process to another: with one worker, a write takes 450 to 600 \
µs of CPU, with 8 workers 280 to 310, and with 32 workers 190, because more responses arrive at a time. Modules are \
compiled before a measurement, as in the image; without that, compiling took 30% of the CPU time for all imports.

10,000 control planes and 300, in one run on a new cluster each: 2.5 and 1.9 ms of CPU for each control plane (1.33), \
and 27 and 16 ms of the API server (1.68). They took 179 s, 6.00 writes each, and 231 MB of memory, 19 KB each. A \
restart with all of them took 4.4 s of CPU time.

Of the CPU time for a change of an object that no control plane references, decoding and caching its metadata take \
9 µs (the lowest of 15 measurements of 5,000 events). The rest is the connection."""


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
