"""Charts of pods and waiting jobs over time, as SVG for light and dark pages."""

from collections.abc import Callable, Sequence
from html import escape

from .agenda import moment
from .report import Comparison

PANEL_WIDTH, PANEL_HEIGHT = 400, 170
MARGIN, GAP, HEAD = 40, 50, 46
STROKES = {"static": "#808080", "HPA": "#9b51e0", "KEDA": "#d9730d", "coder-k8s": "#2a78d6"}
MEASURES = (("pods", 1), ("jobs that wait", 2))

Samples = Sequence[tuple[float, int, int]]


def draw(comparisons: Sequence[Comparison]) -> str:
    """One row per trace: pods on the left, jobs that wait on the right."""
    height = HEAD + len(comparisons) * (PANEL_HEIGHT + GAP)
    width = 2 * (PANEL_WIDTH + MARGIN) + MARGIN
    legend = [
        f'<text x="{MARGIN + 110 * index}" y="20" fill="{color}" font-weight="600">{escape(name)}</text>'
        for index, (name, color) in enumerate(STROKES.items())
    ]
    panels = [
        panel
        for row, comparison in enumerate(comparisons)
        for column, (measure, field) in enumerate(MEASURES)
        for panel in _panel(
            comparison, measure, field, MARGIN + column * (PANEL_WIDTH + MARGIN), HEAD + row * (PANEL_HEIGHT + GAP)
        )
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            'font-size="12" role="img" aria-label="Simulated pods and jobs that wait">',
            *legend,
            *panels,
            "</svg>\n",
        ]
    )


def _panel(comparison: Comparison, measure: str, field: int, left: int, top: int) -> list[str]:
    shown = {name: points for name, points in comparison.samples.items() if field == 2 or name != "static"}
    highest = max((point[field] for points in shown.values() for point in points), default=0) or 1
    start, end = comparison.trace.start, comparison.trace.end

    def place(point: tuple[float, int, int]) -> tuple[float, float]:
        x = left + PANEL_WIDTH * (point[0] - start) / (end - start)
        return round(x, 1), round(top + PANEL_HEIGHT * (1 - point[field] / highest), 1)

    title = f"{comparison.trace.name}: {measure}, at most {highest}"
    parts = [
        f'<text x="{left}" y="{top - 6}" fill="#808080">{escape(title)}</text>',
        f'<rect x="{left}" y="{top}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="#808080" '
        'stroke-opacity="0.3"/>',
    ]
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        label = f"{moment(start + share * (end - start)):%H:%M}"
        parts.append(
            f'<text x="{left + share * PANEL_WIDTH:.0f}" y="{top + PANEL_HEIGHT + 16}" text-anchor="{anchor}" '
            f'fill="#808080">{label}</text>'
        )
    return parts + [_steps(points, end, place, STROKES[name]) for name, points in shown.items()]


def _steps(
    points: Samples, end: float, place: Callable[[tuple[float, int, int]], tuple[float, float]], color: str
) -> str:
    """A line with a corner at each change."""
    drawn: list[tuple[float, float]] = []
    placed = [place(point) for point in points if point[0] <= end]
    for x, y in placed:
        if drawn and y != drawn[-1][1]:
            drawn.append((x, drawn[-1][1]))
        if not drawn or y != drawn[-1][1]:
            drawn.append((x, y))
    drawn += placed[-1:]  # also if nothing changed until then
    path = " ".join(f"{x:g},{y:g}" for x, y in drawn)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5" stroke-opacity="0.9"/>'
