"""Resource usage of a process, and request counts of the API server."""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coder_k8s.dev.cluster import ClusterAccess

ITS_OWN = ("apiservices", "flowschemas", "ipaddresses", "leases", "prioritylevelconfigurations", "servicecidrs")
"""Resources that the API server writes itself; the operator counts its own Lease requests."""
REPAIRS = "/api/v1/events?fieldSelector=reason%3DClusterIPNotAllocated"
"""Events of the API server about new Services. On a busy machine it does not know their addresses yet."""

Requests = Counter[str]
"""Number of requests by verb and resource: `POST deployments`, `PATCH codercontrolplanes/status`, `... (dry run)`."""
DRY_RUN = "(dry run)"
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")

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
    """Return the resource usage of a process; one that has exited has no memory."""
    process = Path(f"/proc/{pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    memory = dict(re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE))
    resident, peak = (int(memory.get(name, 0)) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), resident, peak)


def requests(cluster: ClusterAccess) -> Requests:
    """Return the request counts of the API server, without its own requests."""
    _, text = cluster.request("GET", "/metrics", timeout=60)
    found: Requests = Counter()
    for labels, value in _SAMPLE.findall(text.decode()):
        label = dict(_LABEL.findall(labels))
        resource = "/".join(part for part in (label["resource"], label["subresource"]) if part)
        resource += f" {DRY_RUN}" if label.get("dry_run") else ""
        if label["resource"] and label["resource"] not in ITS_OWN:
            found[f"{label['verb']} {resource}"] += int(float(value))
    _, repairs = cluster.request("GET", REPAIRS, timeout=60)
    found["POST events"] -= len(json.loads(repairs)["items"])
    found.pop("LIST events", None)  # sent here
    return +found


def writes(requests: Mapping[str, int]) -> int:
    """Count the requests that change an object."""
    changing = (name for name in requests if name.split()[0] in WRITES and not name.endswith(DRY_RUN))
    return sum(requests[name] for name in changing)


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]
