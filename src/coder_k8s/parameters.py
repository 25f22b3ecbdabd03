"""How the command line reads what is more than a word."""

import re
from typing import Any

import click

from coder_k8s.settings import Names


class TimeSpan(click.ParamType[float]):
    """`15s`, `1m30s`, `500ms`; a bare number is seconds."""

    name = "time"
    SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = f"{value}s" if re.fullmatch(r"\d+(\.\d+)?", str(value)) else str(value)
        found = self.SPAN.fullmatch(text)
        if not text or found is None:
            self.fail(f"{value!r} is no span of time: write it like 15s, 1m30s or 500ms", param, ctx)
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


class NameList(click.ParamType[Names]):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Names:  # noqa: ARG002
        if isinstance(value, tuple):
            return value
        return tuple(name for part in value.split(",") if (name := part.strip()))
