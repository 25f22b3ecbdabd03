"""Resource usage of a process, and request counts of the API server."""

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coder_k8s.dev.cluster import ClusterAccess

ITS_OWN = ("ipaddresses", "leases")
"""Resources that the API server writes itself; the operator counts its own Lease requests."""

Requests = Counter[str]
"""Number of requests by verb and resource: `POST deployments`, `PATCH codercontrolplanes/status`."""

_SAMPLE = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Usage:
    """Resource usage of a process."""

    cpu: float
    """CPU seconds, user and system."""
    resident: float
    """Resident memory in megabytes (10^6 bytes)."""
    peak: float
    """Peak resident memory in megabytes."""


def usage(pid: int) -> Usage:
    process = Path(f"/proc/{pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    memory = dict(re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE))
    resident, peak = (int(memory[name]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), resident, peak)


def requests(cluster: ClusterAccess) -> Requests:
    """Return the request counts of the API server, without its own requests."""
    _, text = cluster.request("GET", "/metrics", timeout=60)
    found: Requests = Counter()
    for labels, value in _SAMPLE.findall(text.decode()):
        label = dict(_LABEL.findall(labels))
        resource = "/".join(part for part in (label["resource"], label["subresource"]) if part)
        if label["resource"] and label["resource"] not in ITS_OWN:
            found[f"{label['verb']} {resource}"] += int(float(value))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]
