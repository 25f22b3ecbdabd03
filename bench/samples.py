"""What the kernel and the API server know about a process and its requests."""

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coder_k8s.dev.cluster import ClusterAccess

ITS_OWN = ("ipaddresses", "leases")
"""What the API server writes for itself; Leases are also the operator's, which counts them."""

Requests = Counter[str]
"""How many requests there were, by verb and resource: `POST deployments`, `PATCH codercontrolplanes/status`."""

_SAMPLE = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Usage:
    """What a process has used up to now."""

    cpu: float
    """Seconds, of user and system."""
    resident: float
    """Megabytes (10^6 bytes), now."""
    peak: float
    """Megabytes, at most."""


def usage(pid: int) -> Usage:
    process = Path(f"/proc/{pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    memory = dict(re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE))
    resident, peak = (int(memory[name]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), resident, peak)


def requests(cluster: ClusterAccess) -> Requests:
    """All that the API server was ever asked, without what it asked itself."""
    _, text = cluster.request("GET", "/metrics", timeout=60)
    found: Requests = Counter()
    for labels, value in _SAMPLE.findall(text.decode()):
        label = dict(_LABEL.findall(labels))
        resource = "/".join(part for part in (label["resource"], label["subresource"]) if part)
        if label["resource"] and label["resource"] not in ITS_OWN:
            found[f"{label['verb']} {resource}"] += int(float(value))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so many of a hundred do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]
