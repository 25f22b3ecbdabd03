"""Parameter types of the command line."""

import re
from typing import Any

import click

from coder_k8s.settings import Names


class Duration(click.ParamType[float]):
    """A duration such as `15s`, `1m30s` or `500ms`; a plain number is seconds."""

    name = "duration"
    PATTERN = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = f"{value}s" if re.fullmatch(r"\d+(\.\d+)?", str(value)) else str(value)
        found = self.PATTERN.fullmatch(text)
        if not text or found is None:
            self.fail(f"{value!r} is not a duration: write it like 15s, 1m30s or 500ms", param, ctx)
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


class NameList(click.ParamType[Names]):
    """Comma-separated names."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Names:  # noqa: ARG002
        if isinstance(value, tuple):
            return value
        return tuple(name for part in value.split(",") if (name := part.strip()))
