"""What the operator writes is what Prometheus reads."""

import math
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from coder_k8s.dev.binaries import program
from coder_k8s.prometheus import Counter, Gauge, Histogram, ProcessMetrics, Registry

BOUNDS = (0.5, 1, 2.5)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False)


def read(registry: Registry) -> dict[tuple[str, tuple[str, ...]], float]:
    """The value of each series, by its name and the values of its labels."""
    families = text_string_to_metric_families(registry.text())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, tuple(sample.labels.values())): sample.value for sample in samples}


@given(st.dictionaries(st.tuples(text, text), numbers, max_size=5), text)
def test_any_label_and_number(values: dict[tuple[str, str], float], help_text: str) -> None:
    registry = Registry()
    gauge = Gauge("level", help_text, ["first", "second"], registry=registry)
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    assert read(registry) == {("level", labels): value for labels, value in values.items()}


def test_what_is_no_number() -> None:
    registry = Registry()
    Gauge("level", "A level.", registry=registry).labels().set(math.nan)
    assert registry.text().endswith("\nlevel NaN\n")


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=20))
def test_a_bucket_has_all_values_up_to_its_bound(values: list[float]) -> None:
    registry = Registry()
    histogram = Histogram("seconds", "Durations.", ["of"], buckets=BOUNDS, registry=registry)
    series = histogram.labels("it")
    for value in values:
        series.observe(value)
    found = read(registry)
    for bound in BOUNDS:
        assert found["seconds_bucket", ("it", str(float(bound)))] == sum(value <= bound for value in values)
    assert found["seconds_bucket", ("it", "+Inf")] == found["seconds_count", ("it",)] == len(values)
    assert found["seconds_sum", ("it",)] == pytest.approx(sum(values))


def test_series() -> None:
    registry = Registry()
    counter = Counter("errors", "Errors.", ["kind"], registry=registry)
    counter.labels("a").inc()
    counter.labels("a").inc(2)
    counter.labels("b")
    level = Gauge("level", "A level.", registry=registry).labels()
    level.inc()
    assert read(registry) == {("errors_total", ("a",)): 3, ("errors_total", ("b",)): 0, ("level", ()): 1}
    counter.remove("a")
    counter.remove("absent")
    level.set_function(lambda: 7)
    assert read(registry) == {("errors_total", ("b",)): 0, ("level", ()): 7}


def test_each_label_needs_a_value() -> None:
    counter = Counter("errors", "Errors.", ["kind"], registry=Registry())
    with pytest.raises(ValueError, match="errors has the labels"):
        counter.labels("a", "b")


def test_resource_usage_of_this_process() -> None:
    registry = Registry()
    ProcessMetrics(registry)
    found = {name: value for (name, _), value in read(registry).items()}
    assert len(found) == 6
    assert 0 < found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert found["process_cpu_seconds_total"] > 0
    assert 0 < found["process_open_fds"] <= found["process_max_fds"]
    ago = found["process_start_time_seconds"]
    assert 1.7e9 < ago < 4e9


def test_promtool_accepts_the_text() -> None:
    registry = Registry()
    ProcessMetrics(registry)
    Counter("errors", 'With "quotes", \\ and\na newline.', ["kind"], registry=registry).labels('"\\\n').inc()
    Histogram("wait_seconds", "Durations.", buckets=BOUNDS, registry=registry).labels().observe(1)
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=registry.text(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
