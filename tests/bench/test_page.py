"""The page that `make bench` writes."""

from xml.etree import ElementTree

import pytest

from bench.__main__ import DOCS, RESULTS, pages
from bench.report import Section, Verdict, page, table
from bench.samples import percentile
from bench.svg import chart


def test_a_missed_target_is_shown_with_its_cause() -> None:
    met = Verdict(name="speed", target="< 2 s", found="1 s", met=True, limit="nothing")
    missed = Verdict(name="memory", target="< 2 MB", found="3 MB", met=False, limit="the libraries take 1 MB.")
    text = page("a machine", [Section(title="All", text="Some words.", verdicts=[met, missed])])
    assert "| speed | < 2 s | 1 s | met |" in text
    assert "| memory | < 2 MB | 3 MB | **missed** |" in text
    assert "- memory: the libraries take 1 MB." in text
    assert "speed: nothing" not in text


def test_a_table_has_a_line_for_each_row() -> None:
    assert table(["a", "b"], [(1, 2)]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


def test_a_chart_is_well_formed_and_shows_every_point() -> None:
    svg = chart("Time & space", "N", "s", {"one": [(1, 2.0), (10, 3.0)], "two": [(1, 1.0), (10, 0.5)]})
    root = ElementTree.fromstring(svg)  # noqa: S314 - generated above
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    heights = [float(each.attrib["cy"]) for each in root.findall("{http://www.w3.org/2000/svg}circle")]
    assert len(heights) == 4
    assert heights[1] < heights[0] < heights[2] < heights[3], "more is higher up"


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7.0], 99) == 7


def test_the_page_contains_the_results() -> None:
    if not any(RESULTS.glob("*.json")):
        pytest.skip("there are no results")
    for name, content in pages(RESULTS).items():
        assert (DOCS / name).read_text() == content, f"{name} is not what `make bench ARGS=--report` writes"
