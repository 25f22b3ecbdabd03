"""Quantities of Kubernetes, such as `500m` or `2Gi`."""

import math
import re
from decimal import Decimal

QUANTITY = re.compile(r"(?P<number>[+-]?[0-9.]+)(?P<suffix>[numkMGTPE]?i?|[eE][+-]?[0-9]+)")
SUFFIXES = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(["n", "u", "m", "", "k", "M", "G", "T"], -3)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(["Ki", "Mi", "Gi", "Ti"], 1)},
}


def parse(text: str) -> Decimal:
    """Return the value of a quantity."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    suffix = match["suffix"]
    scale = SUFFIXES[suffix] if suffix in SUFFIXES else Decimal(f"1{suffix}")
    return Decimal(match["number"]) * scale


def divided(text: str, divisor: str) -> str:
    """Return a quantity in units of the divisor, rounded up, as in an environment variable."""
    unit = parse(divisor)
    return str(math.ceil(parse(text) / (unit or 1)))
