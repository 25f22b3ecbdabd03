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
The sections Converge, Restart and Start-up are of 2026-11-18, the other ones of 2026-11-16 and of a version with \
aiohttp. Three versions in turn, each four times on a new \
cluster, with 300 control planes, on a machine without other load:

| version | CPU ms each, median | lowest | highest | RSS MB, idle | RSS MB |
| --- | ---: | ---: | ---: | ---: | ---: |
| before the HTTP client | 10.6 | 10.3 | 11.1 | 54 | 64 |
| with the HTTP client | 8.1 | 7.8 | 8.4 | 41 | 50 |
| 2026-11-17 | 8.0 | 7.3 | 9.0 | 44 | 56 |

- The HTTP client on `httptools` (`coder_k8s/http`) instead of aiohttp: 23% less CPU per control plane, and 26% in \
another run like this one, and 13 MB less memory.
- Health, updates, autoscaling and templates came after it. They cost 3 MB, and as much CPU as was saved since then by \
less work for each request, watch event, message and log line.
- Lookups of children and of metrics took longer with each control plane of the cluster. Now they do not.
- The database driver is imported when a control plane needs it: 10% fewer instructions for all imports and 3 MB less \
memory. No garbage collection during the imports: another 10%.
- Metrics without prometheus_client, and imports on demand of what only some operators need (2026-11-18). Three \
versions in turn, seven starts each, with Debian's Python: ready 0.64, 0.44 and 0.37 s after exec (medians), with \
0.60, 0.37 and 0.33 s of CPU and 51.8, 41.6 and 37.0 MB of memory, before the HTTP client, on 2026-11-17 and now.
- Frozen Structs instead of most named tuples and data classes (2026-11-18), which take an eighth and a fiftieth of \
the time to define. Three versions in turn, 15 starts each: ready 0.61, 0.35 and 0.32 s after exec (medians), with \
0.56, 0.30 and 0.28 s of CPU and 51.8, 37.0 and 36.7 MB of memory, before the HTTP client, without the Structs and now.
- The same three versions in turn, three times each, with 300 control planes: 9.2, 7.0 and 7.8 ms of CPU each, and 64, \
51 and 51 MB. The API server took 36, 37 and 43 ms each in these runs, so the machine was slower for the last one. \
Relative to the API server, in each of the runs: 0.25 to 0.26, 0.18 to 0.19 and 0.18.
- Fewer log lines, one timer for each connection, no comparison of a write with its result, no reference cycle for \
each response, and values that cached objects share (2026-11-18). Without and with these, five times each in turn, \
with 300 control planes: CPU relative to that of the API server 0.186 and 0.165 (medians), 50.6 and 49.4 MB. With \
2,000, once each: 0.171 and 0.155, 96 and 82 MB.
- Without the imports of the commands for users, and without a request for the installed kinds, 25 starts each in \
turn: ready after 0.33 instead of 0.36 s with a kubeconfig, and 0.31 instead of 0.33 s with the files of a pod \
(medians).
- The caches are filled by lists that share five connections, before the watches start, and the controllers of \
provisioners, proxies and templates are imported with their first object. Without and with these, 15 starts each in \
turn: ready after 0.20 and 0.16 s (medians), 39.1 and 37.6 MB.
- While many messages arrive from the API server, the event loop pauses until about eight of them can be read, for \
half of the duration of a request at most, and never for more than 30 ms. A reconcile of a single control plane is not \
delayed. Without and with this and the previous change, three times each in turn, with 300 control planes: 3.33 and \
2.63 ms of CPU each, after 4.5 s both. Longer pauses saved no more CPU, and took longer. With `--workers=8` instead \
of 32, twice each: 3.3 and 2.8 ms, after 4.5 and 6.4 s, because fewer requests are processed during a pause.
- The version of 2026-11-16 had no health, updates, autoscaling or templates, and aiohttp. It and the current one in \
turn, with 300 control planes three times each: 3.97 and 2.63 ms of CPU each (API server: 20 and 22 ms), after 4.3 and \
4.5 s, 60 and 47 MB. With 2,000, once each: 4.07 and 2.49 ms (API server: 21 and 23 ms), after 31 s both, 95 and 81 \
MB.
- Keys of objects are Structs, log records have only what a line contains, headers are encoded once for many \
requests, one parser reads all responses of a connection, watch events are decoded once, and the garbage collector \
searches less often. Reconciles of new control planes with a simulated API server in the same process take 18% fewer \
instructions, including those of the simulation. With a real one and 300 control planes, without and with these, \
seven times each in turn: 2.66 and 2.38 ms of CPU each (means). The version of 2026-11-16 and the current one, seven \
times each in turn: 3.61 and 2.21 ms, with 2,000 once each: 3.40 and 2.00 ms, 95 and 80 MB. The body of a failed \
response is freed at once: after 150 lists of 8 MB that were cut off, the peak is 58 MB instead of 292 MB.
- Compiling `http` and `kube` with Cython did not pay off: 12% more CPU, and 6 MB more memory.
- Half of the CPU time of a write is the change from one process to another: with one worker, a write takes 450 to 600 \
µs of CPU, with 8 workers 280 to 310, and with 32 workers 190, because more responses arrive at a time.
- Modules are compiled before a measurement, as in the image. Without that, compiling took 30% of the CPU time for \
all imports.

10,000 control planes and 300, in one run on a new cluster each: 9.7 and 8.9 ms of CPU for each control plane, so it \
hardly grows with their number (1.08), while that of the API server does (78 and 47 ms). They took 563 s, 6.00 writes \
each, and 308 MB of memory, 26 KB each. A restart with all of them took 17 s of CPU time and no write; before the \
lookups were changed, 38 s.

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
