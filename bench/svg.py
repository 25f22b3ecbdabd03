"""Small line charts as SVG, for light and dark pages."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 44
COLORS = ("#2a78d6", "#d9730d", "#2e9e5b", "#9b51e0")
GREY = "#808080"

Points = Sequence[tuple[float, float]]


def chart(title: str, across: str, up: str, lines: Mapping[str, Points], dashed: Sequence[str] = ()) -> str:
    """Draw lines with equidistant x values and a y axis that starts at 0."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    top = _round_up(max(y for points in lines.values() for _, y in points))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        step = width / max(1, len(xs) - 1)
        return round(LEFT + xs.index(x) * step, 1), round(TOP + height * (1 - y / top), 1)

    parts = [_text(LEFT, 20, title, "start", weight="600"), _text(LEFT - 8, TOP - 8, up, "end")]
    for level in (0, top / 4, top / 2, top * 3 / 4, top):
        _, y = place(xs[0], level)
        parts += [_line(LEFT, y, LEFT + width, y), _text(LEFT - 8, y + 4, f"{level:g}", "end")]
    parts += [_text(place(x, 0)[0], HEIGHT - BOTTOM + 18, f"{x:g}", "middle") for x in xs]
    parts.append(_text(LEFT + width / 2, HEIGHT - 8, across, "middle"))
    labels = _spread([place(*points[-1])[1] for points in lines.values()])
    for (name, points), color, label in zip(lines.items(), COLORS, labels, strict=False):
        path = " ".join(f"{x},{y}" for x, y in (place(*point) for point in points))
        dash = ' stroke-dasharray="5 4"' if name in dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>' for x, y in (place(*each) for each in points)]
        parts.append(_text(LEFT + width + 10, label + 4, name, "start", color))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(title)}">\n{body}\n</svg>\n'
    )


def _spread(heights: Sequence[float], apart: float = 15) -> list[float]:
    """Return label positions at the ends of the lines, without overlaps."""
    moved = list(heights)
    last = float("-inf")
    for index in sorted(range(len(moved)), key=lambda index: heights[index]):
        moved[index] = last = max(moved[index], last + apart)
    return moved


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 6, 8, 10 times a power of ten."""
    scale = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 0.1
    return next(factor * scale for factor in (1, 2, 4, 5, 6, 8, 10) if factor * scale >= value)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{GREY}" stroke-opacity="0.3"/>'


def _text(x: float, y: float, words: str, anchor: str, color: str = GREY, weight: str = "400") -> str:
    style = f'text-anchor="{anchor}" fill="{color}" font-weight="{weight}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'
