"""The series of a metric by object."""

from prometheus_client import CollectorRegistry, Gauge

from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key


def test_series_of_one_object_are_removed() -> None:
    registry = CollectorRegistry()
    series = Series(Gauge, registry, "severity", "By section.", "section")
    first, second = Key("one", "demo"), Key("two", "demo")
    for key in (first, second):
        series.of(key, "Database").set(1)
        series.of(key, "DERP").set(2)
    series.forget(first)
    series.forget(Key("other", "demo"))
    found = {tuple(sample.labels.values()) for metric in registry.collect() for sample in metric.samples}
    assert found == {("two", "demo", "Database"), ("two", "demo", "DERP")}
    series.of(first, "DERP").set(0)
    assert registry.get_sample_value("severity", {"namespace": "one", "name": "demo", "section": "DERP"}) == 0
