"""Selects the cases of a table that `make test` runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def slice_of(cases: Iterable[Any], *numbers: int) -> list[Any]:
    """All cases, for `parametrize`: `make test` runs those with these numbers, and the campaign the others."""
    return [case if number in numbers else _in_campaign(case) for number, case in enumerate(cases)]


def _in_campaign(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.campaign)
