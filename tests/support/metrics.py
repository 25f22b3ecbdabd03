"""Reads metrics as Prometheus does."""

from prometheus_client.parser import text_string_to_metric_families

from coder_k8s.prometheus import Counter, Registry


def sample_value(registry: Registry, series: str, /, **labels: str) -> float | None:
    """The value of a series, if it exists."""
    samples = (sample for family in text_string_to_metric_families(registry.text()) for sample in family.samples)
    return next((sample.value for sample in samples if (sample.name, sample.labels) == (series, labels)), None)


def total(counter: Counter, having: str = "") -> int:
    """The sum of all series, or of those with this value of a label."""
    [family] = counter.collect()
    return int(sum(sample.value for sample in family.samples if not having or having in sample.labels))
