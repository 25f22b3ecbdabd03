"""Metrics that are changed where something happens. They are used by one thread only, the one of the event loop."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, Generic, TypeVar

from .registry import INFINITY, Family, Labels, Registry, Sample, number


class CounterSeries:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def samples(self, labels: Labels) -> Iterator[Sample]:
        yield Sample(labels, self.value)


class GaugeSeries:
    """A number that is set, or computed for each scrape."""

    __slots__ = ("read", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self.value = value

    def inc(self) -> None:
        self.value += 1.0

    def dec(self) -> None:
        self.value -= 1.0

    def set_function(self, read: Callable[[], float]) -> None:
        self.read = read

    def samples(self, labels: Labels) -> Iterator[Sample]:
        yield Sample(labels, self.value if self.read is None else self.read())


class HistogramSeries:
    """The number of values in each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """By bucket; the last one has no upper bound."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self, labels: Labels) -> Iterator[Sample]:
        bounds = (*map(number, self.bounds), INFINITY)
        for bound, count in zip(bounds, accumulate(self.counts), strict=True):
            yield Sample(labels, count, "_bucket", bound)
        yield Sample(labels, sum(self.counts), "_count")
        yield Sample(labels, self.sum, "_sum")


S = TypeVar("S", CounterSeries, GaugeSeries, HistogramSeries)


class Metric(ABC, Generic[S]):
    """A metric with one series for each combination of the values of its labels."""

    type: ClassVar[str]

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = (), *, registry: Registry) -> None:
        self.name = name
        self.help = help_text
        self.label_names = tuple(labels)
        self._series: dict[Labels, S] = {}
        registry.register(self)

    def labels(self, *values: str) -> S:
        """The series with these values, which is created if it does not exist."""
        found = self._series.get(values)
        if found is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {len(values)}")
            found = self._series[values] = self._create()
        return found

    def remove(self, *values: str) -> None:
        self._series.pop(values, None)

    def collect(self) -> Iterator[Family]:
        samples = [sample for labels, series in self._series.items() for sample in series.samples(labels)]
        yield Family(self.name, self.type, self.help, self.label_names, samples)

    @abstractmethod
    def _create(self) -> S:
        """Return a new series."""


class Counter(Metric[CounterSeries]):
    """Counts what happens; the name of its series ends with `_total`."""

    type = "counter"

    def _create(self) -> CounterSeries:
        return CounterSeries()


class Gauge(Metric[GaugeSeries]):
    """A current value."""

    type = "gauge"

    def _create(self) -> GaugeSeries:
        return GaugeSeries()


class Histogram(Metric[HistogramSeries]):
    """The distribution of values over buckets, each with the values up to its bound."""

    type = "histogram"

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), *, buckets: Sequence[float], registry: Registry
    ) -> None:
        super().__init__(name, help_text, labels, registry=registry)
        self._bounds = tuple(buckets)

    def _create(self) -> HistogramSeries:
        return HistogramSeries(self._bounds)
