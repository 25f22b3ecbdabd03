"""Counters, gauges and histograms, in the text format of Prometheus.

The library prometheus_client contains HTTP servers: it would take 3.5 MB, and a sixth of the time of all other imports.
So only tests use it, to parse what is written here.
"""

from .metrics import Counter, Gauge, Histogram, Metric
from .process import ProcessMetrics
from .registry import CONTENT_TYPE, Family, Registry, Sample

__all__ = [
    "CONTENT_TYPE",
    "Counter",
    "Family",
    "Gauge",
    "Histogram",
    "Metric",
    "ProcessMetrics",
    "Registry",
    "Sample",
]
