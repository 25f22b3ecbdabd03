"""The series of a metric by object."""

from coder_k8s.controllers.series import Series
from coder_k8s.kube.objects import Key
from coder_k8s.prometheus import Gauge, Registry
from tests.support.metrics import sample_value


def test_series_of_one_object_are_removed() -> None:
    registry = Registry()
    series = Series(Gauge, registry, "severity", "By section.", "section")
    first, second = Key("one", "demo"), Key("two", "demo")
    for key in (first, second):
        series.of(key, "Database").set(1)
        series.of(key, "DERP").set(2)
    series.forget(first)
    series.forget(Key("other", "demo"))
    found = {sample.labels for family in registry.collect() for sample in family.samples}
    assert found == {("two", "demo", "Database"), ("two", "demo", "DERP")}
    series.of(first, "DERP").set(0)
    assert sample_value(registry, "severity", namespace="one", name="demo", section="DERP") == 0
