"""All metrics of a process, and their text.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
INFINITY = "+Inf"

Labels = tuple[str, ...]
"""The values of the labels of a series, in the order of their names."""


class Sample(NamedTuple):
    """The value of one series."""

    labels: Labels
    value: float
    suffix: str = ""
    """Appended to the name of the family."""
    bound: str = ""
    """The upper bound of a bucket of a histogram."""


class Family(msgspec.Struct, frozen=True):
    """A metric and its samples."""

    name: str
    type: str
    help: str
    labels: Sequence[str]
    samples: Iterable[Sample]


class Collector(Protocol):
    """Knows the current values of some metrics."""

    def collect(self) -> Iterable[Family]:
        """Return each metric, also one without samples."""


class Registry:
    """Collects all metrics."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def collect(self) -> Iterator[Family]:
        for collector in self._collectors:
            yield from collector.collect()

    def text(self) -> str:
        """What a scrape returns."""
        return "".join(line for family in self.collect() for line in _lines(family))


def number(value: float) -> str:
    """Write a number."""
    if math.isinf(value):
        return INFINITY if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def _lines(family: Family) -> Iterator[str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    yield f"# HELP {name} {_escape(family.help)}\n# TYPE {name} {family.type}\n"
    for labels, value, suffix, bound in family.samples:
        pairs = sorted(f'{label}="{_quote(text)}"' for label, text in zip(family.labels, labels, strict=True))
        if bound:
            pairs.append(f'le="{bound}"')
        yield f"{name}{suffix}{'{' + ','.join(pairs) + '}' if pairs else ''} {number(value)}\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quote(text: str) -> str:
    return _escape(text).replace('"', r"\"")
