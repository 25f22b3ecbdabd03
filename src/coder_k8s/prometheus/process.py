"""Resource usage of this process, with the names that Prometheus recommends."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from .registry import Family, Registry, Sample

PROCESS = Path("/proc/self")


class ProcessMetrics:
    """Reads /proc for each scrape. Without it, as on macOS, there are no values."""

    def __init__(self, registry: Registry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Family]:
        values = _values() if PROCESS.exists() else {}
        for name, (kind, text) in FAMILIES.items():
            yield Family(name, kind, text, (), [Sample((), values[name])] if name in values else [])


FAMILIES = {
    "process_virtual_memory_bytes": ("gauge", "Virtual memory of the process."),
    "process_resident_memory_bytes": ("gauge", "Resident memory of the process."),
    "process_start_time_seconds": ("gauge", "When the process started."),
    "process_cpu_seconds": ("counter", "CPU time of the process."),
    "process_open_fds": ("gauge", "Open file descriptors."),
    "process_max_fds": ("gauge", "Limit for open file descriptors."),
}


def _values() -> dict[str, float]:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    # The name of the program may contain spaces and parentheses. The first field after it is the third of proc(5).
    fields = (PROCESS / "stat").read_text().rpartition(")")[2].split()
    user, system, started, size, resident = (int(fields[number - 3]) for number in (14, 15, 22, 23, 24))
    return {
        "process_virtual_memory_bytes": size,
        "process_resident_memory_bytes": resident * page,
        "process_start_time_seconds": _boot_time() + started / ticks,
        "process_cpu_seconds": (user + system) / ticks,
        "process_open_fds": len(os.listdir(PROCESS / "fd")),  # noqa: PTH208 - only their number
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def _boot_time() -> float:
    lines = Path("/proc/stat").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("btime ")))
